#include "report/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/child_process.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "report/charts.h"

namespace metaformer::figures {

namespace {

constexpr double border = 14, panel_gap = 14, panel_title_height = 20;

template <class Chart>
bool any_of(const Figure& figure) {
  return std::any_of(figure.panels.begin(), figure.panels.end(),
                     [](const Panel& panel) { return std::holds_alternative<Chart>(panel.chart); });
}

bool uses(const Figure& figure, Palette palette) {
  return std::any_of(figure.panels.begin(), figure.panels.end(), [&](const Panel& panel) {
    const auto* map = std::get_if<HeatMap>(&panel.chart);
    return map != nullptr && map->palette == palette;
  });
}

void check(const Figure& figure) {
  const auto fail = [](const Panel& panel, const char* what) {
    throw Error(ExitCode::usage, fmt::format("figure '{}': {}", panel.title, what));
  };
  for (const auto& panel : figure.panels) {
    if (const auto* map = std::get_if<HeatMap>(&panel.chart)) {
      if (static_cast<std::int64_t>(map->values.size()) != map->rows * map->columns)
        fail(panel, "the map does not have rows * columns values");
      const auto fits = [](const auto& labels, std::int64_t count) {
        return labels.empty() || static_cast<std::int64_t>(labels.size()) == count;
      };
      if (!fits(map->row_labels, map->rows) || !fits(map->column_labels, map->columns))
        fail(panel, "the map does not have a label for each row and column");
    } else if (const auto* lines = std::get_if<LineChart>(&panel.chart)) {
      for (const auto& curve : lines->curves)
        if (curve.x.size() != curve.y.size() || curve.low.size() != curve.high.size() ||
            (!curve.low.empty() && curve.low.size() != curve.x.size()))
          fail(panel, "a curve does not have as many values as positions");
    }
  }
}

struct LegendEntry {
  std::string name;
  int color = 0;
  bool dashed = false;
};

// Every name of a curve once.
std::vector<LegendEntry> legend_of(const Figure& figure) {
  std::vector<LegendEntry> entries;
  for (const auto& panel : figure.panels) {
    const auto* chart = std::get_if<LineChart>(&panel.chart);
    for (std::size_t i = 0; chart != nullptr && i < chart->curves.size(); ++i) {
      const auto& curve = chart->curves[i];
      const bool known =
          std::any_of(entries.begin(), entries.end(), [&](const auto& e) { return e.name == curve.name; });
      if (!curve.name.empty() && !known) entries.push_back({curve.name, color_of(curve, i), is_dashed(curve, i)});
    }
  }
  return entries;
}

// Places panels row by row; every column and every row is as large as its largest panel.
class Layout {
 public:
  explicit Layout(const Figure& figure) : figure_(figure), columns_(std::max<std::int64_t>(1, figure.columns)) {
    columns_ = std::min<std::int64_t>(columns_, std::max<std::size_t>(1, figure.panels.size()));
    widths_.resize(static_cast<std::size_t>(columns_));
    heights_.resize((figure.panels.size() + widths_.size() - 1) / widths_.size());
    for (std::size_t i = 0; i < figure.panels.size(); ++i) {
      const auto& panel = figure.panels[i];
      const auto [inner, margins] = measure(panel);
      auto& width = widths_[i % widths_.size()];
      auto& height = heights_[i / widths_.size()];
      width = std::max(width, margins.left + inner.width + margins.right);
      height = std::max(height,
                        (panel.title.empty() ? 0 : panel_title_height) + margins.top + inner.height + margins.bottom);
    }
  }

  double width() const { return total(widths_); }
  double height() const { return total(heights_); }

  // Where panel i stands, from the upper left corner of the first one; its title is above.
  Rectangle inner_area(std::size_t i) const {
    auto [area, margins] = measure(figure_.panels[i]);
    area.x = before(widths_, i % widths_.size()) + margins.left;
    area.y =
        before(heights_, i / widths_.size()) + margins.top + (figure_.panels[i].title.empty() ? 0 : panel_title_height);
    return area;
  }

