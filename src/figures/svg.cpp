#include "figures/svg.h"

#include <fmt/format.h>
#include <utf8.h>

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
