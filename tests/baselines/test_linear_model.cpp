// The linear classifier as a model.

#include "model/linear_model.h"
#include "model/make_model.h"
#include "support/torch_catch.h"
#include "text/ngram_features.h"

namespace metaformer {

namespace {

constexpr std::int64_t classes = 3;

ExperimentConfig linear_experiment() {
  ExperimentConfig config;
  config.task = TaskKind::classification;
  config.model.kind = ModelKind::linear;
  config.model.linear = {.ngrams = 3, .buckets = 1 << 12};
  return config;
}

std::shared_ptr<SequenceModel> random_model() {
  auto model = make_model(linear_experiment(), {.vocabulary = 10, .classes = classes});
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.normal_();
  return model;
}

// The sum over the features of one text, written out.
torch::Tensor by_hand(SequenceModel& model, const std::vector<std::int32_t>& ids) {
  const auto parameters = model.named_parameters();
  auto logits_v = parameters["bias"].detach().to(torch::kDouble);
  for (const auto feature : ngram_features(ids, model.config().linear))
    logits_v = logits_v + parameters["weight"].detach()[static_cast<std::int64_t>(feature)].to(torch::kDouble);
  return logits_v;
}

Batch batch_of(const torch::Tensor& ids_bc, const torch::Tensor& segments_bc = {}) {
  Batch batch;
  batch.ids_bc = ids_bc;
  batch.segments_bc = segments_bc;
  return batch;
}

}  // namespace

TEST_CASE("a linear model adds up the weights of a text's n-grams", "[linear]") {
  const auto model = random_model();
  const auto logits_bv = model->forward(batch_of(torch::tensor({{1, 2, 3, 4}, {4, 3, 2, 1}}))).to(torch::kDouble);
  REQUIRE(logits_bv.sizes() == at::IntArrayRef({2, classes}));
  CHECK(torch::allclose(logits_bv[0], by_hand(*model, {1, 2, 3, 4}), 1e-5, 1e-5));
  CHECK(torch::allclose(logits_bv[1], by_hand(*model, {4, 3, 2, 1}), 1e-5, 1e-5));
  CHECK_FALSE(torch::allclose(logits_bv[0], logits_bv[1], 1e-2, 1e-2));
}

TEST_CASE("what stands twice counts once", "[linear]") {
  const auto model = random_model();
  const auto three_b = model->forward(batch_of(torch::tensor({{7, 7, 7}})));
  const auto five_b = model->forward(batch_of(torch::tensor({{7, 7, 7, 7, 7}})));
  CHECK(torch::equal(three_b, five_b));
}

TEST_CASE("padding and neighbours in a batch change no bit of a text's logits", "[linear]") {
  const auto model = random_model();
  const auto ids_bc = torch::tensor({{1, 2, 3, 0, 0}, {5, 6, 7, 8, 9}, {0, 0, 0, 0, 0}});
  const auto segments_bc = torch::tensor({{0, 0, 0, -1, -1}, {0, 0, 0, 0, 0}, {-1, -1, -1, -1, -1}});
  const auto together_bv = model->forward(batch_of(ids_bc, segments_bc));
  CHECK(torch::equal(together_bv[0], model->forward(batch_of(torch::tensor({{1, 2, 3}})))[0]));
  CHECK(torch::equal(together_bv[1], model->forward(batch_of(torch::tensor({{5, 6, 7, 8, 9}})))[0]));
  CHECK(torch::equal(together_bv[2], model->named_parameters()["bias"]));  // no token at all
  CHECK_FALSE(torch::equal(together_bv[0], model->forward(batch_of(torch::tensor({{1, 2, 3, 0, 0}})))[0]));
}

TEST_CASE("a linear model has a weight per bucket and class, and a bias per class", "[linear]") {
  CHECK(count_parameters(*random_model()).all == (4096 + 1) * classes);
}

}  // namespace metaformer
