// Rows of a batch, and several labelled texts in one row.

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

TEST_CASE("padding and other texts, in rows of their own or in the same, change no class", "[packing]") {
  auto model = any_classifier();
  const torch::NoGradGuard no_grad;
  const auto one = row({3, 1, 4, 1}), two = row({5, 9, 2}), three = row({6, 5, 3, 5, 8});
  const auto alone_lv =
      torch::cat({model.evaluate({.ids_bc = one}), model.evaluate({.ids_bc = two}), model.evaluate({.ids_bc = three})});
  const auto are_as_alone = [&](const torch::Tensor& logits_lv, std::vector<std::int64_t> texts) {
    return torch::allclose(logits_lv, alone_lv.index_select(0, torch::tensor(texts)), 1e-12, 1e-12);
  };
  // Row 0: texts one and two, padding; row 1: text three, a text without a label. Labels in any order.
  const Batch packed{
      .ids_bc = torch::cat({torch::cat({one, two, row({7, 7})}, 1), torch::cat({three, row({1, 2, 7, 7})}, 1)}),
      .segments_bc = torch::cat({row({0, 0, 0, 0, 1, 1, 1, -1, -1}), row({4, 4, 4, 4, 4, 2, 2, -1, -1})}),
      .label_rows_l2 = torch::tensor({{1, 4}, {0, 0}, {0, 1}})};
  const auto packed_lv = model.evaluate(packed);
  REQUIRE(packed_lv.sizes() == torch::IntArrayRef({3, classes}));
  CHECK(are_as_alone(packed_lv, {2, 0, 1}));
  // A text in each row; labels that name every row in order change nothing.
  Batch batch{.ids_bc = torch::cat({torch::cat({one, row({7, 0, 12})}, 1), torch::cat({two, row({7, 1, 5, 5})}, 1)}),
              .segments_bc = torch::cat({row({0, 0, 0, 0, -1, -1, -1}), row({0, 0, 0, -1, -1, -1, -1})})};
  CHECK(are_as_alone(model.evaluate(batch), {0, 1}));
  batch.label_rows_l2 = torch::tensor({{0, 0}, {1, 0}});
  CHECK(are_as_alone(model.evaluate(batch), {0, 1}));
}

TEST_CASE("attention lets the last token change the class token, so nothing is causal", "[classifier]") {
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

TEST_CASE("positions start again in every segment, and padding has none of its own", "[packing]") {
  const auto positions_bc =
      positions_in_segments(torch::cat({row({0, 0, 0, 1, 1, -1, -1}), row({5, 2, 2, 2, 2, 7, -1})}));
  CHECK(torch::equal(positions_bc, torch::cat({row({0, 1, 2, 0, 1, 0, 0}), row({0, 0, 1, 2, 3, 0, 0})})));
}

TEST_CASE("rows of windows have their tokens and targets", "[batch]") {
  const auto ids_bc = torch::arange(12).view({4, 3});
  const auto part = rows_of({.ids_bc = ids_bc, .targets_bc = ids_bc + 1}, 1, 2);
  CHECK(torch::equal(part.ids_bc, ids_bc.slice(0, 1, 3)));
  CHECK(torch::equal(part.targets_bc, part.ids_bc + 1));
  CHECK_FALSE(part.segments_bc.defined());
  CHECK_FALSE(part.labels_l.defined());
}

TEST_CASE("rows of padded texts lose the padding that all of them have, up to a multiple of 8", "[batch]") {
  constexpr std::int64_t length = 20;
  const std::vector<std::int64_t> lengths = {3, 9, 20, 8, 0};
  const auto length_b1 = torch::tensor(lengths).unsqueeze(1);
  const Batch batch{.ids_bc = torch::arange(5 * length).view({5, length}),
                    .segments_bc = torch::where(torch::arange(length) < length_b1, 0, -1),
                    .labels_l = torch::arange(5)};
  const auto [first, count, expected] = GENERATE(table<std::int64_t, std::int64_t, std::int64_t>(
      {{0, 1, 8}, {0, 2, 16}, {2, 1, 20}, {3, 1, 8}, {4, 1, 8}, {0, 4, 20}}));
  const auto part = rows_of(batch, first, count);
  CHECK(torch::equal(part.ids_bc, batch.ids_bc.narrow(0, first, count).narrow(1, 0, expected)));
  CHECK(torch::equal(part.segments_bc, batch.segments_bc.narrow(0, first, count).narrow(1, 0, expected)));
  CHECK(torch::equal(part.labels_l, batch.labels_l.narrow(0, first, count)));
}

TEST_CASE("rows of packed texts keep the labels of their segments", "[batch]") {
  const Batch batch{.ids_bc = torch::arange(24).view({3, 8}),
                    .segments_bc = torch::cat({row({0, 0, 1, 1, 1, 2, -1, -1}), row({0, 0, 0, 0, 0, 0, 0, 0}),
                                               row({4, 4, 4, 4, 5, 5, 5, -1})}),
                    .labels_l = torch::tensor({10, 11, 12, 13, 14}),
                    .label_rows_l2 = torch::tensor({{2, 5}, {0, 0}, {1, 0}, {0, 2}, {2, 4}})};
  const auto part = rows_of(batch, 1, 2);
  CHECK(torch::equal(part.labels_l, torch::tensor({10, 12, 14})));
  CHECK(torch::equal(part.label_rows_l2, torch::tensor({{1, 5}, {0, 0}, {1, 4}})));
  CHECK(part.ids_bc.size(1) == 8);
}

TEST_CASE("rows keep the places of their own targets, and a multiple of 32 of them", "[batch][masking]") {
  const bool is_padded = GENERATE(false, true);
  constexpr std::int64_t rows = 4, length = 20;
  Batch batch{.ids_bc = torch::arange(rows * length).view({rows, length}),
              .targets_bc = torch::full({rows, length}, -1, torch::kLong)};
  // Row 1 has no target; the others have three each, before column 8.
  std::vector<std::int64_t> places;
  for (const std::int64_t row : {0, 2, 3})
    for (const std::int64_t column : {1, 4, 7}) {
      places.push_back(row * length + column);
      batch.targets_bc[row][column] = 100 * row + column;
    }
  batch.places_t = padded_places(torch::tensor(places));
  batch.target_weights_bc = batch.targets_bc.to(torch::kFloat) / 2;
  CHECK(batch.places_t.size(0) == 32);
  if (is_padded) batch.segments_bc = torch::where(torch::arange(length) < 10, 0, -1).expand({rows, length});
  const auto part = rows_of(batch, 1, 2);
  CHECK(part.ids_bc.size(1) == (is_padded ? 16 : length));
  const auto targets_t = wanted_targets_t(part);
  CHECK(targets_t.size(0) == 32);
  CHECK(targets_t.narrow(0, 0, 3).equal(torch::tensor({201, 204, 207})));
  CHECK(targets_t.narrow(0, 3, 29).eq(-1).all().item<bool>());
  CHECK(wanted_weights_t(part).narrow(0, 0, 3).equal(torch::tensor({100.5F, 102.F, 103.5F})));
  const auto rows_td = wanted_rows(part.ids_bc.unsqueeze(2), part);
  CHECK(rows_td.narrow(0, 0, 3).flatten().equal(torch::tensor({41, 44, 47})));
  CHECK(rows_of(batch, 1, 1).places_t.numel() == 0);
}

}  // namespace metaformer::test_batch
