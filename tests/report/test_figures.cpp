// Figures as text: drawn elements, their places, and well-formed files.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <regex>

#include "base/files.h"
#include "report/figure.h"
#include "report/pictures.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer::figures::test_figures {

namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Whether every opened element is closed in order.
bool is_balanced(const std::string& svg) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)[^<>]*?(/?)>");
  for (std::sregex_iterator match(svg.begin(), svg.end(), tag), end; match != end; ++match) {
    const auto slash = (*match)[1].length(), empty = (*match)[3].length();
    if (empty == 0 && slash == 0) open.push_back((*match)[2]);
    if (slash == 0) continue;
    if (open.empty() || open.back() != (*match)[2]) return false;
    open.pop_back();
  }
  return open.empty();
}

Figure of(const LineChart& chart) { return {.title = "t", .panels = {{"p", chart}}}; }

// The d attributes of the paths of a CSS class.
std::vector<std::string> paths(const std::string& svg, const std::string& css_class) {
  std::vector<std::string> found;
  const std::regex path("<path class=\"" + css_class + "\" d=\"([^\"]*)\"/>");
  for (std::sregex_iterator match(svg.begin(), svg.end(), path), end; match != end; ++match)
    found.push_back((*match)[1]);
  return found;
}

}  // namespace

TEST_CASE("ticks are at round values inside the axis", "[figures]") {
  const auto texts = [](const AxisScale& scale, int wanted) {
    std::vector<std::string> result;
    for (const auto& tick : scale.ticks(wanted))
      if (!tick.text.empty()) result.push_back(tick.text);
    return result;
  };
  const auto axis = [](double low, double high, Scale scale = Scale::linear) {
    return AxisScale(scale, {low, high}, 0, 1);
  };
  CHECK(texts(axis(0, 2000), 4) == std::vector<std::string>{"0", "500", "1,000", "1,500", "2,000"});
  CHECK(texts(axis(1.83, 2.47), 3) == std::vector<std::string>{"2.00", "2.25"});
  CHECK(texts(axis(-1, 1), 4) == std::vector<std::string>{"-1.0", "-0.5", "0", "0.5", "1.0"});
  CHECK(texts(axis(1, 1e6, Scale::logarithmic), 3) == std::vector<std::string>{"1", "100", "10,000", "1,000,000"});
  for (const double width : {1e-7, 3e-3, 0.7, 1.0, 12.0, 5e8})
    for (const int wanted : {2, 5, 9}) {
      const auto ticks = axis(0.3 * width, 1.3 * width).ticks(wanted);
      CHECK(ticks.size() <= static_cast<std::size_t>(wanted) + 1);
      CHECK(ticks.size() >= static_cast<std::size_t>(wanted) / 3);
      for (const auto& tick : ticks) CHECK((tick.value >= 0.299 * width && tick.value <= 1.301 * width));
    }
}

TEST_CASE("a scale maps its ends to the ends of the axis", "[figures]") {
  const std::vector<double> data = {2, 32, nothing};
  const AxisScale linear(Scale::linear, data, 10, 110), logarithmic(Scale::logarithmic, data, 10, 110);
  CHECK((linear(2) == 10 && linear(32) == 110 && linear(17) == 60));
  CHECK((logarithmic(2) == 10 && logarithmic(32) == Approx(110) && logarithmic(8) == Approx(60)));
  CHECK((linear.shows(-1) && !linear.shows(nothing) && !logarithmic.shows(0)));
  CHECK(AxisScale(Scale::linear, {5}, 0, 100)(5) == 50);
}

TEST_CASE("a gap divides a line and its band", "[figures]") {
  const LineChart chart{.curves = {{.name = "a",
                                    .x = {0, 1, 2, 3, 4},
                                    .y = {1, 2, nothing, 2, 1},
                                    .low = {0, 1, nothing, 1, 0},
                                    .high = {2, 3, nothing, 3, 2}}}};
  const auto svg = to_svg(of(chart));
  const auto line = paths(svg, "line c0"), band = paths(svg, "band b0");
  REQUIRE((line.size() == 1 && band.size() == 1));
  CHECK((count(line[0], "M") == 2 && count(line[0], "L") == 2));
  CHECK((count(band[0], "M") == 2 && count(band[0], "Z") == 2 && count(band[0], "L") == 6));
}

