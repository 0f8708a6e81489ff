#include "tasks/classification_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace metaformer {

namespace {

// Classes are whatever labels the texts have, so that a slip of the pen is one too.
void warn_of_rare_classes(const LabelledDataset& dataset) {
  constexpr std::int64_t a_few = 3, much_rarer = 10, far_rarer = 200;
  const auto counts = training_counts(dataset);
  const auto usual = dataset.count(Split::train) / static_cast<std::int64_t>(counts.size());
  for (std::size_t label = 0; label < counts.size(); ++label)
    if (const auto count = counts[label]; usual > (count <= a_few ? much_rarer : far_rarer) * count)
      log::warning("{1} of the {2} training texts have the label {0}: is it a mistake?",
                   in_quotes(dataset.codec().labels[label]), count, dataset.count(Split::train));
}

// The AUC of a split is over the classes that it has, and one class has none: no step could be chosen by it.
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

}  // namespace

std::vector<std::int64_t> training_counts(const LabelledDataset& dataset) {
  std::vector<std::int64_t> counts(dataset.codec().labels.size());
  for (const auto& text : dataset.texts(Split::train)) ++counts[static_cast<std::size_t>(text.label)];
  return counts;
}

// A batch that is learned by heart (train.overfit_batch) chooses nothing.
void ClassificationData::check() const {
  if (config_.train.overfit_batch) return;
  warn_of_rare_classes(*dataset_);
  if (classification(config_).selection_metric == SelectionMetric::auc)
    require_two_classes(*dataset_, Split::validation);
}

std::string ClassificationData::summary() const {
  return fmt::format("{} ({} + {} + {} texts, {} classes, vocabulary of {} tokens, {:.0f} tokens a text)",
                     description().at("train").at("path").get<std::string>(), dataset_->count(Split::train),
                     dataset_->count(Split::validation), dataset_->count(Split::test), codec().labels.size(),
                     codec().tokenizer->vocabulary_size(), dataset_->mean_length());
}

}  // namespace metaformer
