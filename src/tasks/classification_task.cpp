#include "tasks/classification_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/datasets/encoded_cache.h"
#include "model/make_model.h"
#include "tasks/batches.h"
#include "tasks/embedding_scale.h"
#include "tasks/recalibration.h"

namespace metaformer {

namespace {

std::vector<std::int64_t> training_counts(const LabelledDataset& dataset) {
  std::vector<std::int64_t> counts(dataset.codec().labels.size());
  for (const auto& text : dataset.texts(Split::train)) ++counts[static_cast<std::size_t>(text.label)];
  return counts;
}

// 1 / the share of every class, so that all classes weigh the same and a text weighs 1 on average.
torch::Tensor balanced_weights(const LabelledDataset& dataset) {
  const auto counts = training_counts(dataset);
  const auto counts_v = torch::tensor(counts, torch::kDouble);
  return (static_cast<double>(dataset.count(Split::train)) / (counts_v * static_cast<double>(counts.size())))
      .to(torch::kFloat);
}

// Classes are whatever labels the texts have, so that a slip of the pen is one too.
void warn_of_rare_classes(const LabelledDataset& dataset) {
  constexpr std::int64_t a_few = 3, much_rarer = 10, far_rarer = 200;
  const auto counts = training_counts(dataset);
  const auto usual = dataset.count(Split::train) / static_cast<std::int64_t>(counts.size());
  for (std::size_t label = 0; label < counts.size(); ++label)
    if (const auto count = counts[label]; usual > (count <= a_few ? much_rarer : far_rarer) * count)
      log::warning("the label {} is that of {} of the {} training texts: a class of its own, or a slip?",
                   in_quotes(dataset.codec().labels[label]), count, dataset.count(Split::train));
}

// The AUC of a split is over the classes that it has, and one class alone has none: nothing could be chosen by it.
void require_two_classes(const LabelledDataset& dataset, Split split) {
  const auto texts = dataset.texts(split);
  const bool has_two =
      std::any_of(texts.begin(), texts.end(), [&](const auto& text) { return text.label != texts.front().label; });
  if (!has_two && !texts.empty())
    throw Error(ExitCode::data,
                fmt::format("train.selection_metric auc: all {} texts of the {} split have the label {}, and one class "
                            "has no AUC; choose by accuracy or loss, or give that split other texts",
                            texts.size(), to_string(split),
                            in_quotes(dataset.codec().labels.at(static_cast<std::size_t>(texts.front().label)))));
}

ClassProbabilities to_probabilities(const torch::Tensor& given_bv, const torch::Tensor& given_b) {
  const auto probabilities_bv = given_bv.to(torch::kCPU, torch::kDouble).contiguous();
  const auto labels_b = given_b.to(torch::kCPU).contiguous();
  const auto* values = probabilities_bv.data_ptr<double>();
  const auto* labels = labels_b.data_ptr<std::int64_t>();
  return {.classes = probabilities_bv.size(1),
          .values = {values, values + probabilities_bv.numel()},
          .labels = {labels, labels + labels_b.numel()}};
}

}  // namespace

ClassificationTask::ClassificationTask(const ExperimentConfig& config, bool offline, Codec codec)
    : config_(config), dataset_(load_encoded_splits(config.data, offline, std::move(codec)), BatchOptions::of(config)) {
  if (dataset_.cut_count() > 0)
    log::info(
        "{} texts are longer than model.context {} tokens; of these the {} is kept (data.truncation)",
        dataset_.cut_count(), config.model.context,
        config.data.truncation == Truncation::head_and_tail ? "head and tail" : to_string(config.data.truncation));
  if (config.train.class_weights == ClassWeights::balanced) class_weights_v_ = balanced_weights(dataset_);
}

void ClassificationTask::check_data() const {
  warn_of_rare_classes(dataset_);
  if (config_.train.selection_metric == SelectionMetric::auc) require_two_classes(dataset_, Split::validation);
}

double ClassificationTask::selection_error(const nlohmann::ordered_json& metrics) const {
  const auto metric = config_.train.selection_metric;
  if (metric == SelectionMetric::loss) return metrics.at("loss");
  return 1 - metrics.value(std::string(to_string(metric)), 0.0);
}

std::vector<std::string> ClassificationTask::headline() const {
  std::vector<std::string> names = {"accuracy"};
  if (config_.train.selection_metric == SelectionMetric::auc) names.push_back("auc");
  return names;
}

std::shared_ptr<SequenceModel> ClassificationTask::make_model() const {
  return metaformer::make_model(config_,
                                {.vocabulary = codec().tokenizer->vocabulary_size(), .classes = class_count()});
}

void ClassificationTask::prepare(SequenceModel& model) const {
  if (config_.model.embedding_scale == EmbeddingScale::log_count_ratio)
    scale_by_log_count_ratios(dynamic_cast<Classifier&>(model), *this, class_count());
}

void ClassificationTask::before_evaluation(SequenceModel& model, torch::Device device) const {
  if (config_.model.recalibrate)
    recalibrate(dynamic_cast<Classifier&>(model), *this, config_.train, class_weights_v_, device);
}

double ClassificationTask::tokens_per_step() const {
  return dataset_.mean_length() * static_cast<double>(rows_per_step());
}

double ClassificationTask::epochs_per_step() const {
  return static_cast<double>(rows_per_step()) / static_cast<double>(dataset_.count(Split::train));
}

Batch ClassificationTask::training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const {
  const auto rows = config_.train.batch_size;
  return to_batch(
      dataset_.training_rows(static_cast<std::uint64_t>(config_.train.seed), step, rows_per_step(), micro * rows, rows),
      device, config_.model.context);
}

LossSum ClassificationTask::loss(SequenceModel& model, const Batch& batch) const {
  const auto logits_bv = widened(model.forward(batch));
  const auto weights_v = class_weights_v_.defined() ? class_weights_v_.to(logits_bv.device()) : torch::Tensor();
  return {at::cross_entropy_loss(logits_bv, batch.labels_b, weights_v, at::Reduction::Sum, /*ignore_index=*/-100,
                                 config_.train.label_smoothing),
          batch.weight};
}

void ClassificationTask::require(Split split) const {
  if (!has(split)) throw Error(ExitCode::usage, "there is no test split: this run's data.test_path is not set");
}

std::int64_t ClassificationTask::evaluation_batches(Split split) const {
  require(split);
  const auto rows = evaluation_rows(config_.model.context);
  return (dataset_.count(split) + rows - 1) / rows;
}

Batch ClassificationTask::evaluation_batch(Split split, std::int64_t index, torch::Device device) const {
  const auto rows = evaluation_rows(config_.model.context);
  return to_batch(dataset_.rows(split, index * rows, rows), device, config_.model.context);
}

Batch ClassificationTask::random_batch(Split split, std::int64_t index, torch::Device device) const {
  require(split);
  return to_batch(
      dataset_.random_rows(split, static_cast<std::uint64_t>(config_.train.seed), index, config_.train.batch_size),
      device, config_.model.context);
}

void ClassificationTask::score(SequenceModel& model, const Batch& batch, ScoreSums& sums) const {
  const auto logits_bv = widened(model.forward(batch));
  sums.add("loss", at::cross_entropy_loss(logits_bv, batch.labels_b, {}, at::Reduction::Sum));
  sums.append("probabilities", torch::softmax(logits_bv.to(torch::kDouble), 1));
  sums.append("labels", batch.labels_b);
  sums.weight += batch.weight;
}

ClassProbabilities ClassificationTask::probabilities_of(const ScoreSums& sums, Split split) const {
  const auto& order = dataset_.source_order(split);
  const auto places_b = torch::tensor(std::vector<std::int64_t>(order.begin(), order.end()));
  const auto inverse_b = places_b.argsort();
  return to_probabilities(sums.joined("probabilities").cpu().index_select(0, inverse_b),
                          sums.joined("labels").cpu().index_select(0, inverse_b));
}

nlohmann::ordered_json ClassificationTask::metrics(const ScoreSums& sums, Split) const {
  return metrics_of(to_probabilities(sums.joined("probabilities"), sums.joined("labels")),
                    sums.item("loss") / sums.weight);
}

nlohmann::ordered_json ClassificationTask::metrics_of(const ClassProbabilities& probabilities, double loss) const {
  const auto table = confusion_table(probabilities);
  const auto at = [&](std::int64_t truth, std::int64_t predicted) {
    return table[static_cast<std::size_t>(truth * class_count() + predicted)];
  };
  nlohmann::ordered_json classes, confusion;
  std::int64_t correct = 0;
  double f1 = 0;
  for (std::int64_t label = 0; label < class_count(); ++label) {
    const auto& name = codec().labels[static_cast<std::size_t>(label)];
    std::int64_t texts = 0, predicted = 0;
    for (std::int64_t other = 0; other < class_count(); ++other) {
      texts += at(label, other);
      predicted += at(other, label);
      confusion[name][codec().labels[static_cast<std::size_t>(other)]] = at(label, other);
    }
    const double class_f1 = f1_score(table, class_count(), label);
    classes[name] = {{"texts", texts}, {"predicted", predicted}, {"correct", at(label, label)}, {"f1", class_f1}};
    correct += at(label, label);
    f1 += class_f1 / static_cast<double>(class_count());
  }
  const double accuracy = static_cast<double>(correct) / static_cast<double>(probabilities.texts());
  nlohmann::ordered_json metrics = {{"loss", loss}, {"accuracy", accuracy}, {"f1", f1}};
  if (std::isfinite(loss)) {  // a network that diverged ranks nothing
    if (const auto auc = roc_auc(probabilities)) metrics["auc"] = *auc;
    metrics["calibration_error"] = calibration_error(probabilities);
  }
  metrics["texts"] = probabilities.texts();
  metrics["classes"] = classes;
  metrics["confusion"] = confusion;
  return metrics;
}

std::string ClassificationTask::data_summary() const {
  return fmt::format("{} ({} + {} + {} texts, {} classes, vocabulary of {} tokens, {:.0f} tokens a text)",
                     data_description().at("train").at("path").get<std::string>(), dataset_.count(Split::train),
                     dataset_.count(Split::validation), dataset_.count(Split::test), class_count(),
                     codec().tokenizer->vocabulary_size(), dataset_.mean_length());
}

}  // namespace metaformer
