// The linear baseline against a dense float64 logistic regression solved by Newton's method here.

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "support/torch_catch.h"
#include "tasks/linear_classifier.h"
#include "text/ngram_features.h"

namespace metaformer::test_linear_classifier {

namespace {

// Minimises |w|^2 / 2 + cost sum log(1 + exp(-y w.x)).
torch::Tensor newton(const torch::Tensor& x_tf, const torch::Tensor& y_t, double cost) {
  const auto identity_ff = torch::eye(x_tf.size(1), torch::kDouble);
  auto w_f = torch::zeros(x_tf.size(1), torch::kDouble);
  for (int iteration = 0; iteration < 50; ++iteration) {
    const auto wrong_t = torch::sigmoid(-y_t * x_tf.mv(w_f));
    const auto gradient_f = w_f - cost * x_tf.t().mv(y_t * wrong_t);
    const auto curved_tf = x_tf * (wrong_t * (1 - wrong_t)).unsqueeze(1);
    w_f = w_f - at::linalg_solve(identity_ff + cost * x_tf.t().mm(curved_tf), gradient_f);
  }
  return w_f;
}

constexpr std::size_t feature_count = 7;

// Texts whose features indicate the class with some noise.
std::vector<LabelledFeatures> noisy_texts(std::size_t count, std::int64_t classes) {
  const Rng rng(11, RandomPurpose::noise);
  std::vector<LabelledFeatures> texts;
  for (std::size_t i = 0; i < count; ++i) {
    LabelledFeatures text{.features = {}, .label = static_cast<std::int64_t>(i) % classes};
    for (std::uint32_t feature = 0; feature < feature_count; ++feature) {
      const bool fits = feature % static_cast<std::uint32_t>(classes) == static_cast<std::uint32_t>(text.label);
      if (rng.uniform(i * feature_count + feature) < (fits ? 0.6 : 0.3)) text.features.push_back(feature);
    }
    texts.push_back(text);
  }
  return texts;
}

// By the definition: the smoothed number of a class's texts with the feature, divided by the sum over all features.
std::vector<double> ratios_by_definition(const std::vector<LabelledFeatures>& texts, std::int64_t label) {
  std::vector<double> p(feature_count, log_count_smoothing), q(feature_count, log_count_smoothing);
  for (const auto& text : texts)
    for (const auto feature : text.features) (text.label == label ? p : q)[feature] += 1;
  double p_sum = 0, q_sum = 0;
  for (std::size_t i = 0; i < feature_count; ++i) p_sum += p[i], q_sum += q[i];
  std::vector<double> ratios;
  for (std::size_t i = 0; i < feature_count; ++i) ratios.push_back(std::log((p[i] / p_sum) / (q[i] / q_sum)));
  return ratios;
}

// Weights of the features and, last, the bias: the log odds of `label` against the rest.
std::vector<double> reference_odds(const std::vector<LabelledFeatures>& texts, std::int64_t label,
                                   const LinearConfig& config) {
  const auto scale = config.naive_bayes ? ratios_by_definition(texts, label) : std::vector<double>(feature_count, 1.0);
  const auto count = static_cast<std::int64_t>(texts.size());
  const auto x_tf = torch::zeros({count, static_cast<std::int64_t>(feature_count) + 1}, torch::kDouble);
  const auto y_t = torch::empty(count, torch::kDouble);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& text = texts[static_cast<std::size_t>(i)];
    for (const auto feature : text.features) x_tf[i][feature] = scale[feature];
    x_tf[i][-1] = 1;
    y_t[i] = text.label == label ? 1 : -1;
  }
  const auto w_f = newton(x_tf, y_t, config.cost);
  std::vector<double> odds(w_f.data_ptr<double>(), w_f.data_ptr<double>() + w_f.numel());
  for (std::size_t i = 0; i < feature_count; ++i) odds[i] *= scale[i];
  return odds;
}

// The error of a weight that liblinear's stopping rule allows here.
Approx near(double value) { return Approx(value).margin(5e-3); }

}  // namespace

