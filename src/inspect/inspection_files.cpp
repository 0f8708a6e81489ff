// The arrays and numbers of an inspection by name.

#include <cmath>

#include "inspect/inspection.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

void add_axioms(Json& head, const MetricAxioms& axioms) {
  head["verdict"] = to_string(axioms.verdict);
  if (axioms.verdict != FormVerdict::unknown) head["negative_eigenvalues"] = axioms.negative_eigenvalues;
  head["vectors"] = axioms.vectors;
  head["asymmetric_pairs"] = axioms.asymmetric_pairs;
  head["negative_pairs"] = axioms.negative_pairs;
  head["incomplete_triples"] = axioms.incomplete_triples;
  head["violated_triples"] = axioms.violated_triples;
}

Json head_json(const LayerInspection& layer, std::size_t n) {
  Json head = Json::object();
  const auto& forms = layer.forms;
  if (forms.eigenvalue_nr.defined()) {
    const auto values = forms.eigenvalue_nr[static_cast<std::int64_t>(n)].contiguous();
    head["eigenvalues"] =
        std::vector<double>(values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel());
    head["asymmetry"] = forms.asymmetry[n];
  }
  if (!layer.axioms.empty()) add_axioms(head, layer.axioms[n]);
  head["negative_scores"] = layer.negative_scores[n];
  if (!layer.mean_attention_distance.empty()) head["mean_attention_distance"] = layer.mean_attention_distance[n];
  if (!layer.distance_rank_correlation.empty())
    head["distance_rank_correlation"] = number_or_null(layer.distance_rank_correlation[n]);
  return head;
}

double rounded(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10, digits - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
  return std::round(value * unit) / unit;
}

// Rows of one head; cells behind the diagonal are null if `causal`.
Json rows_of(const torch::Tensor& matrix_ij, int digits, bool causal = false) {
  const auto values = matrix_ij.to(torch::kCPU, torch::kDouble).contiguous();
  const auto* value = values.const_data_ptr<double>();
  auto rows = Json::array();
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    auto row = Json::array();
    for (std::int64_t j = 0; j < values.size(1); ++j, ++value)
      row.push_back(causal && j > i ? Json() : number_or_null(rounded(*value, digits)));
    rows.push_back(std::move(row));
  }
  return rows;
}

void add_arrays(Json& head, const LayerInspection& layer, std::int64_t n, bool causal, int digits,
                std::int64_t widest_form) {
  head["attention"] = rows_of(layer.attention_nce[n], digits, causal);
  head["scores"] = rows_of(layer.score_nce[n], digits, causal);
  if (layer.distance_nvv.defined()) head["distances"] = rows_of(layer.distance_nvv[n], digits);
  const auto add_form = [&](const char* name, const torch::Tensor& form) {
    if (form.defined() && form.size(1) <= widest_form) head[name] = rows_of(form[n], digits);
  };
  add_form("form", layer.forms.form_nij);
  add_form("input_form", layer.forms.input_form_ndd);
}

template <class AddArrays>
Json describe(const TextInspection& inspection, AddArrays add) {
  Json json = {{"mixer", inspection.mixer}, {"causal", inspection.causal}, {"tokens", inspection.tokens}};
  if (!inspection.keys.empty()) json["keys"] = inspection.keys;
  json["vocabulary"] = inspection.vocabulary;
  if (inspection.part != InspectedPart::cross) json["norms"] = to_json(inspection.norms);
  json["layers"] = Json::array();
  for (const auto& layer : inspection.layers) {
    auto heads = Json::array();
    for (std::size_t n = 0; n < layer.heads(); ++n) {
      heads.push_back(head_json(layer, n));
      add(heads.back(), layer, static_cast<std::int64_t>(n));
    }
    json["layers"].push_back({{"heads", std::move(heads)}});
  }
  return json;
}

}  // namespace

NamedTensors to_tensors(const TextInspection& inspection) {
  NamedTensors tensors;
  const auto part = inspection.part == InspectedPart::whole ? "" : std::string(to_string(inspection.part)) + ".";
  for (std::size_t i = 0; i < inspection.layers.size(); ++i) {
    const auto& layer = inspection.layers[i];
    const auto add = [&](const char* name, const torch::Tensor& values) {
      if (values.defined())
        tensors.emplace_back(part + "layer." + std::to_string(i) + "." + name, values.to(torch::kFloat).contiguous());
    };
    add("attention", layer.attention_nce);
    add("scores", layer.score_nce);
    add("form", layer.forms.form_nij);
    add("input_form", layer.forms.input_form_ndd);
    add("eigenvalues", layer.forms.eigenvalue_nr);
    add("distances", layer.distance_nvv);
  }
  return tensors;
}

Json to_json(const TextInspection& inspection) {
  return describe(inspection, [](Json&, const LayerInspection&, std::int64_t) {});
}

Json to_json_with_arrays(const TextInspection& inspection, int digits, std::int64_t widest_form) {
  return describe(inspection, [&](Json& head, const LayerInspection& layer, std::int64_t n) {
    add_arrays(head, layer, n, inspection.causal, digits, widest_form);
  });
}

}  // namespace metaformer
