#include "report/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <regex>

#include "base/child_process.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace metaformer {

namespace {

using figures::Figure;
using figures::HeatMap;
using figures::Palette;
using figures::Panel;

// `values_ij`: NaN in blank cells.
HeatMap heat_map(const torch::Tensor& values_ij, Palette palette) {
  return {.rows = values_ij.size(0), .columns = values_ij.size(1), .values = to_vector(values_ij), .palette = palette};
}

// A map of the first rows and columns of tokens that attend to each other.
HeatMap token_map(const torch::Tensor& values_ce, const TextInspection& inspection, Palette palette) {
  const auto rows = std::min(most_drawn_tokens, values_ce.size(0)),
             columns = std::min(most_drawn_tokens, values_ce.size(1));
  auto shown_ce = values_ce.narrow(0, 0, rows).narrow(1, 0, columns).clone();
  if (inspection.causal)
    shown_ce.masked_fill_(torch::ones({rows, columns}, torch::kBool).triu(1), std::numeric_limits<double>::quiet_NaN());
  auto map = heat_map(shown_ce, palette);
  const bool crosses = inspection.part == InspectedPart::cross;
  map.row_title = crosses ? "written" : "query";
  map.column_title = crosses ? "source" : "key";
  map.row_labels.assign(inspection.tokens.begin(), inspection.tokens.begin() + rows);
  map.column_labels.assign(inspection.key_tokens().begin(), inspection.key_tokens().begin() + columns);
  return map;
}

std::string shown_tokens(const TextInspection& inspection) {
  const auto all = static_cast<std::int64_t>(std::max(inspection.tokens.size(), inspection.key_tokens().size()));
  return all > most_drawn_tokens ? fmt::format(" The first {} of {} tokens.", most_drawn_tokens, all) : "";
}

Figure grid(std::string title, std::string description, std::size_t panels) {
  return {.title = std::move(title),
          .description = std::move(description),
          .panels = {},
          .columns = std::min<std::int64_t>(4, static_cast<std::int64_t>(panels))};
}

HeatMap distance_map(const torch::Tensor& distance_vv, const TextInspection& inspection, const MetricAxioms& axioms) {
  const bool has_negative = axioms.verdict != FormVerdict::metric && (distance_vv < 0).any().item<bool>();
  auto map = has_negative ? heat_map(distance_vv, Palette::diverging)
                          : heat_map(distance_vv.clamp_min(0), Palette::sequential);
  map.row_labels = map.column_labels = inspection.vocabulary;
  return map;
}

// Begins a row of panels: M, W or U; for scaled dot product the form between inputs. Adds nothing if there is neither.
void add_forms(Figure& figure, const TextInspection& inspection, std::size_t i) {
  const auto& forms = inspection.layers[i].forms;
  const bool own = forms.form_nij.defined();
  const auto& form_nij = own ? forms.form_nij : forms.input_form_ndd;
  if (!form_nij.defined() || form_nij.numel() > most_drawn_cells) return;
  const auto* name = !own ? "W_q W_k^T / sqrt(k)" : inspection.layers[i].mixer == "metric" ? "M" : "F";
  figure.description += fmt::format(" {}: of {}.", name, inspection.layers[i].mixer);
  for (std::int64_t n = 0; n < form_nij.size(0); ++n)
    figure.panels.push_back({fmt::format("{}, head {}", name, n), heat_map(form_nij[n], Palette::diverging)});
}

// One panel for each layer, one curve for each head.
Figure eigenvalue_figure(const TextInspection& inspection, const std::string& run) {
  auto figure =
      grid(run + ": eigenvalues of the forms",
           "Of the symmetric part, ascending. A form is a metric when all are positive.", inspection.layers.size());
  for (std::size_t i = 0; i < inspection.layers.size(); ++i) {
    const auto& value_nr = inspection.layers[i].forms.eigenvalue_nr;
    if (!value_nr.defined()) continue;
    const auto numbers = to_vector(torch::arange(1, value_nr.size(1) + 1, torch::kDouble));
    figures::LineChart chart{.x = {.label = "number"}, .y = {.label = "eigenvalue"}, .curves = {}};
    for (std::int64_t n = 0; n < value_nr.size(0); ++n)
      chart.curves.push_back({.name = fmt::format("head {}", n), .x = numbers, .y = to_vector(value_nr[n])});
    figure.panels.push_back({fmt::format("layer {}", i), std::move(chart)});
  }
  return figure;
}

void add_point(figures::Curve& curve, double x, double y) {
  curve.x.push_back(x);
  curve.y.push_back(y);
}

// From layer 0.5 (after the mixer) to the last; the embeddings are at 0.
figures::LineChart depth_chart(const DepthNorms& norms, const std::string& what) {
  figures::Curve stream{.name = "residual stream", .x = {0}, .y = {norms.embedding}};
  figures::Curve mixer{.name = "mixer branch"}, feed_forward{.name = "feed-forward branch"};
  for (std::size_t i = 0; i < norms.after_mixer.size(); ++i) {
    const auto depth = static_cast<double>(i);
    add_point(stream, depth + 0.5, norms.after_mixer[i]);
    add_point(stream, depth + 1, norms.after_feed_forward[i]);
    add_point(mixer, depth + 0.5, norms.mixer_branch[i]);
    add_point(feed_forward, depth + 1, norms.feed_forward_branch[i]);
  }
  return {.x = {.label = "layers passed"}, .y = {.label = what}, .curves = {stream, mixer, feed_forward}};
}

Figure line_figure(std::string title, std::string description, figures::LineChart chart) {
  return {.title = std::move(title), .description = std::move(description), .panels = {{"", std::move(chart)}}};
}

std::string file_name(std::string name) {
  constexpr std::string_view kept = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  std::replace_if(
      name.begin(), name.end(), [&](char letter) { return kept.find(letter) == kept.npos; }, '_');
  constexpr std::size_t most = 120, end = 50;  // a file system takes 255 bytes
  return name.size() > most ? name.substr(0, most - end) + ".." + name.substr(name.size() - end) : name;
}

}  // namespace