 private:
  struct Measured {
    Rectangle inner;
    Margins margins;
  };

  static double before(const std::vector<double>& sizes, std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += sizes[i] + panel_gap;
    return sum;
  }
  static double total(const std::vector<double>& sizes) {
    return std::max(0.0, before(sizes, sizes.size()) - panel_gap);
  }

  double panel_width() const {
    if (figure_.panel_width > 0) return figure_.panel_width;
    return columns_ == 1 ? 560 : columns_ == 2 ? 330 : columns_ == 3 ? 230 : 150;
  }

  Measured measure(const Panel& panel) const {
    constexpr double row_height = 24, flatness = 0.56;
    const double width = panel_width();
    const double height = figure_.panel_height > 0 ? figure_.panel_height : 0;
    if (const auto* map = std::get_if<HeatMap>(&panel.chart)) {
      const auto rows = static_cast<double>(std::max<std::int64_t>(1, map->rows));
      const auto columns = static_cast<double>(std::max<std::int64_t>(1, map->columns));
      constexpr double largest_cell = 26;
      const double cell = std::min({largest_cell, width / columns, (height > 0 ? height : width) / rows});
      auto margins = margins_of(*map, cell);
      if (!figure_.same_colors) margins.right += color_bar_room + panel_gap;
      return {{0, 0, cell * columns, cell * rows}, margins};
    }
    if (const auto* intervals = std::get_if<IntervalChart>(&panel.chart)) {
      const double needed = row_height * static_cast<double>(std::max<std::size_t>(1, intervals->rows.size()));
      return {{0, 0, width, height > 0 ? height : needed}, margins_of(*intervals)};
    }
    return {{0, 0, width, height > 0 ? height : std::round(width * flatness)},
            margins_of(std::get<LineChart>(panel.chart))};
  }

  const Figure& figure_;
  std::int64_t columns_;
  std::vector<double> widths_, heights_;
};

class FigureWriter {
 public:
  explicit FigureWriter(const Figure& figure) : figure_(figure), layout_(figure) {
    const bool shared_bar = figure.same_colors && any_of<HeatMap>(figure);
    constexpr double least_width = 280;
    width_ = std::max(least_width, layout_.width()) + 2 * border + (shared_bar ? color_bar_room + panel_gap : 0);
    y_ = border;
  }

  std::string write() {
    draw_heading();
    draw_legend();
    const double top = y_;
    draw_panels();
    y_ = top + layout_.height() + border;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
        "aria-labelledby=\"title description\">\n<title id=\"title\">{2}</title>\n<desc id=\"description\">{3}</desc>\n"
        "<style>\n{4}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{5}</svg>\n",
        number(std::ceil(width_)), number(std::ceil(y_)), escape(figure_.title), escape(figure_.description),
        style_sheet(uses(figure_, Palette::sequential), uses(figure_, Palette::diverging)), svg_.content());
  }

 private:
  void draw_heading() {
    if (!figure_.title.empty()) {
      svg_.text(border, y_ + title_size / 2, shorten(figure_.title, width_ - 2 * border, title_size),
                {.css_class = "title"});
      y_ += title_size + 8;
    }
    for (const auto& line : wrap(figure_.description, width_ - 2 * border, font_size)) {
      svg_.text(border, y_ + line_height / 2, line);
      y_ += line_height;
    }
    y_ += 6;
  }

