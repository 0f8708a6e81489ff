#pragma once
// SVG elements as text, and the colours of figures and of the page.

#include <string>
#include <string_view>
#include <vector>

namespace metaformer::figures {

// With up to two decimals and without trailing zeros.
std::string number(double value);

// Text as content or attribute: markup and control characters escaped, bytes that are not UTF-8 replaced.
std::string escape(std::string_view text);

constexpr double font_size = 11, title_size = 15, line_height = 15;

// Estimated width in pixels of text set in a sans-serif font of this size.
double text_width(std::string_view text, double size = font_size);

// Lines of at most this estimated width, broken at spaces.
std::vector<std::string> wrap(std::string_view text, double width);

// The text itself, or its start with an ellipsis where it would be wider than this.
std::string shorten(std::string_view text, double width, double size = font_size);

struct Rectangle {
  double x = 0, y = 0, width = 0, height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

enum class Anchor { start, middle, end };

struct TextStyle {
  Anchor anchor = Anchor::start;
  std::string css_class = "label";
  double rotation = 0;  // degrees, clockwise
};

// Collects elements. Colours come from CSS classes, so that one file is right on light and on dark ground.
class Svg {
 public:
  // y: of the text's vertical centre.
  void text(double x, double y, std::string_view content, const TextStyle& style = {});
  void line(double x1, double y1, double x2, double y2, std::string_view css_class);
  void rectangle(const Rectangle& area, std::string_view css_class);
  void circle(double x, double y, double radius, std::string_view css_class);
  void path(std::string_view commands, std::string_view css_class);
  void open_group(std::string_view css_class, std::string_view label = "");
  void close_group();
  const std::string& content() const { return content_; }

 private:
  std::string content_;
};

// 8 colours for curves, and levels of two palettes for values; the middle level of the diverging one is zero.
constexpr int curve_colors = 8, sequential_levels = 32, diverging_levels = 33;

// CSS for all classes that figures use: light colours, and dark ones where the reader prefers those. Curve i has the
// classes ci (stroke), bi and pi (fill); levels are s0 ... s31 and d0 ... d32.
std::string style_sheet(bool with_sequential, bool with_diverging);

// The same colours as CSS variables of :root, for pages: --curve-0 ... --curve-7, --sequential-0 ... --sequential-4
// (low to high) and --diverging-0 ... --diverging-4.
std::string palette_variables();

}  // namespace metaformer::figures
