#include "report/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "report/page.h"

namespace metaformer {

using Json = nlohmann::json;

namespace {

constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 31;

void add_point(RunCurve& curve, double step, double time, const Json& value) {
  if (!value.is_number()) return;
  if (!curve.step.empty() && curve.step.back() == step) {  // the last evaluation stands there twice
    curve.value.back() = value;
    return;
  }
  curve.step.push_back(step);
  curve.time.push_back(time);
  curve.value.push_back(value);
}

double mean(const std::vector<double>& values, std::size_t first, std::size_t last) {
  double sum = 0;
  for (std::size_t i = first; i < last; ++i) sum += values[i];
  return sum / static_cast<double>(last - first);
}

// The indices of the steps that all curves have, by curve.
std::vector<std::vector<std::size_t>> common_points(const std::vector<const RunCurve*>& curves) {
  std::vector<std::vector<std::size_t>> points(curves.size());
  std::vector<std::size_t> next(curves.size(), 0);
  for (std::size_t i = 0; i < curves.front()->step.size(); ++i) {
    const double step = curves.front()->step[i];
    bool everywhere = true;
    for (std::size_t c = 0; c < curves.size(); ++c) {
      const auto& steps = curves[c]->step;
      while (next[c] < steps.size() && steps[next[c]] < step) ++next[c];
      everywhere = everywhere && next[c] < steps.size() && steps[next[c]] == step;
    }
    for (std::size_t c = 0; everywhere && c < curves.size(); ++c) points[c].push_back(next[c]);
  }
  return points;
}

nlohmann::ordered_json describe(const RunCurve& curve) {
  if (curve.step.empty()) return nullptr;
  return {{"step", rounded(curve.step, 12)}, {"time", rounded(curve.time)}, {"value", rounded(curve.value)}};
}

nlohmann::ordered_json describe(const GroupCurve& curve) {
  if (curve.step.empty()) return nullptr;
  nlohmann::ordered_json json = {
      {"step", rounded(curve.step, 12)}, {"time", rounded(curve.time)}, {"value", rounded(curve.mean)}};
  if (curve.low.empty()) return json;
  json["low"] = rounded(curve.low);
  json["high"] = rounded(curve.high);
  return json;
}

}  // namespace

std::map<std::string, RunCurve> read_curves(const std::filesystem::path& metrics_file) {
  std::istringstream lines(read_file(metrics_file, largest_file, ExitCode::data));
  std::map<std::string, RunCurve> curves, estimates;
  double seconds = 0;  // of training, as the last training line says
  for (std::string line; std::getline(lines, line);) {
    const auto json = parse_json<Json>(line);
    if (!json.is_object() || !json.value("step", Json()).is_number()) continue;
    const double step = json["step"];
    const auto split = json.value("split", Json());
    if (split == "train") {
      if (json.value("seconds", Json()).is_number()) seconds = json["seconds"];
      add_point(curves["train loss"], step, seconds, json.value("loss", Json()));
      add_point(curves["gradient norm"], step, seconds, json.value("gradient_norm", Json()));
    } else if (split == "validation" || split == "validation_estimate") {
      auto& target = split == "validation" ? curves : estimates;
      for (const char* name : {"loss", "accuracy", "exact_match", "auc"})
        add_point(target[fmt::format("validation {}", name)], step, seconds, json.value(name, Json()));
    }
  }
  for (auto& [name, curve] : estimates)
    if (!curve.step.empty()) curves[name] = std::move(curve);
  std::erase_if(curves, [](const auto& entry) { return entry.second.step.empty(); });
  return curves;
}

namespace {

struct ShownDiagnostic {
  const char *key, *title;
  bool log = false;  // drawn with a logarithmic axis
};

// In their order.
constexpr std::array<ShownDiagnostic, 6> shown_diagnostics = {
    {{"stream_norm", "norm of the stream", true},
     {"attention_entropy", "entropy of attention (1: uniform)"},
     {"cross_attention_entropy", "entropy of attention to the source (1: uniform)"},
     {"score_std", "standard deviation of the scores", true},
     {"cross_score_std", "standard deviation of the scores of the source", true},
     {"stream_gradient", "gradient with respect to the stream", true}}};

void add_point(BlockCurve& curve, double step, const nlohmann::ordered_json& value) {
  std::vector<double> numbers;
  for (const auto& number : value.is_array() ? value : nlohmann::ordered_json::array({value}))
    if (number.is_number()) numbers.push_back(number.get<double>());
  if (numbers.empty()) return;
  curve.step.push_back(step);
  curve.value.push_back(mean(numbers, 0, numbers.size()));
  if (!value.is_array()) return;
  curve.low.push_back(*std::min_element(numbers.begin(), numbers.end()));
  curve.high.push_back(*std::max_element(numbers.begin(), numbers.end()));
}

void add_groups(BlockCurves& curves, const nlohmann::ordered_json& line) {
  for (const auto& [group, values] : line.items()) {
    if (!values.is_object()) continue;
    for (const auto& [key, title, log] : shown_diagnostics) {
      if (!values.contains(key)) continue;
      auto& blocks = curves[title];
      const auto has_name = [&, name = group](const BlockCurve& curve) { return curve.block == name; };
      auto found = std::find_if(blocks.begin(), blocks.end(), has_name);
      if (found == blocks.end()) found = blocks.insert(blocks.end(), {.block = group});
      add_point(*found, line["step"].get<double>(), values.at(key));
    }
  }
}

std::vector<double> every_nth(const std::vector<double>& values, std::size_t most) {
  if (values.size() <= most) return values;
  std::vector<double> kept;
  for (std::size_t i = 1; i <= most; ++i) kept.push_back(values[i * values.size() / most - 1]);
  return kept;
}

}  // namespace

BlockCurves read_block_curves(const std::filesystem::path& metrics_file) {
  std::istringstream lines(read_file(metrics_file, largest_file, ExitCode::data));
  BlockCurves curves;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("diagnostics") == std::string::npos) continue;  // most lines are not to be parsed twice
    const auto json = parse_json<nlohmann::ordered_json>(line);
    if (!json.is_object() || json.value("split", Json()) != "diagnostics") continue;
    if (json.value("step", Json()).is_number()) add_groups(curves, json);
  }
  return curves;
}

