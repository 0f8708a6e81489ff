#include "report/class_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "base/rows.h"
#include "report/json.h"
#include "run/run_summary.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t most_shown_classes = 60, most_roc_classes = 20;

std::int64_t count_of(const std::string& cell, const fs::path& file, std::int64_t line) {
  std::int64_t count = 0;
  const auto* end = cell.data() + cell.size();
  if (const auto [rest, error] = std::from_chars(cell.data(), end, count);
      error != std::errc() || rest != end || count < 0)
    fail_data("{}:{}: '{}' is no number of texts; expected a whole number from 0 on", file.string(), line, cell);
  return count;
}

// The numbers of texts of the class and of others with at least some probability of the class, for all probabilities
// from the highest down; first 0 and 0.
std::vector<std::array<std::int64_t, 2>> counts_by_threshold(const ClassProbabilities& probabilities,
                                                             std::int64_t label) {
  std::vector<std::pair<double, std::size_t>> texts;  // probability; 0: of the class, 1: of another
  for (std::int64_t text = 0; text < probabilities.texts(); ++text)
    texts.emplace_back(probabilities.at(text, label), probabilities.label(text) == label ? 0 : 1);
  std::ranges::sort(texts, std::greater());
  std::vector<std::array<std::int64_t, 2>> counts = {{0, 0}};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i == 0 || texts[i].first != texts[i - 1].first) counts.push_back(counts.back());
    ++counts.back()[texts[i].second];
  }
  return counts;
}

// Leaves out the points on the line between their neighbours.
void keep_corners(std::vector<std::array<std::int64_t, 2>>& counts) {
  std::vector<std::array<std::int64_t, 2>> kept;
  const auto is_on_line = [&](const auto& next) {
    const auto &a = kept[kept.size() - 2], &b = kept.back();
    return (b[0] - a[0]) * (next[1] - b[1]) == (b[1] - a[1]) * (next[0] - b[0]);
  };
  for (const auto& point : counts) {
    if (kept.size() > 1 && is_on_line(point)) kept.pop_back();
    kept.push_back(point);
  }
  counts = std::move(kept);
}

Json rows_of(const ConfusionMatrix& matrix) {
  auto rows = Json::array();
  const auto classes = matrix.labels.size();
  for (std::size_t row = 0; row < classes; ++row) {
    const auto first = matrix.counts.begin() + static_cast<std::ptrdiff_t>(row * classes);
    rows.push_back(std::vector<std::int64_t>(first, first + static_cast<std::ptrdiff_t>(classes)));
  }
  return rows;
}

void add_confusion(Json& json, const RunDirectory& run) {
  for (const char* split : {"validation", "test"}) {
    const auto file = run.confusion_file(split);
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    const auto matrix = read_confusion(file);
    if (matrix.labels.size() > most_shown_classes) {
      json["missing"].push_back(fmt::format("{} classes, more than {}: the confusion matrix is only in {}",
                                            matrix.labels.size(), most_shown_classes, file.filename().string()));
      continue;
    }
    json["labels"] = matrix.labels;
    json["confusion"][split] = rows_of(matrix);
  }
  if (json["confusion"].empty() && json["missing"].empty())
    json["missing"].push_back("no confusion matrix: training writes confusion_validation.csv when it ends");
}

void add_roc(Json& json, const ClassProbabilities& probabilities, std::size_t most_points) {
  const bool binary = probabilities.classes == 2;
  const auto shown = std::min<std::int64_t>(probabilities.classes, most_roc_classes);
  for (std::int64_t label = binary ? 1 : 0; label < shown; ++label) {
    const auto curve = roc_curve(probabilities, label);
    if (!curve) continue;
    const auto points = thinned(*curve, most_points);
    json["roc"].push_back({{"label", label},
                           {"x", rounded(points.false_positives, 4)},
                           {"y", rounded(points.true_positives, 4)},
                           {"area", rounded(curve->area())}});
  }
  if (shown < probabilities.classes)
    json["missing"].push_back(fmt::format("ROC curves of {} of {} classes", shown, probabilities.classes));
}

}  // namespace

