#include "report/svg.h"

#include <fmt/format.h>
#include <utf8.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <sstream>

namespace metaformer::figures {

namespace {

constexpr std::uint32_t replacement = 0xFFFD, delete_character = 0x7F;

std::u32string code_points(std::string_view text) {
  std::string valid;
  utf8::replace_invalid(text.begin(), text.end(), std::back_inserter(valid), replacement);
  std::u32string points;
  utf8::utf8to32(valid.begin(), valid.end(), std::back_inserter(points));
  return points;
}

// In parts of the font size, as in DejaVu Sans, which is broader than most; characters of East Asian scripts fill a
// square.
double width_of(char32_t point) {
  constexpr char32_t first_wide = 0x1100;
  constexpr std::u32string_view narrow = U" .,:;'|!ijlIft()[]/-", broad = U"mwMWABCDEFGHKNOPQRSUVXY%@&";
  if (point >= first_wide && (point < 0x2000 || point > 0x2BFF)) return 1.0;
  if (narrow.find(point) != narrow.npos) return 0.37;
  return broad.find(point) != broad.npos ? 0.8 : 0.61;
}

}  // namespace

std::string number(double value) {
  auto text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string escape(std::string_view text) {
  std::string result;
  for (const char32_t point : code_points(text)) {
    const bool control = point < U' ' || point == delete_character || point == 0xFFFE || point == 0xFFFF;
    switch (point) {
      case U'&':
        result += "&amp;";
        break;
      case U'<':
        result += "&lt;";
        break;
      case U'>':
        result += "&gt;";
        break;
      case U'"':
        result += "&quot;";
        break;
      default:
        utf8::append(control ? replacement : static_cast<std::uint32_t>(point), std::back_inserter(result));
    }
  }
  return result;
}

double text_width(std::string_view text, double size) {
  double width = 0;
  for (const char32_t point : code_points(text)) width += width_of(point);
  return width * size;
}

std::vector<std::string> wrap(std::string_view text, double width, double size) {
  std::vector<std::string> lines;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (lines.empty() || text_width(lines.back() + " " + word, size) > width)
      lines.push_back(word);
    else
      lines.back() += " " + word;
  }
  return lines;
}

std::string shorten(std::string_view text, double width, double size) {
  if (text_width(text, size) <= width) return std::string(text);
  std::string result;
  double used = width_of(U'…') * size;
  for (const char32_t point : code_points(text)) {
    used += width_of(point) * size;
    if (used > width) break;
    utf8::append(static_cast<std::uint32_t>(point), std::back_inserter(result));
  }
  return result + "…";
}

void Svg::text(double x, double y, std::string_view content, const TextStyle& style) {
  constexpr double baseline = 0.35;  // from the middle of the letters to the line they stand on, in font sizes
  const bool title = style.css_class == "title";
  const double shift = baseline * (title ? title_size : font_size);
  const auto anchor = style.anchor == Anchor::start    ? ""
                      : style.anchor == Anchor::middle ? " text-anchor=\"middle\""
                                                       : " text-anchor=\"end\"";
  const auto turn = style.rotation == 0
                        ? ""
                        : fmt::format(" transform=\"rotate({} {} {})\"", number(style.rotation), number(x), number(y));
  content_ += fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\"{}{}>{}</text>\n", style.css_class, number(x),
                          number(y + shift), anchor, turn, escape(content));
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view css_class) {
  content_ += fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", css_class, number(x1),
                          number(y1), number(x2), number(y2));
}

void Svg::rectangle(const Rectangle& area, std::string_view css_class) {
  content_ += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", css_class,
                          number(area.x), number(area.y), number(area.width), number(area.height));
}

void Svg::circle(double x, double y, double radius, std::string_view css_class) {
  content_ += fmt::format("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>\n", css_class, number(x), number(y),
                          number(radius));
}

void Svg::path(std::string_view commands, std::string_view css_class) {
  content_ += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", css_class, commands);
}

void Svg::open_group(std::string_view css_class, std::string_view label) {
  content_ += fmt::format("<g class=\"{}\"{}>\n", css_class,
                          label.empty() ? "" : fmt::format(" aria-label=\"{}\"", escape(label)));
}

void Svg::close_group() { content_ += "</g>\n"; }

}  // namespace metaformer::figures

