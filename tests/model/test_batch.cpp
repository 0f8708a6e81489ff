// Classification of texts in rows of their own and packed in a row.

#include "model/classifier.h"
#include "model/small_models.h"
#include "support/any_mixer.h"

namespace metaformer::test_batch {

namespace {

constexpr std::int64_t classes = 3;

Classifier any_classifier() {
  auto config = small_transformer(any_mixer(), 8, 16);
  config.positions = GENERATE(PositionsConfig{LearnedPositionsConfig{}}, PositionsConfig{NoPositionsConfig{}});
  if (GENERATE(true, false))
    config.embedding.ngrams = {.order = 3, .buckets = 20};
  else
    config.embedding.region = SequenceRegionConfig{.shortest = 2, .longest = 3};
  MaxPooledHeadConfig max_pooled, with_bag;
  with_bag.response_norm = true;
  with_bag.bag = NaiveBayesBagConfig{.ngrams = 3, .buckets = 50, .units = 4};
  const auto head = GENERATE_COPY(HeadConfig{PerTokenMeanHeadConfig{}}, HeadConfig{MeanPooledHeadConfig{}},
                                  HeadConfig{FirstTokenHeadConfig{}}, HeadConfig{max_pooled}, HeadConfig{with_bag});
  return randomised(Classifier(config, head, vocabulary, classes), 0.4);
}

}  // namespace

TEST_CASE("padding and other texts, in the same row or in others, do not change a text's logits", "[packing]") {
  auto model = any_classifier();
  const torch::NoGradGuard no_grad;
  const auto one = row({3, 1, 4, 1}), two = row({5, 9, 2}), three = row({6, 5, 3, 5, 8});
  const auto alone_lv =
      torch::cat({model.evaluate({.ids_bc = one}), model.evaluate({.ids_bc = two}), model.evaluate({.ids_bc = three})});
  const auto are_as_alone = [&](const torch::Tensor& logits_lv, std::vector<std::int64_t> texts) {
    return torch::allclose(logits_lv, alone_lv.index_select(0, torch::tensor(texts)), 1e-12, 1e-12);
  };
  // Row 0: texts one and two, then padding; row 1: text three, then a text without a label. Labels are in any order.
  const Batch packed{
      .ids_bc = torch::cat({torch::cat({one, two, row({7, 7})}, 1), torch::cat({three, row({1, 2, 7, 7})}, 1)}),
      .segments_bc = torch::cat({row({0, 0, 0, 0, 1, 1, 1, -1, -1}), row({4, 4, 4, 4, 4, 2, 2, -1, -1})}),
      .label_rows_l2 = torch::tensor({{1, 4}, {0, 0}, {0, 1}})};
  const auto packed_lv = model.evaluate(packed);
  REQUIRE(packed_lv.sizes() == torch::IntArrayRef({3, classes}));
  CHECK(are_as_alone(packed_lv, {2, 0, 1}));
  // One text in each row; labels for every row in order have no effect.
  Batch batch{.ids_bc = torch::cat({torch::cat({one, row({7, 0, 12})}, 1), torch::cat({two, row({7, 1, 5, 5})}, 1)}),
              .segments_bc = torch::cat({row({0, 0, 0, 0, -1, -1, -1}), row({0, 0, 0, -1, -1, -1, -1})})};
  CHECK(are_as_alone(model.evaluate(batch), {0, 1}));
  batch.label_rows_l2 = torch::tensor({{0, 0}, {1, 0}});
  CHECK(are_as_alone(model.evaluate(batch), {0, 1}));
}

TEST_CASE("the last token affects the class token, so a classifier is not causal", "[classifier]") {
  auto config = small_transformer(ScaledDotProductOptions{}, 16, 6);
  config.layers = 1;
  auto model = started(Classifier(config, FirstTokenHeadConfig{}, vocabulary, classes), 3);
  const torch::NoGradGuard no_grad;
  auto ids = torch::ones({1, 6}, torch::kLong);
  const auto before = model.evaluate({.ids_bc = ids});
  ids[0][5] = 2;
  CHECK((model.evaluate({.ids_bc = ids}) - before).abs().max().item<double>() > 1e-9);
  CHECK_THROWS_AS(model.evaluate({.ids_bc = torch::ones({1, 7}, torch::kLong)}), Error);
}

TEST_CASE("positions start again in every segment, and padding has position 0", "[packing]") {
  const auto positions_bc =
      positions_in_segments(torch::cat({row({0, 0, 0, 1, 1, -1, -1}), row({5, 2, 2, 2, 2, 7, -1})}));
  CHECK(torch::equal(positions_bc, torch::cat({row({0, 1, 2, 0, 1, 0, 0}), row({0, 0, 1, 2, 3, 0, 0})})));
}

}  // namespace metaformer::test_batch