std::vector<NamedFigure> figures_of(const TextInspection& inspection, const std::string& run,
                                    const TextInspection* beside) {
  std::vector<NamedFigure> all;
  const bool is_part = inspection.part != InspectedPart::whole;
  const auto part = std::string(to_string(inspection.part));
  const auto prefix = is_part ? part + "_" : "", title = is_part ? run + ", " + part : run;
  const auto add = [&](const std::string& name, Figure figure) {
    if (!figure.panels.empty()) all.push_back({prefix + name, std::move(figure)});
  };
  for (std::size_t i = 0; i < inspection.layers.size(); ++i) {
    const auto& layer = inspection.layers[i];
    if (!layer.has_scores()) continue;
    // A panel for each head.
    const auto of_heads = [&](const char* what, std::string description, auto map_of) {
      auto figure = grid(fmt::format("{}: {} layer {}", title, what, i), std::move(description), layer.heads());
      for (std::int64_t n = 0; n < static_cast<std::int64_t>(layer.heads()); ++n)
        figure.panels.push_back({fmt::format("head {}", n), map_of(n)});
      return figure;
    };
    auto attention =
        of_heads("attention of", "Weights after the softmax; rows are queries and sum to 1." + shown_tokens(inspection),
                 [&](auto n) { return token_map(layer.attention_nce[n], inspection, Palette::sequential); });
    attention.same_colors = true;
    std::get<HeatMap>(attention.panels.front().chart).top = 1;  // for all panels, which share their colours
    add(fmt::format("attention_{}", i), std::move(attention));
    add(fmt::format("scores_{}", i),
        of_heads("scores of",
                 "Scores before the softmax, divided by the root of the head's width; rows are queries." +
                     shown_tokens(inspection),
                 [&](auto n) { return token_map(layer.score_nce[n], inspection, Palette::diverging); }));
    auto forms =
        grid(fmt::format("{}: the forms of layer {}", title, i), "Rows and columns are features.", layer.heads());
    add_forms(forms, inspection, i);
    if (beside != nullptr && i < beside->layers.size()) add_forms(forms, *beside, i);
    add(fmt::format("forms_{}", i), std::move(forms));
    if (layer.distance_nvv.defined())
      add(fmt::format("distances_{}", i),
          of_heads("distances between token embeddings in",
                   "The root of (x - y) F (x - y), with F the form of the head; negative: the square is negative, and "
                   "there is no distance.",
                   [&](auto n) {
                     return distance_map(layer.distance_nvv[n], inspection, layer.axioms[static_cast<std::size_t>(n)]);
                   }));
  }
  add("eigenvalues", eigenvalue_figure(inspection, title));
  if (inspection.part != InspectedPart::cross)
    add("norms", line_figure(title + ": norms by depth", "Euclidean norm of a token's vector, mean over the text.",
                             depth_chart(inspection.norms, "norm")));
  return all;
}

