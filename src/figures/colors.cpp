#include "figures/colors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "figures/scale.h"
#include "figures/svg.h"

namespace metaformer::figures {

namespace {

using Color = std::array<int, 3>;
using Stops = std::array<Color, 5>;

// Neighbours differ for readers who confuse red and green, too.
constexpr std::array<const char*, curve_colors> light_curves = {"#2a78d6", "#eb6834", "#1baf7a", "#eda100",
                                                                "#e87ba4", "#008300", "#4a3aa7", "#e34948"};
constexpr std::array<const char*, curve_colors> dark_curves = {"#3987e5", "#d95926", "#199e70", "#c98500",
                                                               "#d55181", "#3da53d", "#9085e9", "#e66767"};

// From next to the ground, from which zero must differ, to far from it.
constexpr Stops light_sequential = {
    {{0xe4, 0xef, 0xfc}, {0xa3, 0xc8, 0xf4}, {0x39, 0x87, 0xe5}, {0x1c, 0x5c, 0xab}, {0x0d, 0x2f, 0x5e}}};
constexpr Stops dark_sequential = {
    {{0x1c, 0x2b, 0x40}, {0x1c, 0x5c, 0xab}, {0x39, 0x87, 0xe5}, {0x86, 0xb6, 0xef}, {0xe3, 0xef, 0xfd}}};
constexpr Stops light_diverging = {
    {{0x0d, 0x4a, 0x94}, {0x6b, 0xa3, 0xe8}, {0xee, 0xed, 0xe9}, {0xec, 0x83, 0x79}, {0xa8, 0x1d, 0x1a}}};
constexpr Stops dark_diverging = {
    {{0x9a, 0xc5, 0xf7}, {0x2a, 0x6b, 0xc0}, {0x38, 0x38, 0x35}, {0xc9, 0x4f, 0x48}, {0xf7, 0xb0, 0xaa}}};

std::string blend(const Stops& stops, double share) {
  const double place = share * static_cast<double>(stops.size() - 1);
  const auto first = std::min(static_cast<std::size_t>(place), stops.size() - 2);
  const double weight = place - static_cast<double>(first);
  Color color{};
  for (std::size_t i = 0; i < color.size(); ++i)
    color[i] = static_cast<int>(std::lround(stops[first][i] * (1 - weight) + stops[first + 1][i] * weight));
  return fmt::format("#{:02x}{:02x}{:02x}", color[0], color[1], color[2]);
}

std::string level_rules(const char* letter, int levels, const Stops& stops) {
  std::string rules;
  for (int level = 0; level < levels; ++level)
    rules += fmt::format(".{}{}{{fill:{}}}", letter, level, blend(stops, static_cast<double>(level) / (levels - 1)));
  return rules + "\n";
}

struct Ground {
  const char *paper, *ink, *soft_ink, *grid;
};

std::string rules_of(const Ground& ground, const std::array<const char*, curve_colors>& curves) {
  auto rules = fmt::format(
      ".paper{{fill:{}}}.label{{fill:{}}}.title,.name{{fill:{}}}.grid{{stroke:{}}}.axis,.mark,.frame{{stroke:{}}}\n",
      ground.paper, ground.soft_ink, ground.ink, ground.grid, ground.soft_ink);
  for (int i = 0; i < curve_colors; ++i)
    rules += fmt::format(".c{0}{{stroke:{1}}}.b{0},.p{0}{{fill:{1}}}", i, curves[static_cast<std::size_t>(i)]);
  return rules + "\n";
}

std::string variables_of(const std::array<const char*, curve_colors>& curves, const Stops& sequential,
                         const Stops& diverging) {
  std::string rules = ":root{";
  for (int i = 0; i < curve_colors; ++i) rules += fmt::format("--curve-{}:{};", i, curves[static_cast<std::size_t>(i)]);
  const auto stops_of = [&](const char* name, const Stops& stops) {
    for (std::size_t i = 0; i < stops.size(); ++i)
      rules += fmt::format("--{}-{}:{};", name, i, blend(stops, static_cast<double>(i) / (stops.size() - 1.0)));
  };
  stops_of("sequential", sequential);
  stops_of("diverging", diverging);
  return rules + "}";
}

}  // namespace

std::string palette_variables() {
  return variables_of(light_curves, light_sequential, light_diverging) +
         "\n@media screen and (prefers-color-scheme:dark){" +
         variables_of(dark_curves, dark_sequential, dark_diverging) + "}";
}

ColorScale::ColorScale(const HeatMap& map) : ColorScale(std::vector{&map}) {}

ColorScale::ColorScale(const std::vector<const HeatMap*>& maps) : palette_(maps.front()->palette) {
  Extent extent;
  for (const auto* map : maps) {
    extent.add(map->values);
    if (map->lowest) extent.add(*map->lowest);
    if (map->highest) extent.add(*map->highest);
  }
  const bool own = maps.size() == 1;
  if (!extent.empty()) high_ = extent.high();
  if (own && maps.front()->highest) high_ = *maps.front()->highest;
  if (palette_ == Palette::sequential) {
    low_ = own && maps.front()->lowest ? *maps.front()->lowest : std::min(0.0, extent.empty() ? 0.0 : extent.low());
  } else {
    if (!extent.empty()) high_ = std::max(std::abs(high_), std::abs(extent.low()));
    low_ = -high_;
  }
  if (!(low_ < high_)) high_ = low_ + 1;
}

int ColorScale::levels() const { return palette_ == Palette::sequential ? sequential_levels : diverging_levels; }

int ColorScale::level(double value) const {
  const double share = std::clamp((value - low_) / (high_ - low_), 0.0, 1.0);
  return std::min(static_cast<int>(share * levels()), levels() - 1);
}

std::string ColorScale::css_class(int level) const {
  return fmt::format("{}{}", palette_ == Palette::sequential ? "s" : "d", level);
}

std::string style_sheet(bool with_sequential, bool with_diverging) {
  constexpr Ground light = {"#ffffff", "#1b1b19", "#55544f", "#e3e2dd"};
  constexpr Ground dark = {"#1a1a19", "#f2f1ec", "#b8b7b0", "#383835"};
  auto rules = fmt::format(
      "text{{font-family:Helvetica,Arial,\"DejaVu Sans\",sans-serif;font-size:{}px}}.title{{font-size:{}px;"
      "font-weight:bold}}.name{{font-weight:bold}}\n.line{{fill:none;stroke-width:1.6;stroke-linejoin:round}}"
      ".dashed{{stroke-dasharray:5 3}}.band{{fill-opacity:.16}}.dot{{fill-opacity:.75}}.grid{{stroke-width:1}}"
      ".axis{{stroke-width:1}}\n.frame{{fill:none;stroke-width:.5}}.mark{{stroke-width:1;stroke-dasharray:4 3}}"
      ".interval{{stroke-width:2}}.cells{{shape-rendering:crispEdges}}\n",
      font_size, title_size);
  const auto of_ground = [&](const Ground& ground, const auto& curves, const Stops& sequential,
                             const Stops& diverging) {
    return rules_of(ground, curves) + (with_sequential ? level_rules("s", sequential_levels, sequential) : "") +
           (with_diverging ? level_rules("d", diverging_levels, diverging) : "");
  };
  rules += of_ground(light, light_curves, light_sequential, light_diverging);
  return rules + "@media (prefers-color-scheme:dark){\n" +
         of_ground(dark, dark_curves, dark_sequential, dark_diverging) + "}\n";
}

}  // namespace metaformer::figures
