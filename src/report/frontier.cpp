#include "report/frontier.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "report/json.h"

namespace metaformer {

namespace {

// 1 if less is better, -1 if more is better.
double sign_of(const Measure& measure) { return measure.better == Measure::Better::higher ? -1 : 1; }

const GroupMeasure& measured(const ComparedGroup& group, const Measure& measure) {
  return group.measures.at(measure.id);
}

// The end of a name, because names differ there.
std::string end_of(const std::string& name, std::size_t most) {
  if (name.size() <= most) return name;
  auto start = name.size() - most + 1;
  while (start < name.size() && (static_cast<unsigned char>(name[start]) & 0xC0) == 0x80) ++start;
  return "…" + name.substr(start);
}

// The paired difference over the seeds that both groups have.
PairedDifference difference_between(const GroupMeasure& group, const GroupMeasure& other) {
  std::vector<double> differences;
  for (const auto& [seed, value] : group.values)
    if (const auto found = other.values.find(seed); found != other.values.end())
      differences.push_back(value - found->second);
  return differences.empty() ? PairedDifference{} : paired_difference(differences);
}

// The 95% interval of the mean over the runs; without bounds for one run.
PairedDifference interval_of(const GroupMeasure& group) {
  std::vector<double> values;
  for (const auto& [seed, value] : group.values) values.push_back(value);
  return paired_difference(values);
}

std::string left_out_line(const Frontier& frontier, const std::vector<std::string>& names) {
  if (frontier.left_out.empty()) return "";
  std::vector<std::string> found;
  for (const auto group : frontier.left_out) found.push_back(names[group]);
  return fmt::format("left out, without {} or {}: {}\n", frontier.x.id, frontier.y.id, fmt::join(found, ", "));
}

void find_better(FrontierPoint& point, const Frontier& frontier, const Comparison& comparison) {
  const auto& own = comparison.groups[point.group];
  double best = std::numeric_limits<double>::infinity();
  for (const auto& other : frontier.points) {
    const auto& group = comparison.groups[other.group];
    const auto cost = [&](const ComparedGroup& of) {
      return sign_of(frontier.x) * measured(of, frontier.x).summary.mean;
    };
    if (other.group == point.group || cost(group) > cost(own)) continue;
    const auto difference = difference_between(measured(own, frontier.y), measured(group, frontier.y));
    const double y = sign_of(frontier.y) * measured(group, frontier.y).summary.mean;
    const bool is_sure = difference.low && (sign_of(frontier.y) > 0 ? *difference.low > 0 : *difference.high < 0);
    if (!is_sure || y >= best) continue;
    best = y;
    point.better = other.group;
    point.difference = difference;
  }
}

std::string verdict(const FrontierPoint& point, const Frontier& frontier, const std::vector<std::string>& names) {
  if (point.better) {
    const auto& [pairs, mean, low, high, p, equivalent] = point.difference;
    const auto shown = [&](double value) { return shown_difference(frontier.y, value); };
    return fmt::format("behind {}: {} ({} to {})", names[*point.better], shown(mean), shown(*low), shown(*high));
  }
  return point.is_on_front ? "on the frontier" : "behind, but no interval shows it";
}

std::string value_cell(const Measure& measure, const ComparedGroup& group) {
  const auto& summary = measured(group, measure).summary;
  const auto mean = shown(measure, summary.mean);
  return summary.deviation && *summary.deviation > 0 ? mean + " ± " + shown(measure, *summary.deviation) : mean;
}

std::string direction_of(const Measure& measure) { return sign_of(measure) > 0 ? "less is better" : "more is better"; }

}  // namespace

std::vector<bool> pareto_front(const std::vector<double>& x, const std::vector<double>& y) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(x[i], y[i]); });
  std::vector<bool> is_on_front(x.size());
  double least_y = std::numeric_limits<double>::infinity(), x_of_least = least_y;
  for (const auto i : order) {
    is_on_front[i] = y[i] < least_y || (y[i] == least_y && x[i] == x_of_least);
    if (y[i] < least_y) least_y = y[i], x_of_least = x[i];
  }
  return is_on_front;
}

Frontier frontier_of(const Comparison& comparison, const std::string& x, const std::string& y) {
  if (!comparison.by.empty()) fail_usage("--frontier: not with --by, which compares groups of different data");
  Frontier frontier{.x = measure_of(x), .y = measure_of(y), .points = {}, .left_out = {}};
  std::vector<double> costs, qualities;
  const auto mean_of = [&](const ComparedGroup& group, const Measure& measure) -> std::optional<double> {
    const auto found = group.measures.find(measure.id);
    if (found == group.measures.end() || found->second.summary.count == 0) return std::nullopt;
    return sign_of(measure) * found->second.summary.mean;
  };
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto cost = mean_of(comparison.groups[i], frontier.x), quality = mean_of(comparison.groups[i], frontier.y);
    if (!cost || !quality) {
      frontier.left_out.push_back(i);
      continue;
    }
    frontier.points.push_back({.group = i, .is_on_front = false, .better = {}});
    costs.push_back(*cost);
    qualities.push_back(*quality);
  }
  if (frontier.points.empty()) fail_usage("--frontier {} {}: no group has both measures", x, y);
  const auto front = pareto_front(costs, qualities);
  for (std::size_t i = 0; i < front.size(); ++i) frontier.points[i].is_on_front = front[i];
  for (auto& point : frontier.points) {
    find_better(point, frontier, comparison);
    if (point.better) point.is_on_front = false;  // with different seeds, means and paired differences may disagree
  }
  std::ranges::stable_sort(frontier.points, {}, [&](const FrontierPoint& point) {
    return *mean_of(comparison.groups[point.group], frontier.x);
  });
  return frontier;
}