TEST_CASE("from the fourth on curves differ in their dashes, and two of one colour have different ones", "[figures]") {
  LineChart chart;
  for (int i = 0; i < 40; ++i) chart.curves.push_back({.name = std::to_string(i), .x = {0, 1}, .y = {0, 1.0 + i}});
  const auto svg = to_svg(of(chart));
  for (const auto* line : {"line c0", "line c1", "line c2"}) CHECK(paths(svg, line).size() == 1);
  for (int color = 0; color < curve_colors; ++color)
    for (int dash = 0; dash < curve_dashes; ++dash) {
      const bool is_solid = color < solid_curves && dash == (color + 2) % curve_dashes;
      CHECK(paths(svg, fmt::format("line c{} h{}", color, dash)).size() == (is_solid ? 0 : 1));
    }
  chart.curves[5].style = LineStyle::solid;
  chart.curves[0].style = LineStyle::dashed;
  chart.curves[1].thin = true;
  const auto changed = to_svg(of(chart));
  for (const auto* line : {"line c5", "line c0 dashed", "line c1 thin"}) CHECK(paths(changed, line).size() == 1);
}

namespace {

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

Vector product(const Matrix& matrix, const Vector& vector) {
  Vector result{};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j) result[i] += matrix[i][j] * vector[j];
  return result;
}

