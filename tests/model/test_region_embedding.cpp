// Classifiers that read regions of tokens: embeddings, pooling, the bag of n-grams.

#include <set>

#include "config/loader.h"
#include "model/classifier.h"
#include "model/embedding.h"
#include "model/make_model.h"
#include "model/memory_estimate.h"
#include "model/parameters.h"
#include "model/small_models.h"

namespace metaformer {

namespace {

constexpr std::int64_t vocabulary = 11, classes = 3;

// Without blocks: logits of the greatest features of regions of 2 and 3 tokens.
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
  return torch::randint(vocabulary, {3, 9}, torch::kLong);
}

// [b, c, d] of one size of regions in float64.
torch::Tensor convolved(const torch::Tensor& ids_bc, std::int64_t places,
                        torch::OrderedDict<std::string, torch::Tensor> weights) {
  const auto prefix = "transformer.region_embedding." + std::to_string(places);
  const auto table_pvd = weights[prefix + ".weight"].to(torch::kDouble).view({places, vocabulary, -1});
  const auto one_hot_bvc = torch::one_hot(ids_bc, vocabulary).to(torch::kDouble).transpose(1, 2);
  return torch::conv1d(torch::constant_pad_nd(one_hot_bvc, {places - 1, 0}), table_pvd.flip(0).permute({2, 1, 0}),
                       weights[prefix + ".bias"].to(torch::kDouble))
      .relu()
      .transpose(1, 2);
}

torch::Tensor response_normalised(const torch::Tensor& x_ld) { return x_ld / (1 + x_ld.square().sum(1, true)).sqrt(); }

torch::Tensor watched_logits(Classifier& model, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  StreamWatcher watcher;
  Pass pass{.probe = &watcher};
  const auto logits_lv = model.forward(batch, nullptr, pass);
  REQUIRE_FALSE(watcher.seen.empty());
  return logits_lv;
}

}  // namespace

TEST_CASE("logits of pooled regions are those of a convolution, a maximum and a linear layer", "[regions]") {
  const bool normalises = GENERATE(true, false);
  const auto model = made(pooled_config(), pooled_head(normalises));
  const auto ids_bc = some_ids();
  const auto weights = model->named_parameters();
  std::vector<torch::Tensor> features;
  for (const std::int64_t places : {2, 3}) {
    const auto greatest_bd = std::get<0>(convolved(ids_bc, places, weights).max(1));
    REQUIRE(greatest_bd.size(1) == 5);
    features.push_back(normalises ? response_normalised(greatest_bd) : greatest_bd);
  }
  const auto expected = torch::linear(torch::cat(features, 1), weights["head.weight"].to(torch::kDouble),
                                      weights["head.bias"].to(torch::kDouble));
  const auto logits = model->evaluate({.ids_bc = ids_bc});
  CHECK(torch::allclose(logits.to(torch::kDouble), expected, 1e-5, 1e-6));
  model->to(torch::kDouble);
  CHECK(torch::allclose(model->evaluate({.ids_bc = ids_bc}), expected, 1e-12, 1e-12));
}

TEST_CASE("pooling without the vectors of all tokens is pooling of them", "[regions]") {
  const auto model = made(pooled_config(), pooled_head(true, small_bag));
  Batch batch{.ids_bc = some_ids()};
  if (GENERATE(true, false)) {
    batch.segments_bc =
        torch::tensor({{0, 0, 0, 0, 1, 1, 1, 1, 1}, {0, 0, 0, 1, 1, 1, 2, -1, -1}, {3, 3, 3, 3, 3, 3, 3, -1, -1}});
    batch.label_rows_l2 = torch::tensor({{1, 2}, {0, 0}, {0, 1}, {2, 3}, {1, 0}, {1, 1}});
  }
  CHECK(torch::allclose(watched_logits(*model, batch), model->evaluate(batch), 1e-5, 1e-6));
}

