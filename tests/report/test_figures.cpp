// Figures as text: drawn elements, their places, and well-formed files.

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

TEST_CASE("curves beyond the palette repeat its colours with dashed lines", "[figures]") {
  LineChart chart;
  for (int i = 0; i < 10; ++i) chart.curves.push_back({.name = std::to_string(i), .x = {0, 1}, .y = {0, 1.0 + i}});
  const auto svg = to_svg(of(chart));
  for (const auto* line : {"line c0", "line c0 dashed", "line c7"}) CHECK(paths(svg, line).size() == 1);
  CHECK(paths(svg, "line c2 dashed").empty());
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
