// Classifiers with embeddings of regions, pooling and a bag of n-grams. Their formulas are in tests/python/regions.py.

#include "model/classifier.h"
#include "model/memory_estimate.h"
#include "model/small_models.h"

namespace metaformer::test_region_embedding {

namespace {

constexpr std::int64_t classes = 3;

// A config without blocks: logits from the largest features of regions of 2 and 3 tokens.
TransformerConfig pooled_config() {
  TransformerConfig config;
  config.layers = 0;
  config.width = 10;
  config.context = 12;
  config.positions = NoPositionsConfig{};
  config.embedding.region = SequenceRegionConfig{};
  config.embedding.std = 0.5;
  return config;
}

MaxPooledHeadConfig pooled_head(bool response_norm = false, BagConfig bag = NoBagConfig{}) {
  MaxPooledHeadConfig head;
  head.response_norm = response_norm;
  head.bag = bag;
  return head;
}

const NaiveBayesBagConfig small_bag = {.ngrams = 3, .buckets = 1000, .units = 5};

std::shared_ptr<Classifier> made(const TransformerConfig& config, const HeadConfig& head) {
  auto model = std::make_shared<Classifier>(config, head, vocabulary, classes);
  initialise(*model, 6);
  const torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters())
    if (item.key().ends_with("bias")) item.value().normal_(0, 0.3);
  return model;
}

torch::Tensor some_ids() {
  torch::manual_seed(2);
  return random_ids(3, 9);
}

torch::Tensor watched_logits(Classifier& model, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  StreamWatcher watcher;
  Pass pass{.probe = &watcher};
  const auto logits_lv = model.forward(batch, nullptr, pass);
  REQUIRE_FALSE(watcher.seen.empty());
  return logits_lv;
}

}  // namespace

TEST_CASE("pooling without the vectors of all tokens equals pooling of these vectors", "[regions]") {
  const auto model = made(pooled_config(), pooled_head(true, small_bag));
  Batch batch{.ids_bc = some_ids()};
  if (GENERATE(true, false)) {
    batch.segments_bc =
        torch::tensor({{0, 0, 0, 0, 1, 1, 1, 1, 1}, {0, 0, 0, 1, 1, 1, 2, -1, -1}, {3, 3, 3, 3, 3, 3, 3, -1, -1}});
    batch.label_rows_l2 = torch::tensor({{1, 2}, {0, 0}, {0, 1}, {2, 3}, {1, 0}, {1, 1}});
  }
  CHECK(torch::allclose(watched_logits(*model, batch), model->evaluate(batch), 1e-5, 1e-6));
}

TEST_CASE("without blocks the head reads the embeddings, and there is no final norm", "[regions]") {
  auto config = pooled_config();
  config.embedding.region = GENERATE(RegionConfig{NoRegionConfig{}}, RegionConfig{SequenceRegionConfig{}});
  const auto head = GENERATE(HeadConfig{PerTokenMeanHeadConfig{}}, HeadConfig{MeanPooledHeadConfig{}});
  const auto model = made(config, head);
  StreamWatcher watcher;
  Pass pass{.probe = &watcher};
  model->forward({.ids_bc = some_ids()}, nullptr, pass);
  REQUIRE(watcher.seen.size() == 2);  // the embeddings and the output
  CHECK(torch::equal(watcher.seen[0], watcher.seen[1]));
  for (const auto& item : model->named_parameters()) CHECK(item.key().find("final_norm") == std::string::npos);
}

TEST_CASE("dropout of the head drops features only in training", "[regions]") {
  auto head = pooled_head();
  head.dropout = 0.5;
  const auto model = made(pooled_config(), head);
  const torch::NoGradGuard no_grad;
  model->named_parameters()["head.weight"].fill_(1);
  model->named_parameters()["head.bias"].zero_();
  for (auto& item : model->named_parameters())
    if (item.key().starts_with("transformer")) item.value().fill_(item.key().ends_with("bias") ? 1 : 0);
  StepPasses passes(2, torch::kCPU);
  auto training = passes.pass(0);
  const auto ids_bc = torch::zeros({400, 3}, torch::kLong);
  const auto kept_b = model->forward({.ids_bc = ids_bc}, nullptr, training).select(1, 0) / 2;
  CHECK(torch::equal(kept_b, kept_b.round()));
  CHECK(std::abs(kept_b.mean().item<double>() - 5) < 5 * std::sqrt(2.5 / 400));
  CHECK(torch::equal(model->evaluate({.ids_bc = ids_bc}), torch::full({400, classes}, 10.0)));
}

TEST_CASE("dropout of embeddings also affects pooled ones", "[regions]") {
  auto config = pooled_config();
  (GENERATE(true, false) ? config.dropout : config.embedding.dropout) = 0.5;
  const auto model = made(config, pooled_head());
  const Batch batch{.ids_bc = some_ids()};
  StepPasses passes(2, torch::kCPU);
  auto training = passes.pass(0);
  CHECK_FALSE(torch::allclose(model->forward(batch, nullptr, training), model->evaluate(batch)));
}

TEST_CASE("regions that are pooled directly take less memory than the vectors of all tokens", "[memory]") {
  ExperimentConfig config;
  config.task.emplace<ClassificationConfig>();
  auto& model = transformer(config) = pooled_config();
  model.width = 1000;
  model.context = 1000;
  config.train.batch_size = 1000;
  classification(config).head = pooled_head();
  const auto pooled = estimate_memory(config, {.vocabulary = 100}).activations;
  model.dropout = 0.1;
  const auto whole = estimate_memory(config, {.vocabulary = 100}).activations;
  CHECK(pooled < whole / 20);
  CHECK(static_cast<double>(whole) > 4e9);  // a vector for each of a million tokens
}

TEST_CASE("table rows with gradients are listed, and only these are cleared and scaled", "[regions][buffer]") {
  const auto model = made(pooled_config(), pooled_head(true, small_bag));
  ParameterBuffer buffer(*model);
  const auto add = [&](const torch::Tensor& ids_bc) { model->evaluate({.ids_bc = ids_bc}).square().sum().backward(); };
  add(some_ids());
  for (const auto& view : buffer.views()) {
    INFO(view.name);
    if (view.gradient_rows == nullptr) continue;
    CHECK(view.has_listed_rows());
    auto others = torch::ones({view.count / view.row_width()}, torch::kBool);
    for (const auto row : view.gradient_rows->listed()) others[row] = false;
    CHECK(others.any().item<bool>());
    CHECK((view.parameter.grad().view({-1, view.row_width()}).abs().sum(1).masked_select(others) == 0)
              .all()
              .item<bool>());
  }
  const auto before = buffer.gradients().clone();
  buffer.scale_gradients(torch::tensor(0.5));
  CHECK(torch::equal(buffer.gradients(), before / 2));
  buffer.clear_gradients();
  CHECK(torch::equal(buffer.gradients(), torch::zeros_like(before)));
  add(some_ids());
  CHECK(torch::equal(buffer.gradients(), before));
}

}  // namespace metaformer::test_region_embedding
