#include "tasks/make_task.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/random.h"
#include "data/list_dataset.h"
#include "data/pairs.h"
#include "data/recall.h"
#include "tasks/batches.h"
#include "tasks/classification_task.h"
#include "tasks/text_tasks.h"
#include "text/symbol_tokenizers.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

// Randomly drawn rows of one length.
class DrawnRows : public RowStream {
 public:
  using RowStream::RowStream;
  double tokens_per_step() const override { return static_cast<double>(rows_per_step() * row_length()); }

 private:
  std::int64_t tokens_of(Split, std::int64_t, std::int64_t rows) const override { return rows * row_length(); }
};

// Sorting and copying lists of numbers: a causal model continues a list with its sorted copy (minGPT), or with itself
// (Reformer).
class ListStream : public DrawnRows {
 public:
  ListStream(const ExperimentConfig& config, std::shared_ptr<const ListDataset> dataset)
      : DrawnRows(config.train, list_task(config.task)->row_length()), dataset_(std::move(dataset)) {}

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

  std::shared_ptr<const ListDataset> dataset_;
};

// Rows that test a model's memory.
class RecallStream : public DrawnRows {
 public:
  RecallStream(const ExperimentConfig& config, std::shared_ptr<const RecallDataset> dataset)
      : DrawnRows(config.train, dataset->row_length()),
        examples_(recall_rows(config.task)->examples),
        dataset_(std::move(dataset)) {}

  double epochs_per_step() const override {
    return examples_ == 0 ? 0 : static_cast<double>(rows_per_step()) / static_cast<double>(examples_);
  }
  bool has(Split) const override { return true; }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    return to_batch(dataset_->training_rows(seed(), step * rows_per_step() + micro * rows(), rows()), device);
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    return to_batch(dataset_->random_rows(split, seed(), index, rows()), device);
  }

 private:
  std::int64_t count(Split) const override { return dataset_->count(); }
  Batch batch_of(Split split, std::int64_t first, std::int64_t rows, torch::Device device) const override {
    return to_batch(dataset_->rows(split, seed(), first, rows), device);
  }

  std::int64_t examples_;
  std::shared_ptr<const RecallDataset> dataset_;
};

// Making one sequence from another: translation, summaries, copying and reversing.
class PairStream : public RowStream {
 public:
  PairStream(const ExperimentConfig& config, std::shared_ptr<const PairDataset> pairs)
      : RowStream(config.train, context_of(config.model)),
        accumulate_(static_cast<double>(config.train.accumulate)),
        mark_(static_cast<std::int32_t>(pairs->codec().tokenizer->vocabulary_size())),
        pairs_(std::move(pairs)) {}

  double tokens_per_step() const override { return pairs_per_step() * pairs_->mean_tokens(); }

  double epochs_per_step() const override {
    const auto of_epoch = pairs_->pairs_of_epoch();
    return of_epoch ? pairs_per_step() / static_cast<double>(*of_epoch) : 0;
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    return to_pair_batch(pairs_->training_pairs(step, micro), device);
  }

  bool has(Split split) const override { return count(split) > 0; }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    require(split);
    const Rng rng(seed(), RandomPurpose::evaluation, static_cast<std::uint64_t>(index));
    std::vector<EncodedPair> pairs;
    for (std::uint64_t row = 0; static_cast<double>(row) < pairs_->mean_pairs(); ++row)
      pairs.push_back(
          pairs_->pair(split, static_cast<std::int64_t>(rng.below(row, static_cast<std::uint64_t>(count(split))))));
    return to_pair_batch(pairs, device);
  }

 private:
  std::int64_t count(Split split) const override { return pairs_->count(split); }

  Batch batch_of(Split split, std::int64_t first, std::int64_t rows, torch::Device device) const override {
    std::vector<EncodedPair> pairs;
    for (auto row = first; row < first + rows; ++row) pairs.push_back(pairs_->pair(split, row));
    return to_pair_batch(pairs, device);
  }

  std::int64_t tokens_of(Split split, std::int64_t first, std::int64_t rows) const override {
    std::int64_t tokens = 0;
    for (auto row = first; row < first + rows; ++row) {
      const auto pair = pairs_->pair(split, row);
      tokens += metaformer::row_length(pair.source, row_length()) + metaformer::row_length(pair.target, row_length());
    }
    return tokens;
  }

  double pairs_per_step() const { return accumulate_ * pairs_->mean_pairs(); }

  Batch to_pair_batch(const std::vector<EncodedPair>& pairs, torch::Device device) const {
    return to_batch(to_rows(pairs, mark_, row_length()), device, row_length());
  }

  double accumulate_;
  std::int32_t mark_;
  std::shared_ptr<const PairDataset> pairs_;
};