std::string to_text(const Frontier& frontier, const Comparison& comparison) {
  constexpr std::size_t longest = 48;
  auto names = short_names(comparison.groups);
  for (auto& name : names) name = end_of(name, longest);
  std::size_t widest = 5;
  for (const auto& point : frontier.points) widest = std::max(widest, names[point.group].size());
  auto text = fmt::format("\nfrontier of {} ({}) and {} ({})\n", frontier.x.title, direction_of(frontier.x),
                          frontier.y.title, direction_of(frontier.y));
  for (const auto& point : frontier.points) {
    const auto& group = comparison.groups[point.group];
    text += fmt::format("{} {:<{}}  {:>14}  {:>20}  {}\n", point.is_on_front ? "*" : " ", names[point.group], widest,
                        value_cell(frontier.x, group), value_cell(frontier.y, group), verdict(point, frontier, names));
  }
  return text + left_out_line(frontier, names);
}

std::string to_markdown(const Frontier& frontier, const Comparison& comparison) {
  const auto names = short_names(comparison.groups);
  auto text = fmt::format("| group | seeds | {} | {} | frontier |\n|---|---|---|---|---|\n", frontier.x.title,
                          frontier.y.title);
  for (const auto& point : frontier.points) {
    const auto& group = comparison.groups[point.group];
    text += fmt::format("| {} | {} | {} | {} | {} |\n", names[point.group], group.runs.size(),
                        value_cell(frontier.x, group), value_cell(frontier.y, group), verdict(point, frontier, names));
  }
  const auto left_out = left_out_line(frontier, names);
  return text + (left_out.empty() ? "" : "\n" + left_out);
}

nlohmann::ordered_json to_json(const Frontier& frontier, const Comparison& comparison) {
  const auto names = short_names(comparison.groups);
  auto points = nlohmann::ordered_json::array(), left_out = points;
  for (const auto group : frontier.left_out) left_out.push_back(comparison.groups[group].name);
  for (const auto& point : frontier.points) {
    points.push_back({{"group", comparison.groups[point.group].name},
                      {"front", point.is_on_front},
                      {"verdict", verdict(point, frontier, names)}});
    const auto interval = interval_of(measured(comparison.groups[point.group], frontier.y));
    points.back()["low"] = interval.low ? nlohmann::ordered_json(*interval.low) : nullptr;
    points.back()["high"] = interval.high ? nlohmann::ordered_json(*interval.high) : nullptr;
    if (!point.better) continue;
    points.back()["better"] = comparison.groups[*point.better].name;
    points.back()["difference"] = {{"pairs", point.difference.pairs},
                                   {"mean", point.difference.mean},
                                   {"low", *point.difference.low},
                                   {"high", *point.difference.high}};
  }
  return {{"x", frontier.x.id},
          {"y", frontier.y.id},
          {"measures", {to_json(frontier.x), to_json(frontier.y)}},
          {"points", points},
          {"left_out", left_out}};
}

figures::Figure figure_of(const Frontier& frontier, const Comparison& comparison) {
  const auto names = short_names(comparison.groups);
  figures::LineChart chart{.x = {.label = frontier.x.title}, .y = {.label = frontier.y.title}, .curves = {}};
  figures::Curve front{.name = "frontier", .color = 0, .style = figures::LineStyle::dashed};
  bool positive_x = true, positive_y = true;
  for (const auto& point : frontier.points) {
    const auto& group = comparison.groups[point.group];
    const double x = measured(group, frontier.x).summary.mean * frontier.x.scale,
                 y = measured(group, frontier.y).summary.mean * frontier.y.scale;
    positive_x = positive_x && x > 0;
    positive_y = positive_y && y > 0;
    if (point.is_on_front) front.x.push_back(x), front.y.push_back(y);
    const int color = static_cast<int>(1 + point.group % (figures::curve_colors - 1));
    constexpr auto solid = figures::LineStyle::solid;
    chart.curves.push_back(
        {.name = end_of(names[point.group], 28), .x = {x}, .y = {y}, .color = color, .style = solid, .labelled = true});
    if (const auto interval = interval_of(measured(group, frontier.y)); interval.low)
      chart.curves.push_back({.x = {x, x},
                              .y = {*interval.low * frontier.y.scale, *interval.high * frontier.y.scale},
                              .color = color,
                              .style = solid});
  }
  if (positive_x) chart.x.scale = figures::Scale::logarithmic;
  if (positive_y) chart.y.scale = figures::Scale::logarithmic;
  chart.curves.push_back(std::move(front));
  return {.title = fmt::format("{} and {}", frontier.x.title, frontier.y.title),
          .description =
              "Means over the seeds with 95% intervals. The dashed line joins the groups that no other beats in both.",
          .panels = {{"", std::move(chart)}}};
}

}  // namespace metaformer
