// The linear classifier as a predictor.

#include "infer/linear_classifier.h"
#include "support/torch_catch.h"
#include "text/ngram_features.h"

namespace metaformer {

namespace {

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

// The sum over the features of one text.
torch::Tensor by_hand(const std::vector<std::int32_t>& ids) {
  return torch::tensor(random_weights().logits(ngram_features(ids, config)), torch::kDouble);
}

Batch batch_of(const torch::Tensor& ids_bc, const torch::Tensor& segments_bc = {}) {
  return {.ids_bc = ids_bc, .segments_bc = segments_bc};
}

}  // namespace

TEST_CASE("a linear model adds up the weights of a text's n-grams", "[linear]") {
  const LinearModel model(config, random_weights());
  const auto logits_bv = model.logits(batch_of(torch::tensor({{1, 2, 3, 4}, {4, 3, 2, 1}}))).to(torch::kDouble);
  REQUIRE(logits_bv.sizes() == at::IntArrayRef({2, classes}));
  CHECK(torch::allclose(logits_bv[0], by_hand({1, 2, 3, 4}), 1e-5, 1e-5));
  CHECK(torch::allclose(logits_bv[1], by_hand({4, 3, 2, 1}), 1e-5, 1e-5));
  CHECK_FALSE(torch::allclose(logits_bv[0], logits_bv[1], 1e-2, 1e-2));
}

TEST_CASE("what stands twice counts once", "[linear]") {
  const LinearModel model(config, random_weights());
  const auto three_bv = model.logits(batch_of(torch::tensor({{7, 7, 7}})));
  const auto five_bv = model.logits(batch_of(torch::tensor({{7, 7, 7, 7, 7}})));
  CHECK(torch::equal(three_bv, five_bv));
}

TEST_CASE("padding and neighbours in a batch change no bit of a text's logits", "[linear]") {
  const LinearModel model(config, random_weights());
  const auto ids_bc = torch::tensor({{1, 2, 3, 0, 0}, {5, 6, 7, 8, 9}, {0, 0, 0, 0, 0}});
  const auto segments_bc = torch::tensor({{0, 0, 0, -1, -1}, {0, 0, 0, 0, 0}, {-1, -1, -1, -1, -1}});
  const auto together_bv = model.logits(batch_of(ids_bc, segments_bc));
  CHECK(torch::equal(together_bv[0], model.logits(batch_of(torch::tensor({{1, 2, 3}})))[0]));
  CHECK(torch::equal(together_bv[1], model.logits(batch_of(torch::tensor({{5, 6, 7, 8, 9}})))[0]));
  CHECK(torch::equal(together_bv[2], model.tensors()[1].second));  // no token at all: the bias
  CHECK_FALSE(torch::equal(together_bv[0], model.logits(batch_of(torch::tensor({{1, 2, 3, 0, 0}})))[0]));
}

TEST_CASE("a linear model has a weight per bucket and class, and a bias per class", "[linear]") {
  CHECK(LinearModel(config, random_weights()).parameters() == (4096 + 1) * classes);
}

TEST_CASE("a linear model comes back from a checkpoint of its shape and of no other", "[linear]") {
  const LinearModel model(config, random_weights());
  Checkpoint checkpoint;
  checkpoint.folder = "run/step-1";
  checkpoint.model = model.tensors();
  const auto batch = batch_of(torch::tensor({{1, 2, 3, 4}}));
  CHECK(torch::equal(LinearModel(config, classes, checkpoint).logits(batch), model.logits(batch)));
  CHECK_THROWS_WITH(LinearModel(config, classes + 1, checkpoint), ContainsSubstring("'weight' has shape [4096, 3]"));
}

}  // namespace metaformer
