#pragma once
// test_predictions.safetensors of a run: a classifier's probabilities for each test text, to compare it with others
// text by text.

#include <torch/types.h>

#include <optional>

#include "run/run_directory.h"

namespace metaformer {

// Of the best checkpoint, texts in the order of the source.
struct TestPredictions {
  torch::Tensor probabilities_lv;  // float64, every row sums to 1
  torch::Tensor labels_l;          // int64, the true classes
};

// Replaces the file at once. Errors: exit code 1.
void write_test_predictions(const RunDirectory& run, const TestPredictions& predictions);

// Nothing when the run has none. Errors (exit code 1): the file is damaged, or is not such a file.
std::optional<TestPredictions> read_test_predictions(const RunDirectory& run);

}  // namespace metaformer
