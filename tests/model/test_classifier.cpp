#include "base/error.h"
#include "model/classifier.h"
#include "model/parameters.h"
#include "support/any_mixer.h"

namespace metaformer {

namespace {

constexpr std::int64_t vocabulary = 13, classes = 3;

HeadConfig max_pooled(bool response_norm, BagConfig bag = NoBagConfig{}) {
  MaxPooledHeadConfig head;
  head.response_norm = response_norm;
  head.bag = bag;
  return head;
}

const std::vector<HeadConfig> every_head = {
    PerTokenMeanHeadConfig{}, MeanPooledHeadConfig{}, FirstTokenHeadConfig{}, max_pooled(false),
    max_pooled(true, NaiveBayesBagConfig{.ngrams = 3, .buckets = 50, .units = 4})};

const std::vector<RegionConfig> every_region = {NoRegionConfig{}, SequenceRegionConfig{.shortest = 1, .longest = 2}};

struct Example {
  TransformerConfig config;
  std::shared_ptr<Classifier> model;
};

Example any_classifier() {
  TransformerConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.context = 9;
  config.mixer = any_mixer();
  config.embedding.region = GENERATE(from_range(every_region));
  const auto head = GENERATE(from_range(every_head));
  torch::manual_seed(4);
  auto model = std::make_shared<Classifier>(config, head, vocabulary, classes);
  model->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.normal_(0, 0.4);
  return {config, model};
}

double difference(const torch::Tensor& a, const torch::Tensor& b) { return (a - b).abs().max().item<double>(); }

}  // namespace

TEST_CASE("padding changes no class, whatever it holds and however long it is", "[classifier]") {
  const auto [config, model] = any_classifier();
  const torch::NoGradGuard no_grad;
  const auto text = torch::randint(vocabulary, {1, 5}, torch::kLong);
  const auto alone = model->evaluate(Batch{.ids_bc = text});
  CHECK(alone.sizes() == std::vector<std::int64_t>{1, classes});
  for (const std::int64_t padding : {1, 4}) {
    const auto filler = torch::randint(vocabulary, {1, padding}, torch::kLong);
    const Batch padded{.ids_bc = torch::cat({text, filler}, 1),
                       .segments_bc = torch::cat(
                           {torch::zeros({1, 5}, torch::kLong), torch::full({1, padding}, -1, torch::kLong)}, 1)};
    CHECK(difference(model->evaluate(padded), alone) < 1e-12);
  }
}

TEST_CASE("a batch of texts equals the texts one by one", "[classifier]") {
  const auto [config, model] = any_classifier();
  const torch::NoGradGuard no_grad;
  const auto ids = torch::randint(vocabulary, {4, 9}, torch::kLong);
  const std::vector<std::int64_t> lengths = {9, 1, 6, 3};
  auto segments = torch::zeros({4, 9}, torch::kLong);
  for (std::int64_t row = 0; row < 4; ++row)
    segments[row]
        .narrow(0, lengths[static_cast<std::size_t>(row)], 9 - lengths[static_cast<std::size_t>(row)])
        .fill_(-1);
  const auto together = model->evaluate(Batch{.ids_bc = ids, .segments_bc = segments});
  for (std::int64_t row = 0; row < 4; ++row) {
    const auto text = ids[row].narrow(0, 0, lengths[static_cast<std::size_t>(row)]).unsqueeze(0);
    CHECK(difference(model->evaluate(Batch{.ids_bc = text})[0], together[row]) < 1e-12);
  }
}

TEST_CASE("attention lets the last token change the class token, so nothing is causal", "[classifier]") {
  TransformerConfig config;
  config.layers = 1;
  config.width = 16;
  config.context = 6;
  Classifier model(config, FirstTokenHeadConfig{}, vocabulary, classes);
  initialise(model, 3);
  const torch::NoGradGuard no_grad;
  auto ids = torch::ones({1, 6}, torch::kLong);
  const auto before = model.evaluate(Batch{.ids_bc = ids});
  ids[0][5] = 2;
  CHECK(difference(model.evaluate(Batch{.ids_bc = ids}), before) > 1e-9);
  CHECK_THROWS_AS(model.evaluate(Batch{.ids_bc = torch::ones({1, 7}, torch::kLong)}), Error);
}

}  // namespace metaformer
