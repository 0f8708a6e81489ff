// Sorting and copying lists of numbers: a causal model continues a list with its sorted copy (minGPT), or with itself
// (Reformer).

#include <fmt/format.h>

#include "data/list_dataset.h"
#include "tasks/batches.h"
#include "tasks/make_task.h"
#include "text/symbol_tokenizers.h"

namespace metaformer {

namespace {

class ListStream : public BatchStream {
 public:
  ListStream(const ExperimentConfig& config, std::shared_ptr<const ListDataset> dataset)
      : row_length_(list_task(config.task)->row_length()), train_(config.train), dataset_(std::move(dataset)) {}

  double tokens_per_step() const override {
    return static_cast<double>(train_.batch_size * train_.accumulate * row_length_);
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    const auto rows = train_.batch_size;
    return to_batch(dataset_->random_rows(seed(), step, micro * rows, rows), device);
  }

  std::int64_t evaluation_batches(Split split) const override {
    const auto rows = evaluation_rows(row_length_);
    return (dataset_->list_count(split) + rows - 1) / rows;
  }

  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto rows = evaluation_rows(row_length_);
    return to_batch(dataset_->rows(split, index * rows, rows), device);
  }

  std::int64_t evaluation_tokens(Split split, std::int64_t index) const override {
    const auto rows = evaluation_rows(row_length_);
    return std::min(rows, dataset_->list_count(split) - index * rows) * row_length_;
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    return to_batch(dataset_->random_rows_of(split, seed(), index, train_.batch_size), device);
  }

 private:
  std::uint64_t seed() const { return static_cast<std::uint64_t>(train_.seed); }

  std::int64_t row_length_;
  TrainConfig train_;
  std::shared_ptr<const ListDataset> dataset_;
};

class ListMetrics : public Metrics {
 public:
  explicit ListMetrics(const ListTask& task) : task_(task) {}

  void score(const torch::Tensor& logits_bcv, const Batch& batch, ScoreSums& sums) const override {
    score_tokens(logits_bcv, batch, sums);
    const auto right_bc = (logits_bcv.argmax(2) == batch.targets_bc).logical_or(batch.targets_bc < 0);
    const auto right_b = right_bc.all(1);
    sums.add("exact", right_b.sum());
    sums.add("lists", torch::ones_like(right_b).sum());
  }

  nlohmann::ordered_json report(const ScoreSums& sums, Split) const override {
    const double weight = sums.item("weight"), lists = sums.item("lists");
    return {{"loss", sums.item("loss") / weight},
            {"accuracy", sums.item("correct") / weight},
            {"exact_match", sums.item("exact") / lists},
            {"lists", static_cast<std::int64_t>(lists)}};
  }

  // Of long lists hardly any is right as a whole while a model learns.
  std::vector<std::string> headline() const override { return {task_.copies ? "accuracy" : "exact_match"}; }

 private:
  ListTask task_;
};

class ListData : public TaskData {
 public:
  ListData(const ListTask& task, std::shared_ptr<const ListDataset> dataset)
      : task_(task),
        dataset_(std::move(dataset)),
        codec_{.tokenizer = std::make_unique<NumberTokenizer>(task.vocabulary()), .labels = {}} {}

  const Codec& codec() const override { return codec_; }

  nlohmann::ordered_json description() const override {
    return {{"generator", task_.copies ? "copy" : "sort"},
            {"exhaustive", dataset_->is_exhaustive()},
            {"train_lists", dataset_->list_count(Split::train)},
            {"validation_lists", dataset_->list_count(Split::validation)}};
  }

  std::string summary() const override {
    return fmt::format("lists of {} numbers from {} ... {} ({}; {} held out)", task_.length, task_.first_number(),
                       task_.vocabulary() - 1,
                       dataset_->is_exhaustive() ? fmt::format("{} to train on", dataset_->list_count(Split::train))
                                                 : "drawn at random, evaluated on a sample",
                       dataset_->list_count(Split::validation));
  }

 private:
  ListTask task_;
  std::shared_ptr<const ListDataset> dataset_;
  Codec codec_;
};

}  // namespace

Task make_list_task(const ExperimentConfig& config) {
  const auto lists = *list_task(config.task);
  const auto dataset = std::make_shared<const ListDataset>(lists);
  return {.data = std::make_shared<ListData>(lists, dataset),
          .batches = std::make_shared<ListStream>(config, dataset),
          .objective = std::make_shared<TokenObjective>(),
          .metrics = std::make_shared<ListMetrics>(lists)};
}

}  // namespace metaformer
