#include "tasks/calibration.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/math/tools/toms748_solve.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "tasks/classification_task.h"

namespace metaformer {

namespace {

// Logits in float64 and classes of texts, in the memory of the host.
class LabelledLogits {
 public:
  LabelledLogits(const torch::Tensor& logits_lv, const torch::Tensor& labels_l)
      : logits_lv_(logits_lv.to(torch::kCPU, torch::kDouble).contiguous()),
        labels_l_(labels_l.to(torch::kCPU, torch::kLong).contiguous()) {}

  std::int64_t texts() const { return labels_l_.numel(); }
  std::int64_t label(std::int64_t text) const { return labels_l_.const_data_ptr<std::int64_t>()[text]; }
  std::span<const double> logits(std::int64_t text) const {
    const auto classes = logits_lv_.size(1);
    return {logits_lv_.const_data_ptr<double>() + text * classes, static_cast<std::size_t>(classes)};
  }
  double true_logit(std::int64_t text) const { return logits(text)[static_cast<std::size_t>(label(text))]; }

  bool is_finite() const { return logits_lv_.isfinite().all().item<bool>(); }
  bool has_one_class() const { return (labels_l_ == labels_l_[0]).all().item<bool>(); }

  // Whether no class has a higher logit than the true one.
  bool is_separated() const {
    for (std::int64_t text = 0; text < texts(); ++text)
      if (std::ranges::max(logits(text)) > true_logit(text)) return false;
    return true;
  }

 private:
  torch::Tensor logits_lv_, labels_l_;
};

// Of one text: the mean of z under softmax(b z), minus the true class's z.
double slope_of_text(std::span<const double> logits, double true_logit, double inverse_temperature) {
  const double highest = std::ranges::max(logits);
  double sum = 0, weighted = 0;
  for (const double logit : logits) {
    const double weight = std::exp(inverse_temperature * (logit - highest));
    sum += weight;
    weighted += weight * (logit - true_logit);
  }
  return weighted / sum;
}

// The derivative of the mean loss by b = 1 / T. The loss is convex in b, so this rises.
double loss_slope(const LabelledLogits& of, double inverse_temperature) {
  constexpr std::int64_t texts_of_thread = 256;
  std::vector<double> slopes(static_cast<std::size_t>(of.texts()));
  at::parallel_for(0, of.texts(), texts_of_thread, [&](std::int64_t begin, std::int64_t end) {
    for (auto text = begin; text < end; ++text)
      slopes[static_cast<std::size_t>(text)] = slope_of_text(of.logits(text), of.true_logit(text), inverse_temperature);
  });
  return std::accumulate(slopes.begin(), slopes.end(), 0.0) / static_cast<double>(of.texts());
}

}  // namespace

double fit_temperature(const torch::Tensor& logits_lv, const torch::Tensor& labels_l) {
  namespace roots = boost::math::tools;
  constexpr int bits = 48;
  const LabelledLogits logits(logits_lv, labels_l);
  if (logits.texts() == 0 || !logits.is_finite() || logits.has_one_class() || logits.is_separated()) return 1;
  const auto slope = [&](double inverse_temperature) { return loss_slope(logits, inverse_temperature); };
  constexpr double low = 1 / highest_temperature, high = 1 / lowest_temperature;
  const double at_low = slope(low), at_high = slope(high);
  if (at_low >= 0) return highest_temperature;
  if (at_high <= 0) return lowest_temperature;
  std::uintmax_t most_rounds = 100;
  const auto [below, above] =
      roots::toms748_solve(slope, low, high, at_low, at_high, roots::eps_tolerance<double>(bits), most_rounds);
  return std::clamp(2 / (below + above), lowest_temperature, highest_temperature);
}

std::optional<double> fit_temperature(const Task& task, const ScoreSums& sums) {
  if (task.classes == nullptr) return std::nullopt;
  return fit_temperature(sums.joined("logits"), sums.joined("labels"));
}

double scaled_loss(const torch::Tensor& logits_lv, const torch::Tensor& labels_l, double temperature) {
  return at::cross_entropy_loss(logits_lv.to(torch::kDouble) / temperature, labels_l).item<double>();
}

void add_scaled_scores(Evaluation& evaluation, const Task& task, const ScoreSums& sums,
                       const std::optional<double>& temperature) {
  if (task.classes == nullptr || !temperature || !std::isfinite(evaluation.at("loss"))) return;
  const auto logits_lv = sums.joined("logits"), labels_l = sums.joined("labels");
  const auto probabilities = class_probabilities(logits_lv, labels_l, *temperature);
  evaluation.scores.emplace_back("temperature", *temperature);
  evaluation.scores.emplace_back("scaled_loss", scaled_loss(logits_lv, labels_l, *temperature));
  evaluation.scores.emplace_back("scaled_calibration_error", calibration_error(probabilities));
}

std::string describe_temperature(double temperature) {
  if (temperature == 1)
    return "temperature 1, not fitted: the validation texts have one class, or all are classified correctly";
  const bool is_lowest = temperature == lowest_temperature;
  if (is_lowest || temperature == highest_temperature)
    return fmt::format("temperature {}, the {} allowed: the validation loss would fall further with a {} one",
                       temperature, is_lowest ? "lowest" : "highest", is_lowest ? "lower" : "higher");
  return fmt::format("temperature {:.4f}, fitted to validation texts", temperature);
}

}  // namespace metaformer