bool is_picture(const std::string& file) {
  static const std::regex names(
      "((encoder_|decoder_|cross_)?((attention|scores|forms|distances)_[0-9]+|eigenvalues|norms)|gradients|"
      "loss_by_position|loss_by_context)\\.svg");
  return std::regex_match(file, names);
}

std::vector<NamedFigure> figures_of(const SplitInspection& inspection, const std::string& run) {
  std::vector<NamedFigure> all = {
      {"gradients", line_figure(run + ": gradients by depth",
                                "Frobenius norm of the gradient of one batch's mean loss with respect to the stream.",
                                depth_chart(inspection.gradients.stream, "norm of the gradient"))}};
  figures::Curve by_position, by_context;
  for (const auto& [position, targets, loss] : inspection.loss_by_position)
    add_point(by_position, static_cast<double>(position), loss);
  for (const auto& [tokens, loss] : inspection.loss_by_context)
    add_point(by_context, static_cast<double>(tokens), loss);
  if (!by_position.x.empty())
    all.push_back({"loss_by_position", line_figure(run + ": loss by position in the window", "Validation split.",
                                                   {{"position"}, {"loss"}, {std::move(by_position)}})});
  if (!by_context.x.empty())
    all.push_back({"loss_by_context",
                   line_figure(run + ": loss by visible context",
                               fmt::format("The same {} targets, given only the last tokens before each.",
                                           inspection.context_targets),
                               {{"visible tokens", figures::Scale::logarithmic}, {"loss"}, {std::move(by_context)}})});
  return all;
}

std::vector<NamedFigure> figures_of(const Comparison& comparison) {
  std::vector<NamedFigure> figures;
  const auto names = short_names(comparison.groups);
  for (const auto& measure : comparison.measures) {
    figures::IntervalChart values{.label = measure.title, .rows = {}};
    figures::IntervalChart differences{.label = "difference of " + measure.title, .rows = {}, .reference = 0};
    const auto scale = measure.scale;
    for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
      const auto& found = comparison.groups[i].measures.at(measure.id);
      if (found.values.empty()) continue;
      const auto mean = found.summary.mean * scale;
      auto& points = values.rows.emplace_back(figures::Interval{names[i], mean, mean, mean}).points;
      for (const auto& [seed, value] : found.values) points.push_back(value * scale);
      if (const auto& to = found.difference)
        differences.rows.push_back(
            {names[i], to->mean * scale, to->low.value_or(to->mean) * scale, to->high.value_or(to->mean) * scale});
    }
    const auto add = [&](const std::string& name, std::string title, std::string description, auto& chart) {
      if (!chart.rows.empty())
        figures.push_back({name, {std::move(title), std::move(description), {{"", std::move(chart)}}}});
    };
    add(measure.id, measure.title, "Large dots: means over the seeds; small dots: single runs.", values);
    add(measure.id + "_differences", fmt::format("Differences of {} to the reference", measure.title),
        "Paired by seed, with 95% intervals.", differences);
  }
  return figures;
}

FigureFolder::FigureFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw Error(ExitCode::failure, fmt::format("{}: {}", folder_.string(), error.message()));
}

void FigureFolder::write(const std::string& name, const Figure& figure) {
  auto stem = file_name(name);
  for (int copy = 2; !names_.insert(stem).second; ++copy) stem = fmt::format("{}-{}", file_name(name), copy);
  const auto svg = folder_ / (stem + ".svg"), pdf = folder_ / (stem + ".pdf");
  write_file_atomically(svg, figures::to_svg(figure));
  if (!with_pdf_) return;
  with_pdf_ =
      run_program({"rsvg-convert", "--format=pdf", "--output=" + pdf.string(), std::filesystem::absolute(svg).string()},
                  fmt::format("{}: cannot be converted to PDF", svg.string()))
          .has_value();
  if (!with_pdf_)
    log::warning("{}: figures are written as SVG only, since rsvg-convert is not installed (Debian: librsvg2-bin)",
                 folder_.string());
}

}  // namespace metaformer