TEST_CASE("a token's vector is that of the region that ends at it, with blocks behind, too", "[regions]") {
  auto config = pooled_config();
  config.layers = 1;
  config.heads = 2;
  config.positions = GENERATE(PositionsConfig{NoPositionsConfig{}}, PositionsConfig{LearnedPositionsConfig{}});
  const auto model = made(config, MeanPooledHeadConfig{});
  const auto ids_bc = some_ids();
  StreamWatcher watcher;
  Pass pass{.probe = &watcher};
  model->forward({.ids_bc = ids_bc}, nullptr, pass);
  const auto weights = model->named_parameters();
  auto expected = torch::cat({convolved(ids_bc, 2, weights), convolved(ids_bc, 3, weights)}, 2);
  if (is<LearnedPositionsConfig>(config.positions))
    expected = expected + weights["transformer.position_embedding.weight"].narrow(0, 0, 9);
  CHECK(torch::allclose(watcher.seen.front().to(torch::kDouble), expected, 1e-5, 1e-6));
}

TEST_CASE("without blocks a head reads the embeddings, and there is no final norm", "[regions]") {
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

TEST_CASE("dropout of the head leaves features out in training only", "[regions]") {
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

TEST_CASE("dropout of embeddings counts where they are pooled, too", "[regions]") {
  auto config = pooled_config();
  (GENERATE(true, false) ? config.dropout : config.embedding.dropout) = 0.5;
  const auto model = made(config, pooled_head());
  const Batch batch{.ids_bc = some_ids()};
  StepPasses passes(2, torch::kCPU);
  auto training = passes.pass(0);
  CHECK_FALSE(torch::allclose(model->forward(batch, nullptr, training), model->evaluate(batch)));
}

TEST_CASE("a bag has each n-gram of a text once, scaled, in any order", "[bag]") {
  const auto model = made(pooled_config(), pooled_head(false, small_bag));
  const auto scale_g = torch::rand({small_bag.buckets});
  model->bag()->set_scale(scale_g);
  const Batch batch{.ids_bc = torch::tensor({{3, 1, 4, 1, 4, 9}, {5, 5, 5, 5, 0, 0}}),
                    .segments_bc = torch::tensor({{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, -1, -1}})};
  const auto weights = model->named_parameters();
  const auto weight_gu = weights["bag.weight"].to(torch::kDouble), bias_u = weights["bag.bias"].to(torch::kDouble);
  const auto ours_lu = model->bag()->forward(batch);
  const std::vector<std::int64_t> lengths = {6, 4};
  for (std::int64_t text = 0; text < 2; ++text) {
    std::set<std::int64_t> buckets;
    const auto ids_1c = batch.ids_bc.narrow(0, text, 1).narrow(1, 0, lengths[static_cast<std::size_t>(text)]);
    for (std::int64_t n = 1; n <= 3; ++n) {
      const auto found = ngram_buckets(ids_1c, n, small_bag.buckets)[0];
      for (std::int64_t i = 0; i < found.size(0); ++i) buckets.insert(found[i].item<std::int64_t>());
    }
    auto sum_u = bias_u.clone();
    for (const auto bucket : buckets) sum_u += scale_g[bucket].to(torch::kDouble) * weight_gu[bucket];
    CHECK(torch::allclose(ours_lu[text].to(torch::kDouble), sum_u.relu(), 1e-5, 1e-6));
  }
}

TEST_CASE("gradients of a whole model equal finite differences in float64", "[regions][bag]") {
  const auto model = made(pooled_config(), pooled_head(true, small_bag));
  model->to(torch::kDouble);
  const Batch batch{.ids_bc = some_ids()};
  const auto weights_lv = torch::randn({3, classes}, torch::kDouble);
  const auto loss = [&] { return (model->evaluate(batch) * weights_lv).sum(); };
  loss().backward();
  for (auto& item : model->named_parameters()) {
    INFO(item.key());
    auto value = item.value().detach();
    const auto gradient = item.value().grad().to_dense(), before = value.clone(), along = torch::randn_like(value);
    const auto at = [&](double step) {
      const torch::NoGradGuard no_grad;
      value.copy_(before + step * along);
      const double result = loss().item<double>();
      value.copy_(before);
      return result;
    };
    const double h = 1e-7, slope = (at(h) - at(-h)) / (2 * h);
    CHECK((gradient * along).sum().item<double>() == Approx(slope).epsilon(1e-6).margin(1e-8));
  }
}

TEST_CASE("regions that are pooled at once take less memory than vectors of all tokens", "[memory]") {
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

TEST_CASE("the rows of tables that a batch gives gradients are listed, and only these are cleared and scaled",
          "[regions][buffer]") {
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

}  // namespace metaformer
