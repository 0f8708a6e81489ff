#include "report/curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "report/statistics.h"
#include "tasks/measures.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

constexpr const char* train_loss = "train loss";
constexpr const char* validation_loss = "validation loss";
constexpr const char* norm_curve = "gradient norm";
constexpr const char* rate_curve = "learning rate";
constexpr const char* speed_curve = "tokens per second";

double mean(const std::vector<double>& values, std::size_t first, std::size_t last) {
  return std::accumulate(values.data() + first, values.data() + last, 0.0) / static_cast<double>(last - first);
}

// The training at a line of the log, by the last training line.
struct Progressed {
  double step = 0, seconds = 0, tokens = std::nan("");
};

void add_point(StepCurve& curve, const Progressed& at, const Json& value) {
  if (!value.is_number()) return;
  if (!curve.step.empty() && curve.step.back() == at.step) {  // the last evaluation is logged twice
    curve.value.back() = value;
    return;
  }
  curve.step.push_back(at.step);
  curve.time.push_back(at.seconds);
  curve.tokens.push_back(at.tokens);
  curve.value.push_back(value);
}

// Tokens per second since the training line before.
Json speed_since(const Progressed& before, const Progressed& at) {
  const double tokens = at.tokens - (before.step > 0 ? before.tokens : 0), seconds = at.seconds - before.seconds;
  const double speed = tokens / seconds;
  return seconds > 0 && speed >= 0 ? Json(speed) : Json();  // not after a rollback
}

void add_training_line(std::map<std::string, StepCurve>& curves, Progressed& at, const Json& line) {
  const auto before = at;
  at.step = line["step"];
  const auto member = [&](const char* key) { return line.value(key, Json()); };
  if (member("seconds").is_number()) at.seconds = line["seconds"];
  if (member("tokens").is_number()) at.tokens = line["tokens"];
  add_point(curves[train_loss], at, member("loss"));
  add_point(curves[norm_curve], at, member("gradient_norm"));
  add_point(curves[rate_curve], at, member("learning_rate"));
  add_point(curves[speed_curve], at, speed_since(before, at));
}

// `value`: a number, or a list with a number for each head.
void add_point(StepCurve& curve, double step, const Json& value) {
  std::vector<double> numbers;
  for (const auto& number : value.is_array() ? value : Json::array({value}))
    if (number.is_number()) numbers.push_back(number.get<double>());
  if (numbers.empty()) return;
  curve.step.push_back(step);
  curve.value.push_back(mean(numbers, 0, numbers.size()));
  if (!value.is_array()) return;
  curve.low.push_back(*std::min_element(numbers.begin(), numbers.end()));
  curve.high.push_back(*std::max_element(numbers.begin(), numbers.end()));
}

// Panels by the keys of diagnostics, in the order shown.
const std::vector<std::pair<std::string, BlockPanel>>& shown_diagnostics() {
  static const std::vector<std::pair<std::string, BlockPanel>> shown = {
      {"stream_norm", {"norm of the stream", true}},
      {"attention_entropy", {"entropy of attention (1: uniform)"}},
      {"cross_attention_entropy", {"entropy of attention to the source (1: uniform)"}},
      {"score_std", {"standard deviation of the scores", true}},
      {"cross_score_std", {"standard deviation of the scores of the source", true}},
      {"stream_gradient", {"gradient with respect to the stream", true}}};
  return shown;
}

// Adds a line of diagnostics to the panels, one for each entry of shown_diagnostics().
void add_blocks(std::vector<BlockPanel>& panels, double step, const Json& line) {
  for (const auto& [block, values] : line.items())
    for (std::size_t i = 0; values.is_object() && i < panels.size(); ++i) {
      const auto& key = shown_diagnostics()[i].first;
      if (!values.contains(key)) continue;
      auto& lines = panels[i].lines;
      auto found = std::ranges::find(lines, block, &std::pair<std::string, StepCurve>::first);
      if (found == lines.end()) found = lines.insert(lines.end(), {block, {}});
      add_point(found->second, step, values.at(key));
    }
}

}  // namespace

LoggedCurves read_curves(const std::filesystem::path& metrics_file) {
  constexpr std::uintmax_t largest = std::uintmax_t{1} << 31;
  std::istringstream lines(read_file(metrics_file, largest, ExitCode::data));
  LoggedCurves logged;
  for (const auto& [key, panel] : shown_diagnostics()) logged.blocks.push_back(panel);
  std::map<std::string, StepCurve> estimates;
  Progressed at;
  for (std::string line; std::getline(lines, line);) {
    const auto json = parse_json<Json>(line);
    const auto member = [&](const std::string& key) { return json.value(key, Json()); };
    if (!json.is_object() || !member("step").is_number()) continue;
    const auto split = member("split");
    if (split == "train") {
      add_training_line(logged.curves, at, json);
    } else if (split == "validation" || split == "validation_estimate") {
      auto& target = split == "validation" ? logged.curves : estimates;
      const Progressed now{.step = json["step"], .seconds = at.seconds, .tokens = at.tokens};
      add_point(target[validation_loss], now, member("loss"));
      for (const auto& measure : all_measures())
        if (!measure.axis.empty()) add_point(target["validation " + measure.id], now, member(measure.id));
    } else if (split == "diagnostics") {
      add_blocks(logged.blocks, json["step"], json);
    }
  }
  for (auto& [name, curve] : estimates)
    if (!curve.step.empty()) logged.curves[name] = std::move(curve);
  std::erase_if(logged.curves, [](const auto& entry) { return entry.second.step.empty(); });
  std::erase_if(logged.blocks, [](const auto& panel) { return panel.lines.empty(); });
  return logged;
}

