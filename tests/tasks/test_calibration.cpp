// Temperature scaling against brute force in float64.

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/threads.h"
#include "support/torch_catch.h"
#include "tasks/calibration.h"
#include "tasks/classification_task.h"

namespace metaformer::test_calibration {

namespace {

struct Texts {
  torch::Tensor logits_lv, labels_l;
};

// Labels drawn from softmax(logits / true_temperature), so that the fit is near that temperature.
Texts drawn_texts(std::int64_t texts, std::int64_t classes, double true_temperature, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto logits_lv = 3 * torch::randn({texts, classes}, torch::kDouble);
  const auto labels_l = torch::multinomial(torch::softmax(logits_lv / true_temperature, 1), 1).squeeze(1);
  return {logits_lv, labels_l};
}

// Mean of -log softmax(z / T) of the true class, term by term.
double loss_by_definition(const Texts& texts, double temperature) {
  const auto z = texts.logits_lv.accessor<double, 2>();
  const auto label = texts.labels_l.accessor<std::int64_t, 1>();
  double sum = 0;
  for (std::int64_t i = 0; i < z.size(0); ++i) {
    double highest = -std::numeric_limits<double>::infinity(), total = 0;
    for (std::int64_t k = 0; k < z.size(1); ++k) highest = std::max(highest, z[i][k] / temperature);
    for (std::int64_t k = 0; k < z.size(1); ++k) total += std::exp(z[i][k] / temperature - highest);
    sum += highest + std::log(total) - z[i][label[i]] / temperature;
  }
  return sum / static_cast<double>(z.size(0));
}

// The best temperature of a grid, refined around it.
double temperature_by_grid(const Texts& texts) {
  double low = lowest_temperature, high = highest_temperature, best = 1;
  constexpr int points = 40, rounds = 6;
  for (int round = 0; round < rounds; ++round) {
    double least = std::numeric_limits<double>::infinity();
    const double factor = std::pow(high / low, 1.0 / points);
    for (int i = 0; i <= points; ++i) {
      const double temperature = low * std::pow(factor, i);
      if (const double loss = loss_by_definition(texts, temperature); loss < least) {
        least = loss;
        best = temperature;
      }
    }
    low = std::max(lowest_temperature, best / factor);
    high = std::min(highest_temperature, best * factor);
  }
  return best;
}

// Bins by comparison with their borders.
double calibration_error_by_definition(const ClassProbabilities& p) {
  double error = 0;
  for (int bin = 0; bin < 15; ++bin) {
    double texts = 0, confidence = 0, right = 0;
    for (std::int64_t text = 0; text < p.texts(); ++text) {
      const double highest = p.at(text, p.predicted(text));
      const bool is_in = highest * 15 >= bin && (highest * 15 < bin + 1 || bin == 14);
      if (!is_in) continue;
      ++texts;
      confidence += highest;
      right += p.predicted(text) == p.label(text);
    }
    if (texts > 0) error += std::abs(confidence / texts - right / texts) * texts;
  }
  return error / static_cast<double>(p.texts());
}

torch::Tensor tensor_of(const std::vector<std::vector<double>>& rows) {
  std::vector<torch::Tensor> tensors;
  for (const auto& row : rows) tensors.push_back(torch::tensor(row, torch::kDouble));
  return torch::stack(tensors);
}

torch::Tensor classes_of(const std::vector<std::int64_t>& labels) { return torch::tensor(labels, torch::kLong); }

}  // namespace

TEST_CASE("the fitted temperature has the lowest loss of a grid, and a slope of zero", "[calibration]") {
  const auto [texts, classes, temperature] = GENERATE(table<std::int64_t, std::int64_t, double>(
      {{60, 2, 1.0}, {400, 2, 2.5}, {500, 10, 0.4}, {300, 3, 7.0}, {25, 2, 2.0}, {1000, 50, 1.5}}));
  CAPTURE(texts, classes, temperature);
  const auto given = drawn_texts(texts, classes, temperature, static_cast<std::uint64_t>(texts));
  const double fitted = fit_temperature(given.logits_lv, given.labels_l), grid = temperature_by_grid(given);
  CHECK(fitted == Approx(grid).epsilon(1e-4));
  CHECK(loss_by_definition(given, fitted) <= loss_by_definition(given, grid) + 1e-14);
  constexpr double step = 1e-4;
  if (fitted > lowest_temperature && fitted < highest_temperature) {
    CHECK(loss_by_definition(given, fitted * (1 + step)) > loss_by_definition(given, fitted));
    CHECK(loss_by_definition(given, fitted * (1 - step)) > loss_by_definition(given, fitted));
  }
  CHECK(scaled_loss(given.logits_lv, given.labels_l, fitted) ==
        Approx(loss_by_definition(given, fitted)).epsilon(1e-12));
  CHECK(scaled_loss(given.logits_lv, given.labels_l, 1) == Approx(loss_by_definition(given, 1)).epsilon(1e-12));
}

TEST_CASE("a factor of the logits is a factor of the temperature, and the number of threads has no effect",
          "[calibration]") {
  const auto given = drawn_texts(3000, 4, 1.8, 5);
  const double fitted = fit_temperature(given.logits_lv, given.labels_l);
  CHECK(fitted == Approx(1.8).epsilon(0.1));
  CHECK(fit_temperature(3 * given.logits_lv, given.labels_l) == Approx(3 * fitted).epsilon(1e-9));
  CHECK(fit_temperature(given.logits_lv + 40, given.labels_l) == Approx(fitted).epsilon(1e-9));
  for (const int threads : {1, 2, 3}) {
    const Threads limit(threads);
    CHECK(fit_temperature(given.logits_lv, given.labels_l) == fitted);
  }
}

TEST_CASE("no text changes its class with a temperature, and the AUC of two classes stays", "[calibration]") {
  const double temperature = GENERATE(0.05, 0.7, 1.0, 3.0, 20.0);
  const std::int64_t classes = GENERATE(2, 6);
  const auto given = drawn_texts(200, classes, 1, 8);
  const auto raw = class_probabilities(given.logits_lv, given.labels_l);
  const auto scaled = class_probabilities(given.logits_lv, given.labels_l, temperature);
  for (std::int64_t text = 0; text < raw.texts(); ++text) CHECK(scaled.predicted(text) == raw.predicted(text));
  if (temperature == 1) CHECK(scaled.values == raw.values);
  if (classes == 2 && temperature >= 0.7) CHECK(*roc_auc(scaled) == Approx(*roc_auc(raw)).epsilon(1e-12));
}

TEST_CASE("texts that determine no temperature give 1, and a minimum beyond a bound gives the bound", "[calibration]") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  struct Case {
    const char* name;
    torch::Tensor logits_lv, labels_l;
    double temperature;
  };
  for (const auto& [name, logits_lv, labels_l, temperature] : std::vector<Case>{
           {"no text", torch::empty({0, 2}, torch::kDouble), torch::empty({0}, torch::kLong), 1},
           {"one text", tensor_of({{1, 2}}), classes_of({0}), 1},
           {"one class", tensor_of({{1, 2}, {2, 1}}), classes_of({1, 1}), 1},
           {"all are right", tensor_of({{3, 1}, {1, 2}}), classes_of({0, 1}), 1},
           {"all are right by a margin beyond exp", tensor_of({{900, -900}, {-900, 900}}), classes_of({0, 1}), 1},
           {"equal logits", tensor_of({{1, 1}, {2, 2}}), classes_of({0, 1}), 1},
           {"not a number", tensor_of({{1, nan}, {2, 1}}), classes_of({0, 1}), 1},
           {"infinite", tensor_of({{1, infinite}, {2, 1}}), classes_of({0, 1}), 1},
           {"all are wrong", tensor_of({{3, 1}, {1, 2}}), classes_of({1, 0}), highest_temperature},
           {"right as often as wrong", tensor_of({{3, 1}, {3, 1}}), classes_of({0, 1}), highest_temperature},
           {"hardly sure, and usually right", tensor_of({{1e-4, 0}, {0, 1e-4}, {1e-4, 0}}), classes_of({0, 1, 1}),
            lowest_temperature}}) {
    CAPTURE(name);
    CHECK(fit_temperature(logits_lv, labels_l) == temperature);
    const auto words = describe_temperature(temperature);
    CHECK_THAT(words, Mentions(temperature == 1    ? "temperature 1, not fitted|one class|classified correctly"
                               : temperature == 20 ? "temperature 20, the highest|higher"
                                                   : "temperature 0.05, the lowest|lower"));
    CHECK_THAT(words, !ContainsSubstring("\n"));
  }
  CHECK(describe_temperature(1.25) == "temperature 1.2500, fitted to validation texts");
}

TEST_CASE("calibration error equals its definition by bins, before and after scaling", "[calibration]") {
  const double temperature = GENERATE(1.0, 0.3, 4.0);
  const std::int64_t classes = GENERATE(2, 5), texts = GENERATE(1, 30, 900);
  const auto given = drawn_texts(texts, classes, 2, static_cast<std::uint64_t>(7 * texts + classes));
  const auto probabilities = class_probabilities(given.logits_lv, given.labels_l, temperature);
  CHECK(std::abs(calibration_error(probabilities) - calibration_error_by_definition(probabilities)) < 1e-12);
}

TEST_CASE("scaling by the temperature from which the labels are drawn makes confidence equal accuracy",
          "[calibration]") {
  const auto given = drawn_texts(20'000, 3, 2.5, 3);
  const double fitted = fit_temperature(given.logits_lv, given.labels_l);
  const auto error = [&](double temperature) {
    return calibration_error(class_probabilities(given.logits_lv, given.labels_l, temperature));
  };
  CHECK(error(1) > 0.1);
  CHECK(error(fitted) < 0.02);
}

}  // namespace metaformer::test_calibration
