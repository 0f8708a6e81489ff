// Batches on the device.

#include "data/text_dataset.h"
#include "support/workplace.h"
#include "tasks/batches.h"

namespace metaformer {

TEST_CASE("a padded batch grows to a multiple of 8 tokens, at most to the context, and an even one does not",
          "[batch]") {
  const auto [length, context, expected] =
      GENERATE(table<std::int64_t, std::int64_t, std::int64_t>({{5, 20, 8}, {8, 20, 8}, {9, 20, 16}, {17, 20, 20}}));
  LabelledRows rows{.rows = 2, .length = length, .labels = {1, 0}};
  rows.ids.assign(2 * length, 7);
  rows.segments.assign(2 * length, 0);
  rows.segments.back() = -1;
  const auto even = LabelledRows{.rows = 2, .length = length, .ids = rows.ids, .labels = rows.labels};
  CHECK(to_batch(even, torch::kCPU, context).ids_bc.size(1) == length);
  const auto batch = to_batch(rows, torch::kCPU, context);
  CHECK(batch.ids_bc.sizes() == torch::IntArrayRef({2, expected}));
  CHECK((batch.ids_bc.narrow(1, 0, length) == 7).all().item<bool>());
  CHECK(batch.segments_bc.sizes() == batch.ids_bc.sizes());
  CHECK((batch.segments_bc >= 0).sum(1).equal(torch::tensor({length, length - 1})));
  CHECK(batch.labels_l.equal(torch::tensor({1L, 0L})));
}

TEST_CASE("windows cut on the device are those of the dataset", "[batches]") {
  const auto tokens = torch::arange(100, torch::kInt) * 3;
  const auto batch = cut_windows(tokens, {0, 17, 89}, 10);
  REQUIRE(batch.ids_bc.sizes() == torch::IntArrayRef({3, 10}));
  CHECK(batch.ids_bc.scalar_type() == torch::kLong);
  CHECK(batch.weight.item<double>() == 30);
  for (const auto& [row, start] : std::vector<std::pair<int, int>>{{0, 0}, {1, 17}, {2, 89}}) {
    CHECK(torch::equal(batch.ids_bc[row], (torch::arange(10) + start) * 3));
    CHECK(torch::equal(batch.targets_bc[row], (torch::arange(10) + start + 1) * 3));
  }
}

TEST_CASE("a language model's batches are the dataset's windows", "[batches]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  const auto& config = parts.experiment.config;
  const auto corpus = load_corpus(language_model(config).data, true);
  std::shared_ptr<const Tokenizer> tokenizer;
  const TextDataset dataset(corpus, language_model(config).data, context_of(config.model), tokenizer);
  const auto expected = to_batch(dataset.random_windows(Split::train, static_cast<std::uint64_t>(config.train.seed),
                                                        RandomPurpose::batches, 4, 6, 6),
                                 torch::kCPU);
  const auto given = parts.task.batches->training_batch(4, 1, torch::kCPU);
  CHECK(torch::equal(given.ids_bc, expected.ids_bc));
  CHECK(torch::equal(given.targets_bc, expected.targets_bc));
  CHECK(torch::equal(given.weight, expected.weight));
}

TEST_CASE("the beginning of a batch has the first tokens of its first rows, and the weight of their targets",
          "[batches]") {
  Batch batch;
  batch.ids_bc = torch::arange(15).view({3, 5});
  batch.targets_bc = torch::tensor({{1, 2, 3, 4, 5}, {-1, 7, -1, 9, 10}, {11, 12, 13, 14, 15}}, torch::kLong);
  batch.weight = torch::tensor(13.0, torch::kDouble);
  const auto part = beginning_of(batch, 2, 3);
  CHECK(part.ids_bc.equal(torch::tensor({{0, 1, 2}, {5, 6, 7}}, torch::kLong)));
  CHECK(part.weight.item<double>() == 4);
  CHECK(beginning_of(batch, 3).ids_bc.equal(batch.ids_bc));
  batch.places_t = torch::tensor({1, 4, 6, 8, 12, -1}, torch::kLong);
  const auto places = beginning_of(batch, 2, 3).places_t;
  CHECK(places.masked_select(places >= 0).equal(torch::tensor({1, 4}, torch::kLong)));  // of rows of three tokens
  CHECK(beginning_of(batch, 2, 3).weight.item<double>() == 2);
}

}  // namespace metaformer
