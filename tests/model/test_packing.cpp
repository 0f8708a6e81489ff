// Several labelled texts in one row.

#include "model/classifier.h"
#include "support/any_mixer.h"

namespace metaformer {

namespace {

constexpr std::int64_t vocabulary = 13, classes = 3;

torch::Tensor row(std::vector<std::int64_t> values) { return torch::tensor(values).unsqueeze(0); }

Classifier any_classifier() {
  TransformerConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.context = 16;
  config.mixer = any_mixer();
  config.positions = GENERATE(PositionsConfig{LearnedPositionsConfig{}}, PositionsConfig{NoPositionsConfig{}});
  if (GENERATE(true, false))
    config.embedding.ngrams = {.order = 3, .buckets = 20};
  else
    config.embedding.region = SequenceRegionConfig{.shortest = 2, .longest = 3};
  MaxPooledHeadConfig max_pooled;
  max_pooled.bag = NaiveBayesBagConfig{.ngrams = 3, .buckets = 50, .units = 4};
  const auto head = GENERATE_COPY(HeadConfig{PerTokenMeanHeadConfig{}}, HeadConfig{MeanPooledHeadConfig{}},
                                  HeadConfig{FirstTokenHeadConfig{}}, HeadConfig{max_pooled});
  Classifier model(config, head, vocabulary, classes);
  model.to(torch::kDouble);
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.normal_(0, 0.4);
  return model;
}

}  // namespace

TEST_CASE("texts packed into one row have the logits of texts in rows of their own", "[packing]") {
  auto model = any_classifier();
  const torch::NoGradGuard no_grad;
  const auto one = row({3, 1, 4, 1}), two = row({5, 9, 2}), three = row({6, 5, 3, 5, 8});
  const auto apart_lv =
      torch::cat({model.evaluate({.ids_bc = one}), model.evaluate({.ids_bc = two}), model.evaluate({.ids_bc = three})});
  // Row 0: texts one and two, padding; row 1: text three, a text without a label. Labels in any order.
  const Batch packed{
      .ids_bc = torch::cat({torch::cat({one, two, row({7, 7})}, 1), torch::cat({three, row({1, 2, 7, 7})}, 1)}),
      .segments_bc = torch::cat({row({0, 0, 0, 0, 1, 1, 1, -1, -1}), row({4, 4, 4, 4, 4, 2, 2, -1, -1})}),
      .label_rows_l2 = torch::tensor({{1, 4}, {0, 0}, {0, 1}})};
  const auto packed_lv = model.evaluate(packed);
  REQUIRE(packed_lv.sizes() == torch::IntArrayRef({3, classes}));
  CHECK(torch::allclose(packed_lv[0], apart_lv[2], 1e-12, 1e-12));
  CHECK(torch::allclose(packed_lv[1], apart_lv[0], 1e-12, 1e-12));
  CHECK(torch::allclose(packed_lv[2], apart_lv[1], 1e-12, 1e-12));
}

TEST_CASE("labels that name every row in order change nothing", "[packing]") {
  auto model = any_classifier();
  const torch::NoGradGuard no_grad;
  Batch batch{.ids_bc = torch::cat({row({3, 1, 4, 1}), row({5, 9, 2, 7})}),
              .segments_bc = torch::cat({row({0, 0, 0, 0}), row({0, 0, 0, -1})})};
  const auto plain_bv = model.evaluate(batch);
  batch.label_rows_l2 = torch::tensor({{0, 0}, {1, 0}});
  CHECK(torch::allclose(model.evaluate(batch), plain_bv, 1e-12, 1e-12));
}

TEST_CASE("positions start again in every segment, and padding has none of its own", "[packing]") {
  const auto positions_bc =
      positions_in_segments(torch::cat({row({0, 0, 0, 1, 1, -1, -1}), row({5, 2, 2, 2, 2, 7, -1})}));
  CHECK(torch::equal(positions_bc, torch::cat({row({0, 1, 2, 0, 1, 0, 0}), row({0, 0, 1, 2, 3, 0, 0})})));
}

}  // namespace metaformer
