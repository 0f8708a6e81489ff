#include "tasks/classification_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/rows.h"
#include "base/text.h"
#include "data/encoded_cache.h"
#include "model/embedding.h"
#include "model/make_model.h"
#include "ops/autocast.h"
#include "tasks/batches.h"
#include "tasks/evaluation.h"
#include "tasks/linear_classifier.h"

namespace metaformer {

namespace {

// The rank sum of Mann and Whitney, ties sharing their ranks.
std::optional<double> auc_of_class(const ClassProbabilities& probabilities, std::int64_t label) {
  std::vector<std::pair<double, bool>> texts;  // score, is a member
  for (std::int64_t text = 0; text < probabilities.texts(); ++text)
    texts.emplace_back(probabilities.at(text, label), probabilities.label(text) == label);
  std::sort(texts.begin(), texts.end());
  double rank_sum = 0, members = 0;
  for (std::size_t first = 0; first < texts.size();) {
    auto last = first;
    while (last < texts.size() && texts[last].first == texts[first].first) ++last;
    const double shared_rank = static_cast<double>(first + 1 + last) / 2;
    for (; first < last; ++first) {
      if (!texts[first].second) continue;
      rank_sum += shared_rank;
      ++members;
    }
  }
  const double others = static_cast<double>(texts.size()) - members;
  if (members == 0 || others == 0) return std::nullopt;
  return (rank_sum - members * (members + 1) / 2) / (members * others);
}

// The mean over the classes that have a value; nullopt if none has.
template <class ValueOf>
std::optional<double> mean_over_classes(std::int64_t classes, ValueOf value_of) {
  double sum = 0, counted = 0;
  for (std::int64_t label = 0; label < classes; ++label) {
    const std::optional<double> value = value_of(label);
    sum += value.value_or(0);
    if (value) ++counted;
  }
  return counted == 0 ? std::nullopt : std::optional(sum / counted);
}

// The number of training texts of each class.
std::vector<std::int64_t> training_counts(const LabelledDataset& dataset) {
  std::vector<std::int64_t> counts(dataset.codec().labels.size());
  for (const auto& text : dataset.texts(Split::train)) ++counts[static_cast<std::size_t>(text.label)];
  return counts;
}

// Every label of a text is a class, so a typo makes a class of its own.
void warn_of_rare_classes(const LabelledDataset& dataset) {
  constexpr std::int64_t a_few = 3, much_rarer = 10, far_rarer = 200;
  const auto counts = training_counts(dataset);
  const auto usual = dataset.count(Split::train) / static_cast<std::int64_t>(counts.size());
  for (std::size_t label = 0; label < counts.size(); ++label)
    if (const auto count = counts[label]; usual > (count <= a_few ? much_rarer : far_rarer) * count)
      log::warning("{1} of the {2} training texts have the label {0}: is it a mistake?",
                   in_quotes(dataset.codec().labels[label]), count, dataset.count(Split::train));
}

// A split with a single class has no AUC, so no step could be chosen by it.
void require_two_classes(const LabelledDataset& dataset, Split split) {
  const auto texts = dataset.texts(split);
  const bool has_two =
      std::any_of(texts.begin(), texts.end(), [&](const auto& text) { return text.label != texts.front().label; });
  if (!has_two && !texts.empty())
    throw Error(ExitCode::data,
                fmt::format("task.selection_metric auc: all {} texts of the {} split have the label {}, and one class "
                            "has no AUC; choose by accuracy or loss, or give that split other texts",
                            texts.size(), to_string(split),
                            in_quotes(dataset.codec().labels.at(static_cast<std::size_t>(texts.front().label)))));
}

class LabelledStream : public RowStream {
 public:
  LabelledStream(const ExperimentConfig& config, std::shared_ptr<const LabelledDataset> dataset)
      : RowStream(config.train, context_of(config.model)), dataset_(std::move(dataset)) {}