bool describes_interval(const std::string& name) {
  return name == train_loss || name == norm_curve || name == speed_curve;
}

StepCurve thinned(const StepCurve& curve, std::size_t most_points, bool averages) {
  const auto count = curve.step.size();
  if (count <= most_points) return curve;
  StepCurve result;
  for (std::size_t i = 0; i < most_points; ++i) {
    const std::size_t first = i * count / most_points, end = (i + 1) * count / most_points;
    for (const auto part :
         {&StepCurve::step, &StepCurve::time, &StepCurve::tokens, &StepCurve::value, &StepCurve::low, &StepCurve::high})
      if (!(curve.*part).empty()) (result.*part).push_back((curve.*part)[end - 1]);
    if (averages) result.value.back() = mean(curve.value, first, end);
  }
  return result;
}

StepCurve mean_curve(const std::vector<const StepCurve*>& curves) {
  StepCurve group;
  if (curves.empty()) return group;
  std::map<double, std::array<std::vector<double>, 3>>
      points;  // times, tokens and values by step, of all curves so far
  for (std::size_t c = 0; c < curves.size(); ++c)
    for (std::size_t i = 0; i < curves[c]->step.size(); ++i)
      if (auto& [times, tokens, values] = points[curves[c]->step[i]]; values.size() == c) {
        times.push_back(curves[c]->time[i]);
        tokens.push_back(curves[c]->tokens.empty() ? std::nan("") : curves[c]->tokens[i]);
        values.push_back(curves[c]->value[i]);
      }
  for (const auto& [step, of_runs] : points) {
    if (of_runs[2].size() < curves.size()) continue;
    const auto time = summarise(of_runs[0]), value = summarise(of_runs[2]);
    group.step.push_back(step);
    group.time.push_back(time.mean);
    group.tokens.push_back(mean(of_runs[1], 0, of_runs[1].size()));
    group.value.push_back(value.mean);
    if (!value.deviation) continue;
    group.low.push_back(value.mean - *value.deviation);
    group.high.push_back(value.mean + *value.deviation);
  }
  return group;
}

std::vector<CurveView> views_of(const CurveTable& table) {
  std::vector<CurveView> views;
  for (const char* name : {validation_loss, train_loss})
    if (table.contains(name)) views.push_back({name, name, "loss", {name}});
  if (views.size() == 2)
    views.push_back({"both", "training and validation loss", "loss", {train_loss, validation_loss}});
  for (const auto& measure : all_measures())
    if (const auto name = "validation " + measure.id; !measure.axis.empty() && table.contains(name))
      views.push_back({name, "validation " + measure.axis, measure.axis, {name}});
  if (table.contains(norm_curve))
    views.push_back({norm_curve, norm_curve, "gradient norm before clipping", {norm_curve}});
  if (table.contains(rate_curve)) views.push_back({rate_curve, rate_curve, rate_curve, {rate_curve}});
  if (table.contains(speed_curve)) views.push_back({speed_curve, "throughput", speed_curve, {speed_curve}});
  // Runs that evaluate only at their end have no curve of the validation loss, so its view does not come first.
  const auto found = table.find(validation_loss);
  const auto is_line = [](const StepCurve& curve) { return curve.step.size() > 1; };
  const bool points_only = found != table.end() && std::ranges::none_of(found->second.runs, is_line);
  if (points_only && views.size() > 1) std::swap(views[0], views[1]);
  return views;
}

figures::Figure figure_of(const CurveTable& table, const CurveView& view, const std::vector<std::string>& group_names) {
  figures::LineChart by_step{.x = {.label = "step"}, .y = {.label = view.unit}, .curves = {}};
  figures::LineChart by_time{.x = {.label = "training time in minutes"}, .y = {.label = view.unit}, .curves = {}};
  bool has_bands = false;
  for (const auto& name : view.series) {
    const bool train = view.series.size() > 1 && name == train_loss;
    for (int g = 0; const auto& group : table.at(name).groups) {
      by_step.curves.push_back({.name = group_names[static_cast<std::size_t>(g)] + (train ? " (train)" : ""),
                                .x = group.step,
                                .y = group.value,
                                .low = group.low,
                                .high = group.high,
                                .color = g++,
                                .thin = train});
      has_bands = has_bands || !group.low.empty();
      auto& minutes = by_time.curves.emplace_back(by_step.curves.back()).x;
      std::ranges::transform(group.time, minutes.begin(), [](double seconds) { return seconds / 60; });
    }
  }
  return {.title = view.title,
          .description = has_bands ? "Means over the seeds; bands are one standard deviation." : "",
          .panels = {{"by step", std::move(by_step)}, {"by time", std::move(by_time)}},
          .columns = 2};
}

}  // namespace metaformer