// Linear light of "#rrggbb".
Vector linear(const std::string& color) {
  Vector result{};
  for (std::size_t i = 0; i < 3; ++i) {
    const double value = std::stoi(color.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    result[i] = value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  }
  return result;
}

// WCAG 2: contrast ratio.
double contrast(const std::string& one, const std::string& other) {
  const auto luminance = [](const std::string& color) {
    const auto [r, g, b] = linear(color);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const auto [low, high] = std::minmax({luminance(one), luminance(other)});
  return (high + 0.05) / (low + 0.05);
}

// Vision without one kind of cone (Machado, Oliveira and Fernandes 2009), and with all.
constexpr std::array<Matrix, 4> visions = {
    {{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
     {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}},
     {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}},
     {{{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}}}}};

// Distance in OKLab (Ottosson 2020) times 100; 2 is about the smallest that is seen.
double distance(const std::string& one, const std::string& other, const Matrix& vision) {
  constexpr Matrix cones = {{{0.4122214708, 0.5363325363, 0.0514459929},
                             {0.2119034982, 0.6806995451, 0.1073969566},
                             {0.0883024619, 0.2817188376, 0.6299787005}}};
  constexpr Matrix axes = {{{0.2104542553, 0.7936177850, -0.0040720468},
                            {1.9779984951, -2.4285922050, 0.4505937099},
                            {0.0259040371, 0.7827717662, -0.8086757660}}};
  const auto place = [&](const std::string& color) {
    auto light = product(vision, linear(color));
    for (auto& value : light) value = std::clamp(value, 0.0, 1.0);
    auto response = product(cones, light);
    for (auto& value : response) value = std::cbrt(value);
    return product(axes, response);
  };
  const auto a = place(one), b = place(other);
  return 100 * std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

}  // namespace

TEST_CASE("curves have contrast with light and dark ground, and differ for colour-blind readers", "[figures]") {
  const auto rules = palette_variables();
  const auto middle = rules.find("@media");
  for (const auto& [text, paper] : {std::pair(rules.substr(0, middle), "#ffffff"), {rules.substr(middle), "#1a1a19"}}) {
    std::vector<std::string> colors;
    for (int i = 0; i < curve_colors; ++i) {
      const auto name = fmt::format("--curve-{}:", i);
      colors.push_back(text.substr(text.find(name) + name.size(), 7));
      INFO(name << colors.back());
      CHECK(contrast(colors.back(), paper) >= 3);
      for (int other = 0; other < i; ++other)
        for (const auto& vision : visions)
          CHECK(distance(colors.back(), colors[static_cast<std::size_t>(other)], vision) >= 10);
    }
  }
}

TEST_CASE("cells of a heat map are drawn at their places, and hidden ones are blank", "[figures]") {
  HeatMap map{.rows = 2, .columns = 3, .values = {0, 1, nothing, 1, 1, 0.5}};
  const Figure figure{.title = "m", .panels = {{"", map}}};
  const auto svg = to_svg(figure);
  const ColorScale colors({&map});
  CHECK((colors.level(0) == 0 && colors.level(1) == sequential_levels - 1));
  const auto dark = paths(svg, "s31"), light = paths(svg, "s0"), middle = paths(svg, "s16");
  REQUIRE((dark.size() == 1 && light.size() == 1 && middle.size() == 1));
  CHECK(count(dark[0], "M") == 2);  // one in the first row, and two neighbours as one rectangle in the second
  CHECK((count(light[0], "M") == 1 && count(middle[0], "M") == 1));
  CHECK(dark[0].find("h52v26h-52z") != std::string::npos);
}

TEST_CASE("zero is in the middle of a diverging palette", "[figures]") {
  const HeatMap map{.rows = 1, .columns = 3, .values = {-1, 0, 4}, .palette = Palette::diverging};
  const ColorScale colors({&map});
  CHECK((colors.low() == -4 && colors.high() == 4));
  CHECK(colors.level(0) == diverging_levels / 2);
  CHECK(colors.level(4) == diverging_levels - 1);
  CHECK(colors.level(-4) == 0);
  const HeatMap blank{.rows = 1, .columns = 1, .values = {nothing}};
  CHECK(ColorScale({&blank}).high() > 0);
}

TEST_CASE("text is escaped, and the file is well-formed and deterministic", "[figures]") {
  Figure figure{.title = "<b>&\"x\"</b>\x01\xff", .description = "a < b"};
  figure.panels.push_back({"</svg>", LineChart{.curves = {{.name = "<i>", .x = {0, 1}, .y = {0, 1}}}}});
  figure.panels.push_back({"i", IntervalChart{.rows = {{"<u>", 1, 0, 2, {0.5}}}, .reference = 0}});
  figure.panels.push_back(
      {"h", HeatMap{.rows = 1, .columns = 1, .values = {1}, .row_labels = {"<r>"}, .column_labels = {"&"}}});
  const auto svg = to_svg(figure);
  CHECK(svg == to_svg(figure));
  CHECK(is_balanced(svg));
  for (const char* markup : {"<b>", "<i>", "<u>", "<r>", "\x01"}) CHECK(svg.find(markup) == std::string::npos);
  CHECK(count(svg, "</svg>") == 1);
  CHECK(svg.find("&lt;b&gt;&amp;&quot;x&quot;&lt;/b&gt;\xef\xbf\xbd\xef\xbf\xbd") != std::string::npos);
  CHECK(svg.find("prefers-color-scheme:dark") != std::string::npos);
}

TEST_CASE("figures without panels, curves or values are drawn, and different lengths of data are refused",
          "[figures]") {
  for (const Figure& figure : {Figure{.title = "empty"}, of({}),
                               Figure{.title = "x", .panels = {{"", HeatMap{}}, {"", IntervalChart{}}}, .columns = 5},
                               of({.curves = {{.name = "point", .x = {1}, .y = {2}}}})})
    CHECK(is_balanced(to_svg(figure)));
  const HeatMap labels{.rows = 1, .columns = 1, .values = {1}, .row_labels = {"a", "b"}};
  for (const Figure& wrong :
       {of({.curves = {{.x = {1, 2}, .y = {1}}}}), of({.curves = {{.x = {1}, .y = {1}, .low = {1}}}}),
        Figure{.panels = {{"", HeatMap{.rows = 2, .columns = 2, .values = {1}}}}}, Figure{.panels = {{"", labels}}}})
    CHECK(failure([&] { to_svg(wrong); }).first == ExitCode::usage);
}

TEST_CASE("a folder of figures contains SVG and PDF files", "[figures]") {
  const TemporaryFolder folder;
  FigureFolder figures(folder.path() / "new" / "figures");
  figures.write("curves of a/b", of({.curves = {{.name = "a", .x = {0, 1}, .y = {0, 1}}}}));
  const auto svg = folder.path() / "new" / "figures" / "curves_of_a_b.svg";
  CHECK(holds(svg, to_svg(of({.curves = {{.name = "a", .x = {0, 1}, .y = {0, 1}}}}))));
  const auto pdf = read_file(std::filesystem::path(svg).replace_extension("pdf"), 1 << 20, ExitCode::data);
  CHECK(pdf.starts_with("%PDF"));
  figures.write("curves_of a b", {.title = "another"});
  CHECK(holds(folder.path() / "new" / "figures" / "curves_of_a_b-2.svg", to_svg({.title = "another"})));
  CHECK(figures.written() == 2);
}

}  // namespace metaformer::figures::test_figures
