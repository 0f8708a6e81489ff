#include "tasks/classification_task.h"

#include "base/error.h"
#include "base/log.h"
#include "config/seeded_paths.h"
#include "data/datasets/encoded_cache.h"
#include "tasks/batches.h"
#include "tasks/classification_data.h"
#include "tasks/classification_metrics.h"
#include "tasks/embedding_scale.h"
#include "tasks/recalibration.h"

namespace metaformer {

namespace {

class TextStream : public BatchStream {
 public:
  TextStream(const ExperimentConfig& config, std::shared_ptr<const LabelledDataset> dataset)
      : train_(config.train), context_(context_of(config.model)), dataset_(std::move(dataset)) {}

  double tokens_per_step() const override {
    return dataset_->mean_length() * static_cast<double>(dataset_->count(Split::train)) * epochs_per_step();
  }

  double epochs_per_step() const override {
    const auto rows_of_epoch = dataset_->is_packed() ? dataset_->packs_of_epoch() : dataset_->count(Split::train);
    return static_cast<double>(rows_per_step()) / static_cast<double>(rows_of_epoch);
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    const auto rows = train_.batch_size;
    if (dataset_->is_packed())
      return to_batch(dataset_->training_packs(seed(), step * rows_per_step() + micro * rows, rows), device, context_);
    return to_batch(dataset_->training_rows(seed(), step, rows_per_step(), micro * rows, rows), device, context_);
  }

  bool has(Split split) const override { return dataset_->count(split) > 0; }

  std::int64_t evaluation_batches(Split split) const override {
    require(split);
    const auto rows = evaluation_rows(context_);
    return (dataset_->count(split) + rows - 1) / rows;
  }

  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto rows = evaluation_rows(context_);
    return to_batch(dataset_->rows(split, index * rows, rows), device, context_);
  }

  std::int64_t evaluation_tokens(Split split, std::int64_t index) const override {
    const auto rows = evaluation_rows(context_), end = std::min((index + 1) * rows, dataset_->count(split));
    std::int64_t tokens = 0;
    for (auto row = index * rows; row < end; ++row)
      tokens += std::min(std::ssize(dataset_->texts(split)[static_cast<std::size_t>(row)].ids), context_);
    return tokens;
  }

  // Without noise, each text once.
  Batch distinct_batch(std::int64_t first, std::int64_t rows, torch::Device device) const {
    return to_batch(dataset_->distinct_training_rows(seed(), first, rows), device, context_);
  }
  std::int64_t training_texts() const { return dataset_->count(Split::train); }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    require(split);
    return to_batch(dataset_->random_rows(split, seed(), index, train_.batch_size), device, context_);
  }

 private:
  std::int64_t rows_per_step() const { return train_.batch_size * train_.accumulate; }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(train_.seed); }

  void require(Split split) const {
    if (!has(split)) throw Error(ExitCode::usage, "there is no test split: this run's data.test_path is not set");
  }

  TrainConfig train_;
  std::int64_t context_;
  std::shared_ptr<const LabelledDataset> dataset_;
};

// 1 / the fraction of every class, so that all classes weigh the same and a text weighs 1 on average.
torch::Tensor balanced_weights(const LabelledDataset& dataset) {
  const auto counts = training_counts(dataset);
  const auto counts_v = torch::tensor(counts, torch::kDouble);
  return (static_cast<double>(dataset.count(Split::train)) / (counts_v * static_cast<double>(counts.size())))
      .to(torch::kFloat);
}

// Cross-entropy of the class, with smoothed targets and weighted classes where the config says so.
class ClassObjective : public Objective {
 public:
  ClassObjective(torch::Tensor class_weights_v, double label_smoothing)
      : class_weights_v_(std::move(class_weights_v)), label_smoothing_(label_smoothing) {}

  torch::Tensor loss(const torch::Tensor& given_lv, const Batch& batch) const override {
    const auto logits_lv = widened(given_lv);
    if (class_weights_v_.defined() && class_weights_v_.device() != logits_lv.device())
      class_weights_v_ = class_weights_v_.to(logits_lv.device());
    return at::cross_entropy_loss(logits_lv, batch.labels_l, class_weights_v_, at::Reduction::Sum,
                                  /*ignore_index=*/-100, label_smoothing_);
  }

 private:
  // Undefined: none. Where the last loss was computed: a recorded step cannot copy from the host.
  mutable torch::Tensor class_weights_v_;
  double label_smoothing_;
};

// model.embedding.scale, task.head.bag and task.head.recalibrate.
class ClassifierAdaptation : public ModelAdaptation {
 public:
  ClassifierAdaptation(const ExperimentConfig& config, std::shared_ptr<const TextStream> texts, const ModelSizes& sizes,
                       torch::Tensor class_weights_v)
      : config_(config), texts_(std::move(texts)), sizes_(sizes), class_weights_v_(std::move(class_weights_v)) {}

  void before_training(SequenceModel& model) const override {
    if (transformer(config_).embedding.scale == EmbeddingScale::log_count_ratio)
      scale_by_log_count_ratios(dynamic_cast<Classifier&>(model), *texts_, sizes_);
    if (bag_options(classification(config_).head) != nullptr)
      scale_bag_by_log_count_ratios(dynamic_cast<Classifier&>(model).bag(), *texts_, sizes_.classes);
  }

  // A batch that is learned by heart needs no shift for texts.
  void before_evaluation(SequenceModel& model, torch::Device device) const override {
    if (!recalibrates(classification(config_).head) || config_.train.overfit_batch) return;
    const auto texts = [&](auto first, auto rows) { return texts_->distinct_batch(first, rows, device); };
    recalibrate(dynamic_cast<Classifier&>(model), texts, texts_->training_texts(), config_, class_weights_v_, device);
  }

 private:
  ExperimentConfig config_;
  std::shared_ptr<const TextStream> texts_;
  ModelSizes sizes_;
  torch::Tensor class_weights_v_;
};

std::string_view shown(Truncation truncation) {
  return truncation == Truncation::head_and_tail ? "head and tail" : to_string(truncation);
}

void tell_of_cut_texts(const LabelledDataset& dataset, const ExperimentConfig& config) {
  if (dataset.cut_count() == 0) return;
  log::info("{} texts are longer than model.context {} tokens; of these the {} is kept (task.truncation)",
            dataset.cut_count(), context_of(config.model), shown(classification(config).truncation));
}

}  // namespace

Task make_classification_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto dataset = std::make_shared<const LabelledDataset>(
      load_encoded_splits(labelled_data(config), offline, std::move(codec)), BatchOptions::of(config));
  tell_of_cut_texts(*dataset, config);
  const bool balances = classification(config).class_weights == ClassWeights::balanced;
  const auto weights_v = balances ? balanced_weights(*dataset) : torch::Tensor();
  const auto texts = std::make_shared<TextStream>(config, dataset);
  return {.data = std::make_shared<ClassificationData>(dataset, config),
          .batches = texts,
          .objective = std::make_shared<ClassObjective>(weights_v, classification(config).label_smoothing),
          .metrics = std::make_shared<ClassificationMetrics>(dataset, classification(config).selection_metric),
          .adaptation = std::make_shared<ClassifierAdaptation>(config, texts, sizes_of(dataset->codec()), weights_v)};
}

}  // namespace metaformer
