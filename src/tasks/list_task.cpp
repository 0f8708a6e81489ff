// Sorting and copying lists of numbers: a causal model continues a list with its sorted copy (minGPT), or with itself
// (Reformer).

#include <fmt/format.h>

#include "data/list_dataset.h"
#include "tasks/batches.h"
#include "tasks/make_task.h"
#include "text/symbol_tokenizers.h"

namespace metaformer {

namespace {

class ListStream : public RowStream {
 public:
  ListStream(const ExperimentConfig& config, std::shared_ptr<const ListDataset> dataset)
      : RowStream(config.train, list_task(config.task)->row_length()), dataset_(std::move(dataset)) {}

  double tokens_per_step() const override { return static_cast<double>(rows_per_step() * row_length()); }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    return to_batch(dataset_->random_rows(seed(), step, micro * rows(), rows()), device);
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    return to_batch(dataset_->random_rows_of(split, seed(), index, rows()), device);
  }

 private:
  std::int64_t count(Split split) const override { return dataset_->list_count(split); }
  Batch batch_of(Split split, std::int64_t first, std::int64_t rows, torch::Device device) const override {
    return to_batch(dataset_->rows(split, first, rows), device);
  }
  std::int64_t tokens_of(Split, std::int64_t, std::int64_t rows) const override { return rows * row_length(); }

  std::shared_ptr<const ListDataset> dataset_;
};

}  // namespace

Task make_list_task(const ExperimentConfig& config) {
  const auto lists = *list_task(config.task);
  const auto dataset = std::make_shared<const ListDataset>(lists);
  const bool is_exhaustive = dataset->is_exhaustive();
  const auto train_lists = dataset->list_count(Split::train), held_out = dataset->list_count(Split::validation);
  const auto report = [](const TokenScores& scores, Split) -> Scores {
    return {{"loss", scores.loss},
            {"accuracy", scores.accuracy},
            {"exact_match", scores.exact_match},
            {"lists", scores.rows}};
  };
  // Of long lists hardly any is right as a whole while a model learns.
  const std::string headline = lists.copies ? "accuracy" : "exact_match";
  return {.codec = std::make_shared<const Codec>(
              Codec{.tokenizer = std::make_unique<NumberTokenizer>(lists.vocabulary()), .labels = {}}),
          .description = {{"generator", lists.copies ? "copy" : "sort"},
                          {"exhaustive", is_exhaustive},
                          {"train_lists", train_lists},
                          {"validation_lists", held_out}},
          .summary = fmt::format(
              "lists of {} numbers from {} ... {} ({}; {} held out)", lists.length, lists.first_number(),
              lists.vocabulary() - 1,
              is_exhaustive ? fmt::format("{} to train on", train_lists) : "drawn at random, evaluated on a sample",
              held_out),
          .batches = std::make_shared<ListStream>(config, dataset),
          .objective = token_objective(),
          .measures = std::make_shared<TokenMeasures>(report, std::vector{headline}, /*by_row=*/true)};
}

}  // namespace metaformer