  double tokens_per_step() const override {
    return dataset_->mean_length() * static_cast<double>(count(Split::train)) * epochs_per_step();
  }

  double epochs_per_step() const override {
    const auto rows_of_epoch = dataset_->is_packed() ? dataset_->packs_of_epoch() : count(Split::train);
    return static_cast<double>(rows_per_step()) / static_cast<double>(rows_of_epoch);
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    const auto first = micro * rows();
    return to_batch(dataset_->is_packed() ? dataset_->training_packs(seed(), step * rows_per_step() + first, rows())
                                          : dataset_->training_rows(seed(), step, rows_per_step(), first, rows()),
                    device, row_length());
  }

  bool has(Split split) const override { return count(split) > 0; }

  // Training texts without noise, each once.
  Batch distinct_batch(std::int64_t first, std::int64_t rows, torch::Device device) const {
    return to_batch(dataset_->distinct_training_rows(seed(), first, rows), device, row_length());
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    require(split);
    return to_batch(dataset_->random_rows(split, seed(), index, rows()), device, row_length());
  }

 private:
  std::int64_t count(Split split) const override { return dataset_->count(split); }

  Batch batch_of(Split split, std::int64_t first, std::int64_t rows, torch::Device device) const override {
    return to_batch(dataset_->rows(split, first, rows), device, row_length());
  }

  std::int64_t tokens_of(Split split, std::int64_t first, std::int64_t rows) const override {
    std::int64_t tokens = 0;
    for (auto row = first; row < first + rows; ++row)
      tokens += std::min(std::ssize(dataset_->texts(split)[static_cast<std::size_t>(row)].ids), row_length());
    return tokens;
  }

