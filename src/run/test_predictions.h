#pragma once
// Results of a run on held-out splits: the test scores, a classifier's confusion tables, and
// test_predictions.safetensors, its probabilities for each test text, to compare it with others text by text.

#include <optional>

#include "run/run_directory.h"
#include "tasks/evaluation.h"

namespace metaformer {

// Of the best checkpoint, texts in the order of the source.
struct TestPredictions {
  torch::Tensor probabilities_lv;  // float64, every row sums to 1
  torch::Tensor labels_l;          // int64, the true classes
};

// Nothing when the run has none. Errors (exit code 1): the file is damaged, or is not such a file.
std::optional<TestPredictions> read_test_predictions(const RunDirectory& run);

// Of a classifier, writes confusion_SPLIT.csv of the run from the scores of a whole split; not for more than
// most_confused_classes.
void write_confusion(const RunDirectory& run, const Task& task, Split split, const ScoreSums& sums);

// The evaluation of the whole test split. Of a classifier, also writes the run's confusion_test.csv and, unless it was
// trained and is evaluated on one batch only (train.overfit_batch), the predictions. Processes of a group share the
// work; the first writes.
Evaluation report_test(const Scoring& scoring, const TrainConfig& train, const RunDirectory& run);

}  // namespace metaformer
