// Parts of batches.

#include "support/torch_catch.h"
#include "tasks/batches.h"

namespace metaformer::test_batches {

TEST_CASE("rows of windows have their tokens and targets", "[batch]") {
  const auto ids_bc = torch::arange(12).view({4, 3});
  const auto part = rows_of({.ids_bc = ids_bc, .targets_bc = ids_bc + 1}, 1, 2);
  CHECK(torch::equal(part.ids_bc, ids_bc.slice(0, 1, 3)));
  CHECK(torch::equal(part.targets_bc, part.ids_bc + 1));
  CHECK_FALSE(part.segments_bc.defined());
  CHECK_FALSE(part.labels_l.defined());
}

TEST_CASE("rows of padded texts lose their common padding, up to a multiple of 8 tokens", "[batch]") {
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
  const Batch batch{
      .ids_bc = torch::arange(24).view({3, 8}),
      .segments_bc = torch::tensor({{0, 0, 1, 1, 1, 2, -1, -1}, {0, 0, 0, 0, 0, 0, 0, 0}, {4, 4, 4, 4, 5, 5, 5, -1}}),
      .labels_l = torch::tensor({10, 11, 12, 13, 14}),
      .label_rows_l2 = torch::tensor({{2, 5}, {0, 0}, {1, 0}, {0, 2}, {2, 4}})};
  const auto part = rows_of(batch, 1, 2);
  CHECK(torch::equal(part.labels_l, torch::tensor({10, 12, 14})));
  CHECK(torch::equal(part.label_rows_l2, torch::tensor({{1, 5}, {0, 0}, {1, 4}})));
  CHECK(part.ids_bc.size(1) == 8);
}

TEST_CASE("rows keep the places of their targets, padded to a multiple of 32", "[masking]") {
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
  places.resize(32, -1);
  batch.places_t = torch::tensor(places);
  batch.target_weights_bc = batch.targets_bc.to(torch::kFloat) / 2;
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

TEST_CASE("a part of a batch of pairs loses the padding of its sources", "[sequence_to_sequence]") {
  const auto ids_bs = torch::arange(32).view({2, 16});
  const auto length_b1 = torch::tensor({11, 4}).unsqueeze(1);
  const Batch batch{.ids_bc = ids_bs,
                    .targets_bc = ids_bs,
                    .source_ids_bs = ids_bs,
                    .source_segments_bs = torch::where(torch::arange(16) < length_b1, 0, -1)};
  const auto part = rows_of(batch, 1, 1);
  CHECK(part.source_ids_bs.equal(ids_bs.narrow(0, 1, 1).narrow(1, 0, 8)));
  CHECK(part.source_segments_bs.equal(batch.source_segments_bs.narrow(0, 1, 1).narrow(1, 0, 8)));
  CHECK(part.ids_bc.size(1) == 16);
}

}  // namespace metaformer::test_batches