nlohmann::ordered_json to_json(const BlockCurves& curves, std::size_t most_points) {
  auto panels = nlohmann::ordered_json::array();
  for (const auto& [key, title, log] : shown_diagnostics) {
    const auto found = curves.find(title);
    if (found == curves.end()) continue;
    auto& panel = panels.emplace_back(nlohmann::ordered_json{{"title", title}, {"log", log}});
    for (const auto& curve : found->second) {
      nlohmann::ordered_json line = {{"block", curve.block},
                                     {"step", rounded(every_nth(curve.step, most_points), 12)},
                                     {"value", rounded(every_nth(curve.value, most_points))}};
      if (!curve.low.empty()) {
        line["low"] = rounded(every_nth(curve.low, most_points));
        line["high"] = rounded(every_nth(curve.high, most_points));
      }
      panel["lines"].push_back(std::move(line));
    }
  }
  return panels;
}

RunCurve thinned(const RunCurve& curve, std::size_t most_points, bool averages) {
  const auto count = curve.step.size();
  if (count <= most_points) return curve;
  RunCurve result;
  for (std::size_t i = 0; i < most_points; ++i) {
    const std::size_t first = i * count / most_points, end = (i + 1) * count / most_points;
    result.step.push_back(curve.step[end - 1]);
    result.time.push_back(curve.time[end - 1]);
    result.value.push_back(averages ? mean(curve.value, first, end) : curve.value[end - 1]);
  }
  return result;
}