namespace metaformer::figures {

namespace {

double round_step(double width, int wanted) {
  const double raw = width / std::max(1, wanted);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
}

std::string with_commas(std::string digits) {
  const auto start = digits.front() == '-' ? 1u : 0u;
  auto end = std::min(digits.find('.'), digits.size());
  while (end > start + 3) digits.insert(end -= 3, ",");
  return digits;
}

std::vector<Tick> linear_ticks(double low, double high, int wanted) {
  std::vector<Tick> ticks;
  const double step = round_step(high - low, wanted);
  const double first = std::ceil(low / step - 1e-6);
  for (double i = first; i * step <= high + 1e-6 * step; ++i) ticks.push_back({i * step, tick_text(i * step, step)});
  return ticks;
}

// Powers of ten; 2 and 5 between them where there are few.
std::vector<Tick> logarithmic_ticks(double low, double high, int wanted) {
  std::vector<Tick> ticks;
  const double decades = std::log10(high / low);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / std::max(1, wanted))));
  for (int power = static_cast<int>(std::floor(std::log10(low))); power <= std::ceil(std::log10(high)); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, power);
      const bool named = factor == 1 ? power % stride == 0 : decades * 3 <= wanted;
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9))
        ticks.push_back({value, named ? tick_text(value, value) : ""});
    }
  }
  return ticks;
}

}  // namespace

void Extent::add(double value) {
  if (!std::isfinite(value) || (scale_ == Scale::logarithmic && value <= 0)) return;
  low_ = std::min(low_, value);
  high_ = std::max(high_, value);
}

void Extent::add(const std::vector<double>& values) {
  for (const double value : values) add(value);
}

void Extent::widen(double fraction) {
  if (empty()) return;
  if (scale_ == Scale::linear) {
    const double more = fraction * (high_ - low_);
    low_ -= more;
    high_ += more;
  } else {
    const double factor = std::pow(high_ / low_, fraction);
    low_ /= factor;
    high_ *= factor;
  }
}

AxisScale::AxisScale(const Axis& axis, const Extent& data, double first_pixel, double last_pixel)
    : scale_(axis.scale), first_pixel_(first_pixel), last_pixel_(last_pixel) {
  const bool logarithmic = scale_ == Scale::logarithmic;
  low_ = data.empty() ? (logarithmic ? 1 : 0) : data.low();
  high_ = data.empty() ? (logarithmic ? 10 : 1) : data.high();
  if (axis.range) std::tie(low_, high_) = *axis.range;
  if (low_ < high_) return;
  // One value: it stands in the middle.
  const double around = low_ == 0 ? 1 : std::abs(low_) / 2;
  low_ = logarithmic ? low_ / 2 : low_ - around;
  high_ = logarithmic ? high_ * 2 : high_ + around;
}

bool AxisScale::shows(double value) const { return std::isfinite(value) && (scale_ == Scale::linear || value > 0); }

double AxisScale::operator()(double value) const {
  const double share =
      scale_ == Scale::linear ? (value - low_) / (high_ - low_) : std::log(value / low_) / std::log(high_ / low_);
  return first_pixel_ + share * (last_pixel_ - first_pixel_);
}

std::vector<Tick> AxisScale::ticks(int wanted) const {
  return scale_ == Scale::linear ? linear_ticks(low_, high_, wanted) : logarithmic_ticks(low_, high_, wanted);
}

std::string tick_text(double value, double step) {
  constexpr double largest = 1e7, smallest = 1e-5;
  if (std::abs(value) < 1e-9 * step) return "0";
  if (std::abs(value) >= largest || step < smallest) return fmt::format("{:.3g}", value);
  int decimals = 0;
  for (double rest = step; decimals < 6 && std::abs(rest - std::round(rest)) > 1e-6 * rest; rest *= 10) ++decimals;
  return with_commas(fmt::format("{:.{}f}", value, decimals));
}

}  // namespace metaformer::figures

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

namespace metaformer::figures {

namespace {

constexpr double pixels_per_x_tick = 70, pixels_per_y_tick = 40, tick_gap = 5;

}  // namespace

void draw_x_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area) {
  for (const auto& tick : scale.ticks(static_cast<int>(area.width / pixels_per_x_tick))) {
    const double x = scale(tick.value);
    svg.line(x, area.y, x, area.bottom(), "grid");
    if (!tick.text.empty()) svg.text(x, area.bottom() + tick_gap + line_height / 2, tick.text, {Anchor::middle});
  }
  svg.line(area.x, area.bottom(), area.right(), area.bottom(), "axis");
  if (!label.empty())
    svg.text(area.x + area.width / 2, area.bottom() + tick_gap + 1.6 * line_height, label, {Anchor::middle});
}

void draw_y_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area) {
  double widest = 0;
  for (const auto& tick : scale.ticks(static_cast<int>(area.height / pixels_per_y_tick))) {
    const double y = scale(tick.value);
    svg.line(area.x, y, area.right(), y, "grid");
    svg.text(area.x - tick_gap, y, tick.text, {Anchor::end});
    widest = std::max(widest, text_width(tick.text, font_size));
  }
  if (!label.empty())
    svg.text(area.x - 2 * tick_gap - widest - line_height / 2, area.y + area.height / 2, label,
             {.anchor = Anchor::middle, .rotation = -90});
}

}  // namespace metaformer::figures