  void draw_legend() {
    constexpr double swatch = 22, entry_gap = 16;
    const auto entries = legend_of(figure_);
    double x = border;
    for (const auto& entry : entries) {
      const auto name = shorten(entry.name, width_ - 2 * border - swatch, font_size);
      const double needed = swatch + text_width(name, font_size) + entry_gap;
      if (x > border && x + needed > width_ - border) {
        x = border;
        y_ += line_height + 2;
      }
      svg_.line(x, y_ + line_height / 2, x + swatch - 6, y_ + line_height / 2,
                fmt::format("line c{}{}", entry.color, entry.dashed ? " dashed" : ""));
      svg_.text(x + swatch, y_ + line_height / 2, name);
      x += needed;
    }
    if (!entries.empty()) y_ += line_height + 8;
  }

  void draw_panels() {
    std::vector<const HeatMap*> maps;
    for (const auto& panel : figure_.panels)
      if (const auto* map = std::get_if<HeatMap>(&panel.chart)) maps.push_back(map);
    for (std::size_t i = 0; i < figure_.panels.size(); ++i) draw_panel(figure_.panels[i], layout_.inner_area(i), maps);
    if (figure_.same_colors && !maps.empty())
      draw_color_bar(svg_, ColorScale(maps),
                     {width_ - border - color_bar_room, y_ + panel_title_height, color_bar_width,
                      std::min(200.0, layout_.height() - 2 * panel_title_height)});
  }

  void draw_panel(const Panel& panel, Rectangle area, const std::vector<const HeatMap*>& maps) {
    area.x += border;
    area.y += y_;
    svg_.open_group("panel", panel.title);
    if (!panel.title.empty())
      svg_.text(area.x, area.y - panel_title_height / 2 - 2, panel.title, {.css_class = "name"});
    if (const auto* map = std::get_if<HeatMap>(&panel.chart)) {
      const ColorScale colors = figure_.same_colors ? ColorScale(maps) : ColorScale(*map);
      draw(svg_, *map, colors, area);
      if (!figure_.same_colors)
        draw_color_bar(svg_, colors, {area.right() + panel_gap, area.y, color_bar_width, std::min(200.0, area.height)});
    } else if (const auto* intervals = std::get_if<IntervalChart>(&panel.chart)) {
      draw(svg_, *intervals, area);
    } else {
      draw(svg_, std::get<LineChart>(panel.chart), area);
    }
    svg_.close_group();
  }

  const Figure& figure_;
  Layout layout_;
  Svg svg_;
  double width_ = 0, y_ = 0;
};

}  // namespace

std::string to_svg(const Figure& figure) {
  check(figure);
  return FigureWriter(figure).write();
}

}  // namespace metaformer::figures

namespace metaformer::figures {

namespace {

std::string file_name(std::string name) {
  constexpr std::string_view others = ".-_";
  for (auto& letter : name) {
    const bool kept = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                      (letter >= '0' && letter <= '9') || others.find(letter) != others.npos;
    if (!kept) letter = '_';
  }
  constexpr std::size_t most = 120, end = 50;  // a file system takes 255 bytes
  if (name.size() > most) name = name.substr(0, most - end) + ".." + name.substr(name.size() - end);
  return name;
}

}  // namespace

FigureFolder::FigureFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw Error(ExitCode::failure, fmt::format("{}: {}", folder_.string(), error.message()));
}

void FigureFolder::write(const std::string& name, const Figure& figure) {
  auto stem = file_name(name);
  for (int copy = 2; !names_.insert(stem).second; ++copy) stem = fmt::format("{}-{}", file_name(name), copy);
  const auto svg = folder_ / (stem + ".svg"), pdf = folder_ / (stem + ".pdf");
  write_file_atomically(svg, to_svg(figure));
  ++written_;
  if (!with_pdf_) return;
  with_pdf_ =
      run_program({"rsvg-convert", "--format=pdf", "--output=" + pdf.string(), std::filesystem::absolute(svg).string()},
                  fmt::format("{}: cannot be converted to PDF", svg.string()))
          .has_value();
  if (!with_pdf_)
    log::warning("{}: figures are written as SVG only, since rsvg-convert is not installed (Debian: librsvg2-bin)",
                 folder_.string());
}

}  // namespace metaformer::figures