Scores pair_report(const TokenScores& scores, Split) {
  return {{"loss", scores.loss},         {"perplexity", std::exp(scores.loss)},
          {"accuracy", scores.accuracy}, {"exact_match", scores.exact_match},
          {"pairs", scores.rows},        {"targets", scores.targets}};
}

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
  // While a model learns, hardly any long list is right as a whole.
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

Task make_recall_task(const ExperimentConfig& config) {
  const auto dataset = std::make_shared<const RecallDataset>(config.task);
  const auto& rows = *recall_rows(config.task);
  const auto vocabulary = *count_of_numbers(config.task);
  const auto report = [](const TokenScores& scores, Split) -> Scores {
    return {{"loss", scores.loss},
            {"accuracy", scores.accuracy},
            {"exact_match", scores.exact_match},
            {"rows", scores.rows},
            {"targets", scores.targets}};
  };
  return {
      .codec = std::make_shared<const Codec>(
          Codec{.tokenizer = std::make_unique<NumberTokenizer>(vocabulary), .labels = {}}),
      .description = {{"generator", kind_of(config.task)}, {"examples", rows.examples}, {"held_out", rows.held_out}},
      .summary =
          fmt::format("rows of {} tokens, numbers below {} ({}; {} held out for validation, {} for the test)",
                      dataset->row_length(), vocabulary,
                      rows.examples > 0 ? fmt::format("{} to train on", rows.examples) : "new ones in every step",
                      rows.held_out, rows.held_out),
      .batches = std::make_shared<RecallStream>(config, dataset),
      .objective = token_objective(),
      .measures = std::make_shared<TokenMeasures>(report, std::vector<std::string>{"accuracy"}, /*by_row=*/true)};
}

Task make_sequence_to_sequence_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto pairs = load_pairs(config, offline, std::move(codec));
  const auto& task = std::get<SequenceToSequenceConfig>(config.task);
  return {.codec = {pairs, &pairs->codec()},
          .description = pairs->description(),
          .summary = pairs->summary(),
          .bytes_per_token = pairs->bytes_per_token(),
          .batches = std::make_shared<PairStream>(config, pairs),
          .objective = token_objective(task.label_smoothing),
          .measures = std::make_shared<TokenMeasures>(pair_report, std::vector<std::string>{"accuracy", "exact_match"},
                                                      /*by_row=*/true),
          .pairs = pairs};
}

Task make_whole_task(const ExperimentConfig& config, bool offline, Codec codec) {
  if (list_task(config.task)) return make_list_task(config);
  if (recall_rows(config.task) != nullptr) return make_recall_task(config);
  if (is<ClassificationConfig>(config.task)) return make_classification_task(config, offline, std::move(codec));
  if (is<SequenceToSequenceConfig>(config.task))
    return make_sequence_to_sequence_task(config, offline, std::move(codec));
  return make_text_task(config, offline, std::move(codec));
}

// Throws unless the files and folders of the section data exist. Those of a run may have moved since.
void require_data_in_place(ExperimentConfig config, bool is_of_run) {
  for (const auto& [key, path] : paths_in(config)) {
    if (path == nullptr || !is_data_path(config, key)) continue;
    const auto place = with_seed(*path, config.train);
    std::error_code ignored;
    if (fs::status(place, ignored).type() == fs::file_type::not_found)
      throw Error(
          ExitCode::data,
          is_of_run
              ? fmt::format("{}: no such file or folder; if it has moved, name its new place: --set {}=...", place, key)
              : fmt::format("{}: no such file or folder, which {} names", place, key));
  }
}

}  // namespace

Task make_task(const ExperimentConfig& config, bool offline, Codec codec) {
  require_data_in_place(config, /*is_of_run=*/codec.tokenizer != nullptr);
  auto task = make_whole_task(config, offline, std::move(codec));
  if (config.train.overfit_batch)
    task.batches = std::make_shared<OneBatchStream>(task.batches, config.train.accumulate);
  return task;
}

}  // namespace metaformer
