#include "report/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <unordered_map>

#include "base/digest.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json describe(const GroupMeasure& measure) {
  Json json = {{"n", measure.summary.count},
               {"mean", measure.summary.count > 0 ? Json(measure.summary.mean) : Json()},
               {"sd", or_null(measure.summary.deviation)},
               {"values", Json::object()}};
  for (const auto& [seed, value] : measure.values) json["values"][std::to_string(seed)] = value;
  if (const auto& difference = measure.difference)
    json["difference"] = {{"pairs", difference->pairs},      {"mean", difference->mean},
                          {"low", or_null(difference->low)}, {"high", or_null(difference->high)},
                          {"p", or_null(difference->p)},     {"equivalent", or_null(difference->equivalent)}};
  return json;
}

Json describe(const ComparedGroup& group, const std::string& short_name, const std::string& reference) {
  Json json = {
      {"name", group.name}, {"short_name", short_name}, {"reference", reference}, {"settings", group.settings}};
  for (const auto& run : group.runs) {
    json["runs"].push_back({{"seed", run.seed}, {"source", run.source}, {"key", run.key}});
    if (run.collapse) json["runs"].back()["attention_collapse"] = to_json(*run.collapse);
  }
  for (const auto& [id, measure] : group.measures)
    if (measure.summary.count > 0) json["metrics"][id] = describe(measure);
  for (const auto& test : group.mcnemar)
    json["mcnemar"].push_back({{"seed", test.seed},
                               {"only_reference", test.only_reference},
                               {"only_this", test.only_this},
                               {"p_exact", test.p_exact},
                               {"chi_square", test.chi_square},
                               {"p_chi_square", test.p_chi_square}});
  return json;
}

Json describe_head(const LayerInspection& layer, std::size_t n, bool causal, Matrices matrices) {
  Json head = Json::object();
  const auto number = static_cast<std::int64_t>(n);
  const bool packed = matrices == Matrices::packed;
  if (layer.forms.eigenvalue_nr.defined()) {
    const auto values = to_vector(layer.forms.eigenvalue_nr[number]);
    head["eigenvalues"] = packed ? rounded(values) : Json(values);
    head["asymmetry"] = layer.forms.asymmetry[n];
  }
  if (!layer.axioms.empty()) {
    const auto& axioms = layer.axioms[n];
    head["verdict"] = to_string(axioms.verdict);
    if (axioms.verdict != FormVerdict::unknown) head["negative_eigenvalues"] = axioms.negative_eigenvalues;
    head.update({{"vectors", axioms.vectors},
                 {"asymmetric_pairs", axioms.asymmetric_pairs},
                 {"negative_pairs", axioms.negative_pairs},
                 {"incomplete_triples", axioms.incomplete_triples},
                 {"violated_triples", axioms.violated_triples}});
  }
  head["negative_scores"] = layer.negative_scores[n];
  if (!layer.mean_attention_distance.empty()) head["mean_attention_distance"] = layer.mean_attention_distance[n];
  if (const auto& ranks = layer.distance_rank_correlation; !ranks.empty())
    head["distance_rank_correlation"] = std::isfinite(ranks[n]) ? Json(ranks[n]) : Json();
  constexpr std::int64_t widest = 256;
  for (const auto& [name, matrix_nij] : layer.arrays()) {
    if (!packed || !matrix_nij.defined() || matrix_nij.dim() != 3 || matrix_nij.size(-1) > widest) continue;
    const bool is_masked = causal && (name == "attention" || name == "scores");
    if (auto values = pack(matrix_nij[number], is_masked); !values.is_null()) head[name] = std::move(values);
  }
  return head;
}

void add_values(Json& json, const StepCurve& curve) {
  json["value"] = rounded(curve.value);
  if (curve.low.empty()) return;
  json["low"] = rounded(curve.low);
  json["high"] = rounded(curve.high);
}

// Steps, times and tokens; equal ones of several curves are stored once.
class CurveAxes {
 public:
  std::size_t number_of(const StepCurve& curve) {
    Json axis = {{"step", rounded(curve.step, 12)}, {"time", rounded(curve.time)}};
    const bool knows_tokens = std::ranges::any_of(curve.tokens, [](double tokens) { return std::isfinite(tokens); });
    if (knows_tokens) axis["tokens"] = rounded(curve.tokens, 7);
    const auto [found, is_new] = numbers_.try_emplace(axis.dump(), list_.size());
    if (is_new) list_.push_back(std::move(axis));
    return found->second;
  }
  const Json& list() const { return list_; }

 private:
  Json list_ = Json::array();
  std::unordered_map<std::string, std::size_t> numbers_;
};

Json describe(const std::vector<StepCurve>& curves, CurveAxes& axes) {
  auto list = Json::array();
  for (const auto& curve : curves) {
    auto& json = list.emplace_back();
    if (curve.step.empty()) continue;
    json["axis"] = axes.number_of(curve);
    add_values(json, curve);
  }
  return list;
}

}  // namespace

Json to_json(const Measure& measure) {
  return {{"name", measure.id}, {"title", measure.title}, {"scale", measure.scale}, {"digits", measure.digits}};
}

