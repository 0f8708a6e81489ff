#pragma once
// Results of a classifier for the report, from the files of its run: confusion matrices, reliability and ROC curves.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "run/run_directory.h"
#include "tasks/classification_task.h"

namespace metaformer {

// The texts whose confidence lies in a bin (confidence_bin).
struct ReliabilityBin {
  std::int64_t texts = 0;
  double confidence = 0, accuracy = 0;  // means over the texts

  bool operator==(const ReliabilityBin&) const = default;
};

// Bins without texts are left out.
std::vector<ReliabilityBin> reliability_bins(const ClassProbabilities& probabilities);

// The rates of texts that get a class at all thresholds of its probability, from (0, 0) to (1, 1): of the texts of
// other classes, and of the texts of this class. Texts of equal probability are one step. Points on the line between
// their neighbours are left out.
struct RocCurve {
  std::vector<double> false_positives, true_positives;

  double area() const;
};

// Nothing if no text or every text has the class.
std::optional<RocCurve> roc_curve(const ClassProbabilities& probabilities, std::int64_t label);

// At most `most_points` points, evenly spread along the curve, with both ends.
RocCurve thinned(const RocCurve& curve, std::size_t most_points);

// The number of texts by true and predicted class, as confusion_SPLIT.csv has them.
struct ConfusionMatrix {
  std::vector<std::string> labels;
  std::vector<std::int64_t> counts;  // [true class][predicted class]
};

// Errors (exit code 3), with FILE:LINE: it cannot be read, or is no square table of whole numbers.
ConfusionMatrix read_confusion(const std::filesystem::path& file);

// {"labels": [..], "confusion": {SPLIT: [[..]]}, "reliability": [[texts, confidence, accuracy]],
//  "roc": [{"label": its number, "x": [..], "y": [..], "area"}], "split": of "reliability" and "roc", "test" or without
//  predictions of it "validation", "missing": [lines on missing or too large results]}.
// For two classes the only ROC curve is that of the second. Errors: those of read_confusion and read_predictions.
nlohmann::ordered_json describe_classes(const RunDirectory& run, std::size_t most_points);

}  // namespace metaformer
