#include "tasks/sort_task.h"

#include <fmt/format.h>

#include "model/make_model.h"
#include "tasks/batches.h"
#include "text/number_tokenizer.h"

namespace metaformer {

SortTask::SortTask(const ExperimentConfig& config)
    : config_(config),
      dataset_(config.data.sort),
      codec_{.tokenizer = std::make_unique<NumberTokenizer>(config.data.sort.digits), .labels = {}} {}

std::shared_ptr<SequenceModel> SortTask::make_model() const {
  return metaformer::make_model(config_, {.vocabulary = config_.data.sort.digits});
}

double SortTask::tokens_per_step() const {
  return static_cast<double>(config_.train.batch_size * config_.train.accumulate * row_length());
}

Batch SortTask::training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const {
  const auto rows = config_.train.batch_size;
  return to_batch(dataset_.random_rows(static_cast<std::uint64_t>(config_.train.seed), step, micro * rows, rows),
                  device);
}

LossSum SortTask::loss(SequenceModel& model, const Batch& batch) const {
  return {token_loss(model.forward(batch), batch.targets_bc), batch.weight};
}

std::int64_t SortTask::evaluation_batches(Split split) const {
  const auto rows = evaluation_rows(row_length());
  return (dataset_.list_count(split) + rows - 1) / rows;
}

Batch SortTask::evaluation_batch(Split split, std::int64_t index, torch::Device device) const {
  const auto rows = evaluation_rows(row_length());
  return to_batch(dataset_.rows(split, index * rows, rows), device);
}

Batch SortTask::random_batch(Split split, std::int64_t index, torch::Device device) const {
  return to_batch(
      dataset_.random_rows_of(split, static_cast<std::uint64_t>(config_.train.seed), index, config_.train.batch_size),
      device);
}

void SortTask::score(SequenceModel& model, const Batch& batch, ScoreSums& sums) const {
  const auto logits_bcv = model.forward(batch);
  score_tokens(logits_bcv, batch, sums);
  const auto right_bc = (logits_bcv.argmax(2) == batch.targets_bc).logical_or(batch.targets_bc < 0);
  const auto right_b = right_bc.all(1);
  sums.add("exact", right_b.sum());
  sums.add("lists", torch::ones_like(right_b).sum());
}

nlohmann::ordered_json SortTask::metrics(const ScoreSums& sums, Split) const {
  return {{"loss", sums.item("loss") / sums.weight},
          {"accuracy", sums.item("correct") / sums.weight},
          {"exact_match", sums.item("exact") / sums.item("lists")},
          {"lists", static_cast<std::int64_t>(sums.item("lists"))}};
}

nlohmann::ordered_json SortTask::data_description() const {
  return {{"generator", "sort"},
          {"exhaustive", dataset_.is_exhaustive()},
          {"train_lists", dataset_.list_count(Split::train)},
          {"validation_lists", dataset_.list_count(Split::validation)}};
}

std::string SortTask::data_summary() const {
  const auto& sort = config_.data.sort;
  return fmt::format("lists of {} numbers from 0 ... {} ({}; {} held out)", sort.length, sort.digits - 1,
                     dataset_.is_exhaustive() ? fmt::format("{} to train on", dataset_.list_count(Split::train))
                                              : "drawn at random, evaluated on a sample",
                     dataset_.list_count(Split::validation));
}

}  // namespace metaformer