GroupCurve mean_curve(const std::vector<const RunCurve*>& curves) {
  GroupCurve group;
  if (curves.empty()) return group;
  const auto points = common_points(curves);
  const auto runs = static_cast<double>(curves.size());
  for (std::size_t i = 0; i < points.front().size(); ++i) {
    double time = 0, value = 0, squares = 0;
    for (std::size_t c = 0; c < curves.size(); ++c) {
      time += curves[c]->time[points[c][i]] / runs;
      value += curves[c]->value[points[c][i]] / runs;
    }
    for (std::size_t c = 0; c < curves.size(); ++c) squares += std::pow(curves[c]->value[points[c][i]] - value, 2);
    group.step.push_back(curves.front()->step[points.front()[i]]);
    group.time.push_back(time);
    group.mean.push_back(value);
    if (curves.size() < 2) continue;
    const double deviation = std::sqrt(squares / (runs - 1));
    group.low.push_back(value - deviation);
    group.high.push_back(value + deviation);
  }
  return group;
}

std::vector<CurveView> views_of(const CurveTable& table) {
  std::vector<CurveView> views;
  for (const char* name : {"validation loss", "train loss"})
    if (table.contains(name)) views.push_back({name, name, "loss", {name}});
  if (views.size() == 2)
    views.push_back({"both", "training and validation loss", "loss", {"train loss", "validation loss"}});
  constexpr std::array<std::array<const char*, 2>, 4> others = {{{"validation accuracy", "accuracy"},
                                                                 {"validation exact_match", "exact match"},
                                                                 {"validation auc", "area under the ROC curve"},
                                                                 {"gradient norm", "gradient norm before clipping"}}};
  for (const auto& [name, unit] : others)
    if (table.contains(name))
      views.push_back({name, unit == others[3][1] ? name : fmt::format("validation {}", unit), unit, {name}});
  // Runs that evaluate only at their end have no curve of the validation loss.
  const auto has_curve = [](const RunCurve& curve) { return curve.step.size() > 1; };
  const bool points_only =
      table.contains("validation loss") &&
      std::none_of(table.at("validation loss").runs.begin(), table.at("validation loss").runs.end(), has_curve);
  if (points_only && views.size() > 1) std::swap(views[0], views[1]);
  return views;
}

nlohmann::ordered_json to_json(const CurveTable& table) {
  nlohmann::ordered_json json = {{"views", nlohmann::ordered_json::array()},
                                 {"series", nlohmann::ordered_json::object()}};
  for (const auto& view : views_of(table))
    json["views"].push_back({{"name", view.name}, {"title", view.title}, {"unit", view.unit}, {"series", view.series}});
  for (const auto& [name, series] : table) {
    auto& entry = json["series"][name];
    entry = {{"runs", nlohmann::ordered_json::array()}, {"groups", nlohmann::ordered_json::array()}};
    for (const auto& curve : series.runs) entry["runs"].push_back(describe(curve));
    for (const auto& curve : series.groups) entry["groups"].push_back(describe(curve));
  }
  return json;
}

figures::Figure figure_of(const CurveTable& table, const CurveView& view, const std::vector<std::string>& group_names) {
  figures::LineChart by_step{.x = {.label = "step"}, .y = {.label = view.unit}};
  figures::LineChart by_time{.x = {.label = "training time in minutes"}, .y = {.label = view.unit}};
  bool has_bands = false;
  for (const auto& name : view.series) {
    const auto& groups = table.at(name).groups;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& group = groups[g];
      const bool train = view.series.size() > 1 && name == "train loss";
      figures::Curve curve{.name = group_names[g] + (train ? " (train)" : ""),
                           .x = group.step,
                           .y = group.mean,
                           .low = group.low,
                           .high = group.high,
                           .color = static_cast<int>(g),
                           .dashed = train};
      has_bands = has_bands || !group.low.empty();
      by_step.curves.push_back(curve);
      for (std::size_t i = 0; i < curve.x.size(); ++i) curve.x[i] = group.time[i] / 60;
      by_time.curves.push_back(std::move(curve));
    }
  }
  return {.title = view.title,
          .description = has_bands ? "Means over the seeds; bands are one standard deviation." : "",
          .panels = {{"by step", std::move(by_step)}, {"by time", std::move(by_time)}},
          .columns = 2};
}

}  // namespace metaformer