std::vector<ReliabilityBin> reliability_bins(const ClassProbabilities& probabilities) {
  std::vector<ReliabilityBin> bins(confidence_bins);
  for (std::int64_t text = 0; text < probabilities.texts(); ++text) {
    const auto predicted = probabilities.predicted(text);
    const double confidence = probabilities.at(text, predicted);
    auto& bin = bins[confidence_bin(confidence)];
    ++bin.texts;
    bin.confidence += confidence;
    bin.accuracy += predicted == probabilities.label(text) ? 1 : 0;
  }
  std::erase_if(bins, [](const ReliabilityBin& bin) { return bin.texts == 0; });
  for (auto& bin : bins) {
    bin.confidence /= static_cast<double>(bin.texts);
    bin.accuracy /= static_cast<double>(bin.texts);
  }
  return bins;
}

double RocCurve::area() const {
  double sum = 0;
  for (std::size_t i = 1; i < false_positives.size(); ++i)
    sum += (false_positives[i] - false_positives[i - 1]) * (true_positives[i] + true_positives[i - 1]) / 2;
  return sum;
}

std::optional<RocCurve> roc_curve(const ClassProbabilities& probabilities, std::int64_t label) {
  auto counts = counts_by_threshold(probabilities, label);
  const auto [members, others] = counts.back();
  if (members == 0 || others == 0) return std::nullopt;
  keep_corners(counts);
  RocCurve curve;
  for (const auto& [of_class, of_others] : counts) {
    curve.false_positives.push_back(static_cast<double>(of_others) / static_cast<double>(others));
    curve.true_positives.push_back(static_cast<double>(of_class) / static_cast<double>(members));
  }
  return curve;
}

RocCurve thinned(const RocCurve& curve, std::size_t most_points) {
  const auto count = curve.false_positives.size();
  if (count <= most_points) return curve;
  RocCurve result;
  for (std::size_t i = 0, next = 0; i < count; ++i) {  // from 0 to 2 along the axes
    const double place = (curve.false_positives[i] + curve.true_positives[i]) / 2;
    if (place * static_cast<double>(most_points - 1) < static_cast<double>(next) - 1e-9 && i + 1 < count) continue;
    result.false_positives.push_back(curve.false_positives[i]);
    result.true_positives.push_back(curve.true_positives[i]);
    next = static_cast<std::size_t>(std::floor(place * static_cast<double>(most_points - 1) + 1e-9)) + 1;
  }
  return result;
}

ConfusionMatrix read_confusion(const fs::path& file) {
  constexpr std::uintmax_t largest = std::uintmax_t{1} << 30;
  ConfusionMatrix matrix;
  bool has_head = false;
  std::size_t rows = 0;
  for_each_csv_row(read_file(file, largest, ExitCode::data), [&](DelimitedRow&& row) {
    if (!row.defect.empty()) fail_data("{}:{}: {}", file.string(), row.line, row.defect);
    auto& cells = row.fields;
    if (!has_head) {
      matrix.labels.assign(std::next(cells.begin()), cells.end());
      has_head = true;
      return;
    }
    const auto classes = matrix.labels.size();
    if (cells.size() != classes + 1 || rows >= classes || cells.front() != matrix.labels[rows])
      fail_data("{}:{}: expected a row for each of the {} classes of the first line, in its order", file.string(),
                row.line, classes);
    ++rows;
    for (std::size_t i = 1; i < cells.size(); ++i) matrix.counts.push_back(count_of(cells[i], file, row.line));
  });
  if (rows == 0 || rows != matrix.labels.size())
    fail_data("{}: {} rows for {} classes; expected a row for each", file.string(), rows, matrix.labels.size());
  return matrix;
}

Json describe_classes(const RunDirectory& run, std::size_t most_points) {
  Json json = {{"labels", Json::array()},
               {"confusion", Json::object()},
               {"reliability", Json::array()},
               {"roc", Json::array()},
               {"missing", Json::array()}};
  add_confusion(json, run);
  auto split = Split::test;
  auto predictions = read_predictions(run, split);
  if (!predictions) predictions = read_predictions(run, split = Split::validation);
  if (!predictions) {
    json["missing"].push_back(
        "no reliability and no ROC curves: it has neither test_predictions.safetensors nor "
        "validation_predictions.safetensors, which training writes when it ends");
    return json;
  }
  json["split"] = to_string(split);
  const auto probabilities = to_probabilities(predictions->probabilities_lv, predictions->labels_l);
  for (const auto& [texts, confidence, accuracy] : reliability_bins(probabilities))
    json["reliability"].push_back({texts, rounded(confidence), rounded(accuracy)});
  add_roc(json, probabilities, most_points);
  return json;
}

}  // namespace metaformer