  std::shared_ptr<const LabelledDataset> dataset_;
};

// Weights by 1 / the fraction of every class, so that all classes weigh the same and a text weighs 1 on average.
torch::Tensor balanced_weights(const LabelledDataset& dataset) {
  const auto counts = training_counts(dataset);
  const auto counts_v = torch::tensor(counts, torch::kDouble);
  return (static_cast<double>(dataset.count(Split::train)) / (counts_v * static_cast<double>(counts.size())))
      .to(torch::kFloat);
}

// Cross-entropy of the class, with smoothed targets and weighted classes if the config says so. The weights stay on the
// device of the last loss, because a recorded step cannot copy from the host.
Objective class_objective(const torch::Tensor& given_weights_v, double smoothing) {
  return [weights_v = given_weights_v, smoothing](const torch::Tensor& given_lv, const Batch& batch) mutable {
    const auto logits_lv = widened(given_lv);
    if (weights_v.defined() && weights_v.device() != logits_lv.device()) weights_v = weights_v.to(logits_lv.device());
    return at::cross_entropy_loss(logits_lv, batch.labels_l, weights_v, at::Reduction::Sum, /*ignore_index=*/-100,
                                  smoothing);
  };
}

// The distinct features of every row; -1 is no feature.
std::vector<std::vector<std::uint32_t>> distinct_in_rows(const torch::Tensor& features_lf) {
  const auto contiguous_lf = features_lf.to(torch::kLong).contiguous();
  const auto width = contiguous_lf.size(1);
  std::vector<std::vector<std::uint32_t>> rows;
  for (std::int64_t row = 0; row < contiguous_lf.size(0); ++row) {
    const auto* values = contiguous_lf.const_data_ptr<std::int64_t>() + row * width;
    auto& features = rows.emplace_back();
    std::copy_if(values, values + width, std::back_inserter(features), [](auto value) { return value >= 0; });
    std::sort(features.begin(), features.end());
    features.erase(std::unique(features.begin(), features.end()), features.end());
  }
  return rows;
}

// For features 0 ... size - 1, how unequally the classes contain them: |r|, with more than two classes the largest.
torch::Tensor log_count_scale(const std::vector<LabelledFeatures>& texts, std::int64_t classes, std::int64_t size) {
  std::vector<float> scale(static_cast<std::size_t>(size));
  for (std::int64_t label = 0; label < (classes == 2 ? 1 : classes); ++label) {
    const auto ratios = log_count_ratios(texts, label, scale.size());
    for (std::size_t i = 0; i < scale.size(); ++i)
      scale[i] = std::max(scale[i], static_cast<float>(std::abs(ratios[i])));
  }
  return torch::tensor(scale);
}

// Naive Bayes weighs features by how unequally the classes contain them; a network whose embeddings are scaled in that
// proportion learns less from the rest (Wang and Manning 2012, "Baselines and bigrams"). Multiplies the embedding of
// each token and n-gram bucket by |r|, where r is its log-count ratio between the training texts of a class and all
// others, as evaluation sees these texts. With more than two classes it is the largest |r|; 0 for features that no
// training text has. Throws Interrupted if a signal asks to stop.
void scale_by_log_count_ratios(Classifier& model, const BatchStream& stream, const ModelSizes& sizes) {
  const auto [vocabulary, classes] = sizes;
  const auto& ngrams = model.config().embedding.ngrams;
  const auto buckets = ngrams.order > 1 ? ngrams.buckets : 0;
  // Features are what the model looks up: token ids, also a class token's, and after these the buckets of n-grams.
  const auto first_bucket = vocabulary + (is<FirstTokenHeadConfig>(model.head()) ? 1 : 0);
  const auto features_of_rows = [&](const Batch& given) {
    const auto batch = model.embedded(given);
    std::vector<torch::Tensor> kinds = {batch.ids_bc};
    for (std::int64_t n = 2; n <= ngrams.order; ++n)
      kinds.push_back(ngram_buckets(batch.ids_bc, n, ngrams.buckets) + first_bucket);
    if (batch.segments_bc.defined())
      for (auto& kind_bc : kinds) kind_bc = kind_bc.masked_fill(batch.segments_bc < 0, -1);
    return distinct_in_rows(torch::cat(kinds, 1));
  };
  const auto all = log_count_scale(training_features(stream, features_of_rows), classes, first_bucket + buckets);
  // A class token is in every text, so it does not distinguish classes, and keeps its embedding.
  model.transformer()->scale_embeddings(all.narrow(0, 0, vocabulary), all.narrow(0, first_bucket, buckets));
}

void scale_bag_by_log_count_ratios(NgramBag& bag, const BatchStream& stream, std::int64_t classes) {
  const auto buckets_of_rows = [&](const Batch& batch) { return distinct_in_rows(bag->buckets_lf(batch)); };
  bag->set_scale(log_count_scale(training_features(stream, buckets_of_rows), classes, bag->buckets()));
}

// For this task make_model always makes a Classifier.
Classifier& classifier(SequenceModel& model) { return dynamic_cast<Classifier&>(model); }

ClassProbabilities scored_probabilities(const ScoreSums& sums) {
  return class_probabilities(sums.joined("logits"), sums.joined("labels"));
}

}  // namespace

ClassProbabilities class_probabilities(const torch::Tensor& logits_lv, const torch::Tensor& labels_l,
                                       double temperature) {
  const auto given_lv = logits_lv.to(torch::kDouble);
  return to_probabilities(torch::softmax(temperature == 1 ? given_lv : given_lv / temperature, 1), labels_l);
}

ClassProbabilities to_probabilities(const torch::Tensor& given_lv, const torch::Tensor& given_l) {
  const auto probabilities_lv = given_lv.to(torch::kCPU, torch::kDouble).contiguous();
  const auto labels_l = given_l.to(torch::kCPU).contiguous();
  const auto* values = probabilities_lv.const_data_ptr<double>();
  const auto* labels = labels_l.const_data_ptr<std::int64_t>();
  return {.classes = probabilities_lv.size(1),
          .values = {values, values + probabilities_lv.numel()},
          .labels = {labels, labels + labels_l.numel()}};
}

std::int64_t ClassProbabilities::predicted(std::int64_t text) const {
  const auto row = values.begin() + text * classes;
  return std::max_element(row, row + classes) - row;
}

double log_loss(const ClassProbabilities& probabilities) {
  double sum = 0;
  for (std::int64_t text = 0; text < probabilities.texts(); ++text)
    sum -= std::log(probabilities.at(text, probabilities.label(text)));
  return sum / static_cast<double>(probabilities.texts());
}

std::vector<std::int64_t> confusion_table(const ClassProbabilities& probabilities) {
  std::vector<std::int64_t> table(static_cast<std::size_t>(probabilities.classes * probabilities.classes));
  for (std::int64_t text = 0; text < probabilities.texts(); ++text)
    ++table[static_cast<std::size_t>(probabilities.label(text) * probabilities.classes +
                                     probabilities.predicted(text))];
  return table;
}

std::vector<ClassCounts> count_classes(const ClassProbabilities& probabilities) {
  std::vector<ClassCounts> counts(static_cast<std::size_t>(probabilities.classes));
  for (std::int64_t text = 0; text < probabilities.texts(); ++text) {
    const auto label = static_cast<std::size_t>(probabilities.label(text)),
               predicted = static_cast<std::size_t>(probabilities.predicted(text));
    ++counts[label].texts;
    ++counts[predicted].predicted;
    if (label == predicted) ++counts[label].correct;
  }
  return counts;
}

double macro_f1(const std::vector<ClassCounts>& counts) {
  const auto f1 = [&](std::int64_t label) { return counts[static_cast<std::size_t>(label)].f1(); };
  return mean_over_classes(std::ssize(counts), f1).value();  // a split has a text
}

std::optional<double> roc_auc(const ClassProbabilities& probabilities) {
  if (probabilities.classes == 2) return auc_of_class(probabilities, 1);
  return mean_over_classes(probabilities.classes,
                           [&](std::int64_t label) { return auc_of_class(probabilities, label); });
}

std::size_t confidence_bin(double confidence) {
  return std::min(confidence_bins - 1, static_cast<std::size_t>(std::floor(confidence * confidence_bins)));
}

double calibration_error(const ClassProbabilities& probabilities) {
  std::array<double, confidence_bins> surplus{};  // sum of confidence - correctness
  for (std::int64_t text = 0; text < probabilities.texts(); ++text) {
    const auto predicted = probabilities.predicted(text);
    const double confidence = probabilities.at(text, predicted);
    surplus[confidence_bin(confidence)] += confidence - (predicted == probabilities.label(text) ? 1 : 0);
  }
  double error = 0;
  for (const double sum : surplus) error += std::abs(sum);
  return error / static_cast<double>(probabilities.texts());
}

torch::Tensor calibrating_shift(const torch::Tensor& logits_bv, const torch::Tensor& targets_bv,
                                const torch::Tensor& weights_b) {
  constexpr int most_rounds = 500;
  constexpr double close = 1e-7;
  const auto share_b1 = (weights_b / weights_b.sum()).unsqueeze(1);
  const auto wanted_v = (targets_bv * share_b1).sum(0);
  auto shift_v = torch::zeros_like(wanted_v);
  for (int round = 0; round < most_rounds; ++round) {
    const auto told_v = (torch::softmax(logits_bv + shift_v, 1) * share_b1).sum(0);
    const auto step_v = torch::where(wanted_v > 0, (wanted_v / told_v).log(), 0.0);
    shift_v = shift_v + step_v;
    if (step_v.abs().max().item<double>() < close) break;
  }
  return shift_v;
}

void recalibrate(Classifier& model, const TrainingTexts& texts, std::int64_t count, const ExperimentConfig& config,
                 const torch::Tensor& weights_v, torch::Device device) {
  constexpr std::int64_t most_texts = 4096;
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(config.train.precision, device);
  model.set_logit_shift(torch::zeros({}));  // what follows is then a function of the weights only
  const NetworkPredictor predictor(model);
  std::vector<torch::Tensor> logits, labels;
  const auto wanted = std::min(most_texts, count), rows = config.train.batch_size;
  for (std::int64_t first = 0; first < wanted; first += rows) {
    const auto batch = texts(first, std::min(rows, wanted - first));
    logits.push_back(widened(predictor.logits(batch)).to(torch::kCPU, torch::kDouble));
    labels.push_back(batch.labels_l.cpu());
  }
  const auto logits_bv = torch::cat(logits), labels_l = torch::cat(labels);
  if (!logits_bv.isfinite().all().item<bool>()) return;  // the evaluation that follows reports it
  const auto classes = logits_bv.size(1);
  const double smoothing = classification(config).label_smoothing;
  const auto targets_bv =
      torch::one_hot(labels_l, classes) * (1 - smoothing) + smoothing / static_cast<double>(classes);
  // As in LibTorch's cross-entropy, the weight of a class applies to the fraction of each target for that class.
  const auto weighted_bv = weights_v.defined() ? targets_bv * weights_v.to(torch::kCPU, torch::kDouble) : targets_bv;
  const auto weights_b = weighted_bv.sum(1);
  model.set_logit_shift(calibrating_shift(logits_bv, weighted_bv / weights_b.unsqueeze(1), weights_b));
}

ClassificationMeasures::ClassificationMeasures(std::shared_ptr<const LabelledDataset> dataset,
                                               SelectionMetric selection)
    : dataset_(std::move(dataset)), selection_(selection) {}

void ClassificationMeasures::score(const torch::Tensor& given_lv, const Batch& batch, ScoreSums& sums) const {
  const auto logits_lv = widened(given_lv);
  sums.add("loss", at::cross_entropy_loss(logits_lv, batch.labels_l, {}, at::Reduction::Sum));
  sums.add("logits", logits_lv.to(torch::kDouble));
  sums.add("labels", batch.labels_l);
  sums.add("weight", batch.weight);
}

Evaluation ClassificationMeasures::report(const ScoreSums& sums, Split, Tables tables) const {
  return report_of(scored_probabilities(sums), sums.item("loss") / sums.item("weight"), tables);
}

Evaluation ClassificationMeasures::report_of(const ClassProbabilities& probabilities, double loss,
                                             Tables tables) const {
  const auto counts = count_classes(probabilities);
  double correct = 0;
  for (const auto& count : counts) correct += static_cast<double>(count.correct);
  Evaluation report{.scores = {{"loss", loss},
                               {"accuracy", correct / static_cast<double>(probabilities.texts())},
                               {"f1", macro_f1(counts)}}};
  if (std::isfinite(loss)) {  // a network that diverged ranks nothing
    if (const auto auc = roc_auc(probabilities)) report.scores.emplace_back("auc", *auc);
    report.scores.emplace_back("calibration_error", calibration_error(probabilities));
  }
  report.scores.emplace_back("texts", probabilities.texts());
  const bool all = tables == Tables::all;
  if (all || labels().size() <= most_reported_classes)
    for (std::size_t i = 0; i < labels().size(); ++i) report.classes.emplace_back(labels()[i], counts[i]);
  if (all && labels().size() <= most_confused_classes) report.confusion = confusion_table(probabilities);
  return report;
}

std::string ClassificationMeasures::confusion_csv(const ScoreSums& sums) const {
  const auto table = confusion_table(scored_probabilities(sums));
  std::string text = "true_label";
  for (const auto& label : labels()) text += "," + csv_field(label);
  auto count = table.begin();
  for (const auto& label : labels()) {
    text += "\n" + csv_field(label);
    for (std::size_t predicted = 0; predicted < labels().size(); ++predicted)
      fmt::format_to(std::back_inserter(text), ",{}", *count++);
  }
  return text + "\n";
}

ClassProbabilities ClassificationMeasures::probabilities_of(const ScoreSums& sums, Split split,
                                                            double temperature) const {
  const auto& order = dataset_->source_order(split);
  const auto places_l = torch::tensor(std::vector<std::int64_t>(order.begin(), order.end()));
  const auto inverse_l = places_l.argsort();
  return class_probabilities(sums.joined("logits").cpu().index_select(0, inverse_l),
                             sums.joined("labels").cpu().index_select(0, inverse_l), temperature);
}

double ClassificationMeasures::selection_error(const Evaluation& evaluation) const {
  if (selection_ == SelectionMetric::loss) return evaluation.at("loss");
  return 1 - evaluation.find(to_string(selection_)).value_or(0);
}

std::vector<std::string> ClassificationMeasures::headline() const {
  std::vector<std::string> names = {"accuracy"};
  if (selection_ == SelectionMetric::auc) names.push_back("auc");
  return names;
}

Task make_classification_task(const ExperimentConfig& config, bool offline, Codec given) {
  const auto dataset = std::make_shared<const LabelledDataset>(
      load_encoded_splits(labelled_data(config), offline, std::move(given)), BatchOptions::of(config));
  const auto& options = classification(config);
  const auto& codec = dataset->codec();
  if (dataset->cut_count() > 0)
    log::info("{} texts are longer than model.context {} tokens; of these the {} is kept (task.truncation)",
              dataset->cut_count(), context_of(config.model),
              options.truncation == Truncation::head_and_tail ? "head and tail" : to_string(options.truncation));
  const auto weights_v = options.class_weights == ClassWeights::balanced ? balanced_weights(*dataset) : torch::Tensor();
  const auto texts = std::make_shared<const LabelledStream>(config, dataset);
  const auto measures = std::make_shared<const ClassificationMeasures>(dataset, options.selection_metric);
  Task task{.codec = {dataset, &codec},
            .description = dataset->description(),
            .summary = fmt::format("{} ({} + {} + {} texts, {} classes, vocabulary of {} tokens, {:.0f} tokens a text)",
                                   dataset->description().at("train").at("path").get<std::string>(),
                                   dataset->count(Split::train), dataset->count(Split::validation),
                                   dataset->count(Split::test), codec.labels.size(), codec.tokenizer->vocabulary_size(),
                                   dataset->mean_length()),
            .bytes_per_token = dataset->bytes_per_token(),
            .batches = texts,
            .objective = class_objective(weights_v, options.label_smoothing),
            .measures = measures,
            .classes = measures};
  // With overfit_batch no checkpoint is chosen, and no shift is needed.
  if (!config.train.overfit_batch)
    task.check = [dataset, by_auc = options.selection_metric == SelectionMetric::auc] {
      warn_of_rare_classes(*dataset);
      if (by_auc) require_two_classes(*dataset, Split::validation);
    };
  task.before_training = [texts, config, sizes = sizes_of(codec)](SequenceModel& model) {
    if (transformer(config).embedding.scale == EmbeddingScale::log_count_ratio)
      scale_by_log_count_ratios(classifier(model), *texts, sizes);
    if (bag_options(classification(config).head) != nullptr)
      scale_bag_by_log_count_ratios(classifier(model).bag(), *texts, sizes.classes);
  };
  if (recalibrates(options.head) && !config.train.overfit_batch)
    task.before_evaluation = [dataset, texts, config, weights_v](SequenceModel& model, torch::Device device) {
      const auto batch_of = [&](auto first, auto rows) { return texts->distinct_batch(first, rows, device); };
      recalibrate(classifier(model), batch_of, dataset->count(Split::train), config, weights_v, device);
    };
  return task;
}

}  // namespace metaformer