TEST_CASE("the weights of two classes are plus and minus half the log odds of a logistic regression", "[linear]") {
  const auto naive_bayes = GENERATE(false, true);
  const auto cost = GENERATE(0.1, 1.0, 10.0);
  const LinearConfig config{.buckets = 16, .naive_bayes = naive_bayes, .cost = cost};
  const auto texts = noisy_texts(60, 2);
  const auto expected = reference_odds(texts, 1, config);
  const auto result = fit_linear_classifier(texts, 2, config);
  REQUIRE(result.weights.size() == 2 * 16);
  for (std::size_t i = 0; i < feature_count; ++i) {
    CHECK(result.weights[2 * i + 1] - result.weights[2 * i] == near(expected[i]));
    CHECK(result.weights[2 * i + 1] == -result.weights[2 * i]);
  }
  CHECK(result.bias[1] - result.bias[0] == near(expected.back()));
  for (std::size_t i = 2 * feature_count; i < result.weights.size(); ++i)
    CHECK(result.weights[i] == 0);  // features of no text
}

TEST_CASE("of more than two classes each is separated from the rest", "[linear]") {
  const LinearConfig config{.buckets = feature_count, .naive_bayes = GENERATE(false, true), .cost = 1};
  const auto texts = noisy_texts(90, 3);
  const auto result = fit_linear_classifier(texts, 3, config);
  std::size_t right = 0;
  for (std::int64_t label = 0; label < 3; ++label) {
    const auto expected = reference_odds(texts, label, config);
    const auto column = static_cast<std::size_t>(label);
    for (std::size_t i = 0; i < feature_count; ++i) CHECK(result.weights[3 * i + column] == near(expected[i]));
    CHECK(result.bias[column] == near(expected.back()));
  }
  for (const auto& text : texts) {
    const auto logits = result.logits(text.features);
    right += std::max_element(logits.begin(), logits.end()) - logits.begin() == text.label;
  }
  CHECK(right > 90 / 2);
}

TEST_CASE("the order of texts and classes has no effect on the weights", "[linear]") {
  auto texts = noisy_texts(60, 2);
  const LinearConfig config{.buckets = feature_count, .cost = 1};
  std::stable_sort(texts.begin(), texts.end(), [](const auto& a, const auto& b) { return a.label > b.label; });
  const auto ones_first = fit_linear_classifier(texts, 2, config).weights;
  std::reverse(texts.begin(), texts.end());
  const auto zeros_first = fit_linear_classifier(texts, 2, config).weights;
  for (std::size_t i = 0; i < ones_first.size(); ++i) CHECK(ones_first[i] == near(zeros_first[i]));
}

TEST_CASE("classes without texts and texts without features are fitted", "[linear]") {
  const LinearConfig config{.buckets = 4};
  const auto fit = [&](const std::vector<LabelledFeatures>& texts, std::int64_t classes) {
    return fit_linear_classifier(texts, classes, config);
  };
  const auto one_text = fit({{.features = {2}, .label = 1}}, 2);  // one class has all texts, the other none
  CHECK(one_text.bias[1] > one_text.bias[0]);
  CHECK(one_text.weights == std::vector<float>(8));
  CHECK(fit({}, 2).bias == std::vector<float>{0, 0});
  const auto empty_class = fit({{{0}, 0}, {{1}, 1}}, 3);
  CHECK(empty_class.bias[2] < 0);
  CHECK(empty_class.logits({0})[0] > empty_class.logits({0})[1]);
  CHECK(empty_class.logits({0})[1] > -10);
  CHECK(log_count_ratios({{{0, 1}, 1}, {{0}, 0}}, 1, 3)[2] == 0);         // a feature in no text
  const auto featureless = fit({{{}, 0}, {{}, 1}, {{}, 1}, {{}, 1}}, 2);  // the more frequent class wins
  CHECK(featureless.bias[1] > featureless.bias[0]);
  CHECK(featureless.logits({})[1] == featureless.bias[1]);
}

