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
    const auto* entity = point == U'&'   ? "&amp;"
                         : point == U'<' ? "&lt;"
                         : point == U'>' ? "&gt;"
                         : point == U'"' ? "&quot;"
                                         : nullptr;
    if (entity != nullptr)
      result += entity;
    else
      utf8::append(control ? replacement : static_cast<std::uint32_t>(point), std::back_inserter(result));
  }
  return result;
}

double text_width(std::string_view text, double size) {
  double width = 0;
  for (const char32_t point : code_points(text)) width += width_of(point);
  return width * size;
}

std::vector<std::string> wrap(std::string_view text, double width) {
  std::vector<std::string> lines;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (lines.empty() || text_width(lines.back() + " " + word) > width)
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

namespace {

using Color = std::array<int, 3>;
using Stops = std::array<Color, 5>;

struct Theme {
  const char *paper, *ink, *soft_ink, *grid;
  std::array<const char*, curve_colors> curves;
  Stops sequential, diverging;
};

// Neighbouring curves differ for readers who confuse red and green, too. Sequential palettes go from next to the
// ground, from which zero must differ, to far from it.
constexpr Theme light = {
    "#ffffff",
    "#1b1b19",
    "#55544f",
    "#e3e2dd",
    {"#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#e87ba4", "#008300", "#4a3aa7", "#e34948"},
    {{{0xe4, 0xef, 0xfc}, {0xa3, 0xc8, 0xf4}, {0x39, 0x87, 0xe5}, {0x1c, 0x5c, 0xab}, {0x0d, 0x2f, 0x5e}}},
    {{{0x0d, 0x4a, 0x94}, {0x6b, 0xa3, 0xe8}, {0xee, 0xed, 0xe9}, {0xec, 0x83, 0x79}, {0xa8, 0x1d, 0x1a}}}};
constexpr Theme dark = {
    "#1a1a19",
    "#f2f1ec",
    "#b8b7b0",
    "#383835",
    {"#3987e5", "#d95926", "#199e70", "#c98500", "#d55181", "#3da53d", "#9085e9", "#e66767"},
    {{{0x1c, 0x2b, 0x40}, {0x1c, 0x5c, 0xab}, {0x39, 0x87, 0xe5}, {0x86, 0xb6, 0xef}, {0xe3, 0xef, 0xfd}}},
    {{{0x9a, 0xc5, 0xf7}, {0x2a, 0x6b, 0xc0}, {0x38, 0x38, 0x35}, {0xc9, 0x4f, 0x48}, {0xf7, 0xb0, 0xaa}}}};

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

std::string rules_of(const Theme& theme, bool with_sequential, bool with_diverging) {
  auto rules = fmt::format(
      ".paper{{fill:{}}}.label{{fill:{}}}.title,.name{{fill:{}}}.grid{{stroke:{}}}.axis,.mark,.frame{{stroke:{}}}\n",
      theme.paper, theme.soft_ink, theme.ink, theme.grid, theme.soft_ink);
  int curve = 0;
  for (const auto* color : theme.curves)
    rules += fmt::format(".c{0}{{stroke:{1}}}.b{0},.p{0}{{fill:{1}}}", curve++, color);
  rules += "\n";
  if (with_sequential) rules += level_rules("s", sequential_levels, theme.sequential);
  return with_diverging ? rules + level_rules("d", diverging_levels, theme.diverging) : rules;
}

std::string variables_of(const Theme& theme) {
  std::string rules = ":root{";
  int curve = 0;
  for (const auto* color : theme.curves) rules += fmt::format("--curve-{}:{};", curve++, color);
  const auto add = [&](const char* name, const Stops& stops) {
    for (std::size_t i = 0; i < stops.size(); ++i)
      rules += fmt::format("--{}-{}:{};", name, i, blend(stops, static_cast<double>(i) / (stops.size() - 1.0)));
  };
  add("sequential", theme.sequential);
  add("diverging", theme.diverging);
  return rules + "}";
}

}  // namespace

std::string style_sheet(bool with_sequential, bool with_diverging) {
  return fmt::format(
             "text{{font-family:Helvetica,Arial,\"DejaVu Sans\",sans-serif;font-size:{}px}}.title{{font-size:{}px;"
             "font-weight:bold}}.name{{font-weight:bold}}\n.line{{fill:none;stroke-width:1.6;stroke-linejoin:round}}"
             ".dashed{{stroke-dasharray:5 3}}.band{{fill-opacity:.16}}.dot{{fill-opacity:.75}}.grid{{stroke-width:1}}"
             ".axis{{stroke-width:1}}\n.frame{{fill:none;stroke-width:.5}}.mark{{stroke-width:1;stroke-dasharray:4 3}}"
             ".interval{{stroke-width:2}}.cells{{shape-rendering:crispEdges}}\n",
             font_size, title_size) +
         rules_of(light, with_sequential, with_diverging) + "@media (prefers-color-scheme:dark){\n" +
         rules_of(dark, with_sequential, with_diverging) + "}\n";
}

std::string palette_variables() {
  return variables_of(light) + "\n@media screen and (prefers-color-scheme:dark){" + variables_of(dark) + "}";
}

}  // namespace metaformer::figures