Json to_json(const Comparison& comparison) {
  Json json = {{"margin", or_null(comparison.margin)}, {"differing_keys", comparison.differing_keys}};
  for (const auto& measure : comparison.measures) json["metrics"].push_back(to_json(measure));
  const auto names = short_names(comparison.groups);
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto& group = comparison.groups[i];
    json["groups"].push_back(describe(group, names[i], comparison.groups[group.reference].name));
  }
  json["notes"] = comparison.notes;
  return json;
}

Json to_json(const TextInspection& inspection, Matrices matrices) {
  Json json = {{"mixer", inspection.mixer}, {"causal", inspection.causal}, {"tokens", inspection.tokens}};
  if (!inspection.keys.empty()) json["keys"] = inspection.keys;
  json["vocabulary"] = inspection.vocabulary;
  if (inspection.part != InspectedPart::cross) json["norms"] = to_json(inspection.norms);
  if (inspection.norms_at_start) json["norms_at_start"] = to_json(*inspection.norms_at_start);
  json["layers"] = Json::array();
  for (const auto& layer : inspection.layers) {
    auto heads = Json::array();
    for (std::size_t n = 0; n < layer.heads(); ++n)
      heads.push_back(describe_head(layer, n, inspection.causal, matrices));
    json["layers"].push_back({{"mixer", layer.mixer}, {"heads", std::move(heads)}});
  }
  return json;
}

Json to_json(const SplitInspection& inspection) {
  const auto& gradients = inspection.gradients;
  Json json = {
      {"gradients",
       {{"stream", to_json(gradients.stream)}, {"mixer", gradients.mixer}, {"feed_forward", gradients.feed_forward}}}};
  for (const auto& [position, targets, loss] : inspection.loss_by_position)
    json["loss_by_position"].push_back({{"position", position}, {"targets", targets}, {"loss", loss}});
  for (const auto& [tokens, loss] : inspection.loss_by_context)
    json["loss_by_context"].push_back({{"tokens", tokens}, {"loss", loss}});
  if (inspection.effective_context) {
    json["context_targets"] = inspection.context_targets;
    json["effective_context"] = *inspection.effective_context;
  }
  return json;
}

Json to_json(const CurveTable& table) {
  Json json = {{"views", Json::array()}, {"series", Json::object()}};
  for (const auto& view : views_of(table))
    json["views"].push_back({{"name", view.name}, {"title", view.title}, {"unit", view.unit}, {"series", view.series}});
  CurveAxes axes;
  for (const auto& [name, series] : table)
    json["series"][name] = {{"runs", describe(series.runs, axes)}, {"groups", describe(series.groups, axes)}};
  json["axes"] = axes.list();
  return json;
}

Json to_json(const std::vector<BlockPanel>& panels, std::size_t most_points) {
  auto list = Json::array();
  for (const auto& [title, log, lines] : panels) {
    auto& panel = list.emplace_back(Json{{"title", title}, {"log", log}});
    for (const auto& [block, curve] : lines) {
      const auto thin = thinned(curve, most_points, /*averages=*/false);
      add_values(panel["lines"].emplace_back(Json{{"block", block}, {"step", rounded(thin.step, 12)}}), thin);
    }
  }
  return list;
}

Json pack(const torch::Tensor& matrix_ij, bool causal) {
  if (!matrix_ij.defined() || matrix_ij.numel() == 0) return nullptr;
  const auto values = matrix_ij.to(torch::kCPU, torch::kDouble);
  const auto rows = values.size(0), columns = values.size(1);
  const bool symmetric = !causal && rows == columns && values.equal(values.t());
  auto kept = torch::ones_like(values, torch::kBool);
  if (causal || symmetric) kept = kept.tril();
  const auto cells = to_vector(values.masked_select(kept));
  if (!std::ranges::all_of(cells, [](double cell) { return std::isfinite(cell); })) return nullptr;
  const auto [low, high] = std::ranges::minmax(cells);
  constexpr std::int64_t most_exact_cells = 96 * 96;
  const int bits = rows * columns <= most_exact_cells ? 16 : 8;
  const double unit = high > low ? (std::exp2(bits) - 1) / (high - low) : 0;
  std::string bytes;
  for (const double cell : cells) {
    const auto level = std::lround((cell - low) * unit);
    bytes.push_back(static_cast<char>(level & 0xff));
    if (bits == 16) bytes.push_back(static_cast<char>(level >> 8));
  }
  const auto* layout = causal ? "lower" : symmetric ? "symmetric" : "full";
  return {{"rows", rows},     {"columns", columns},      {"low", low}, {"high", high}, {"bits", bits},
          {"layout", layout}, {"data", to_base64(bytes)}};
}

Json rounded(double value, int digits) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

Json rounded(const std::vector<double>& values, int digits) {
  auto list = Json::array();
  for (const double value : values) {
    auto number = rounded(value, digits);
    const double shown = number.is_null() ? std::nan("") : number.get<double>();
    const bool whole = std::abs(shown) < 1e15 && std::trunc(shown) == shown;
    list.push_back(whole ? Json(static_cast<std::int64_t>(shown)) : std::move(number));
  }
  return list;
}

}  // namespace metaformer