namespace {

// The classifier as a predictor.
constexpr std::int64_t classes = 3;
constexpr LinearConfig config = {.ngrams = 3, .buckets = 1 << 12};

LinearWeights random_weights() {
  torch::manual_seed(3);
  const auto drawn = torch::randn((config.buckets + 1) * classes);
  const auto* first = drawn.data_ptr<float>();
  return {.classes = classes,
          .weights = {first, first + config.buckets * classes},
          .bias = {first + config.buckets * classes, first + drawn.numel()}};
}

// The logits of one text as sums over its features.
torch::Tensor by_hand(const std::vector<std::int32_t>& ids) {
  return torch::tensor(random_weights().logits(ngram_features(ids, config)), torch::kDouble);
}

Batch batch_of(const torch::Tensor& ids_bc, const torch::Tensor& segments_bc = {}) {
  return {.ids_bc = ids_bc, .segments_bc = segments_bc};
}

}  // namespace

TEST_CASE("the logits of a linear model are sums of the weights of a text's n-grams", "[linear]") {
  const LinearModel model(config, random_weights());
  const auto logits_bv = model.logits(batch_of(torch::tensor({{1, 2, 3, 4}, {4, 3, 2, 1}}))).to(torch::kDouble);
  REQUIRE(logits_bv.sizes() == at::IntArrayRef({2, classes}));
  CHECK(torch::allclose(logits_bv[0], by_hand({1, 2, 3, 4}), 1e-5, 1e-5));
  CHECK(torch::allclose(logits_bv[1], by_hand({4, 3, 2, 1}), 1e-5, 1e-5));
  CHECK_FALSE(torch::allclose(logits_bv[0], logits_bv[1], 1e-2, 1e-2));
  const auto repeated = [&](std::int64_t times) { return model.logits(batch_of(torch::full({1, times}, 7L))); };
  CHECK(torch::equal(repeated(3), repeated(5)));  // an n-gram counts once
  CHECK(model.parameters() == (4096 + 1) * classes);
}

TEST_CASE("padding and other texts of a batch change no bit of a text's logits", "[linear]") {
  const LinearModel model(config, random_weights());
  const auto ids_bc = torch::tensor({{1, 2, 3, 0, 0}, {5, 6, 7, 8, 9}, {0, 0, 0, 0, 0}});
  const auto segments_bc = torch::tensor({{0, 0, 0, -1, -1}, {0, 0, 0, 0, 0}, {-1, -1, -1, -1, -1}});
  const auto together_bv = model.logits(batch_of(ids_bc, segments_bc));
  const auto alone_v = [&](std::int64_t row, std::int64_t length) {
    return model.logits(batch_of(ids_bc[row].narrow(0, 0, length).unsqueeze(0)))[0];
  };
  CHECK(torch::equal(together_bv[0], alone_v(0, 3)));
  CHECK(torch::equal(together_bv[1], alone_v(1, 5)));
  CHECK(torch::equal(together_bv[2], model.tensors()[1].second));  // without tokens only the bias
  CHECK_FALSE(torch::equal(together_bv[0], alone_v(0, 5)));
}

TEST_CASE("a linear model loads only tensors of its shape", "[linear]") {
  const LinearModel model(config, random_weights()), same(config, classes), other(config, classes + 1);
  const auto batch = batch_of(torch::tensor({{1, 2, 3, 4}}));
  copy_by_name(model.tensors(), same.tensors(), "a file");
  CHECK(torch::equal(same.logits(batch), model.logits(batch)));
  CHECK_THROWS_WITH(copy_by_name(model.tensors(), other.tensors(), "a file"), Mentions("'weight'|[4096, 3]"));
}

}  // namespace metaformer::test_linear_classifier
