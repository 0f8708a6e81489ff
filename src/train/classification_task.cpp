#include "train/classification_task.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"
#include "model/make_model.h"
#include "train/batches.h"

namespace metaformer {

namespace {

LabelledSplits read_splits(const ExperimentConfig& config, bool offline, nlohmann::ordered_json& description) {
  auto splits = load_labelled_splits(config.data, offline);
  description = splits.description;
  return splits;
}

}  // namespace

ClassificationTask::ClassificationTask(const ExperimentConfig& config, bool offline, Codec codec)
    : config_(config),
      dataset_(read_splits(config, offline, description_), config.data, config.model.context, std::move(codec)) {
  if (dataset_.cut_count() > 0)
    log::warning("{} texts are longer than model.context {} tokens; what is beyond is cut off", dataset_.cut_count(),
                 config.model.context);
}

std::shared_ptr<SequenceModel> ClassificationTask::make_model() const {
  return metaformer::make_model(config_,
                                {.vocabulary = codec().tokenizer->vocabulary_size(), .classes = class_count()});
}

double ClassificationTask::tokens_per_step() const {
  return dataset_.mean_length() * static_cast<double>(rows_per_step());
}

Batch ClassificationTask::training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const {
  const auto rows = config_.train.batch_size;
  return to_batch(
      dataset_.training_rows(static_cast<std::uint64_t>(config_.train.seed), step, rows_per_step(), micro * rows, rows),
      device);
}

LossSum ClassificationTask::loss(SequenceModel& model, const Batch& batch) const {
  const auto logits_bv = widened(model.forward(batch));
  return {at::cross_entropy_loss(logits_bv, batch.labels_b, {}, at::Reduction::Sum), batch.weight};
}

void ClassificationTask::require(Split split) const {
  if (dataset_.count(split) == 0)
    throw Error(ExitCode::usage, "there is no test split: this run's data.test_path is not set");
}

std::int64_t ClassificationTask::evaluation_batches(Split split) const {
  require(split);
  const auto rows = evaluation_rows(config_.model.context);
  return (dataset_.count(split) + rows - 1) / rows;
}

Batch ClassificationTask::evaluation_batch(Split split, std::int64_t index, torch::Device device) const {
  const auto rows = evaluation_rows(config_.model.context);
  return to_batch(dataset_.rows(split, index * rows, rows), device);
}

Batch ClassificationTask::random_batch(Split split, std::int64_t index, torch::Device device) const {
  require(split);
  return to_batch(
      dataset_.random_rows(split, static_cast<std::uint64_t>(config_.train.seed), index, config_.train.batch_size),
      device);
}

void ClassificationTask::score(SequenceModel& model, const Batch& batch, ScoreSums& sums) const {
  const auto logits_bv = widened(model.forward(batch));
  const auto predicted_b = logits_bv.argmax(1);
  const auto count = [&](const torch::Tensor& labels) { return torch::bincount(labels, {}, class_count()); };
  sums.add("loss", at::cross_entropy_loss(logits_bv, batch.labels_b, {}, at::Reduction::Sum));
  sums.add("texts", count(batch.labels_b));
  sums.add("predicted", count(predicted_b));
  sums.add("correct", count(batch.labels_b.masked_select(predicted_b == batch.labels_b)));
  sums.weight += batch.weight;
}

nlohmann::ordered_json ClassificationTask::metrics(const ScoreSums& sums, Split) const {
  const auto counts_v = [&](const char* name) { return sums.tensor(name).to(torch::kCPU, torch::kLong); };
  const auto texts_v = counts_v("texts"), predicted_v = counts_v("predicted"), correct_v = counts_v("correct");
  nlohmann::ordered_json classes;
  for (std::int64_t i = 0; i < class_count(); ++i)
    classes[codec().labels[static_cast<std::size_t>(i)]] = {{"texts", texts_v[i].item<std::int64_t>()},
                                                            {"predicted", predicted_v[i].item<std::int64_t>()},
                                                            {"correct", correct_v[i].item<std::int64_t>()}};
  return {{"loss", sums.item("loss") / sums.weight},
          {"accuracy", correct_v.sum().item<double>() / sums.weight},
          {"texts", static_cast<std::int64_t>(sums.weight)},
          {"classes", classes}};
}

std::string ClassificationTask::data_summary() const {
  return fmt::format("{} ({} + {} + {} texts, {} classes, {} kinds of tokens, {:.0f} tokens a text)",
                     description_.at("train").at("path").get<std::string>(), dataset_.count(Split::train),
                     dataset_.count(Split::validation), dataset_.count(Split::test), class_count(),
                     codec().tokenizer->vocabulary_size(), dataset_.mean_length());
}

}  // namespace metaformer
