#include "report/inspected_runs.h"

#include "report/packed_matrix.h"
#include "report/rounded_numbers.h"

namespace metaformer {

namespace {

constexpr std::int64_t widest_form = 256;

void add_matrix(nlohmann::ordered_json& head, const char* name, const torch::Tensor& matrix_nij, std::int64_t n,
                bool causal = false) {
  if (!matrix_nij.defined() || matrix_nij.size(-1) > widest_form) return;
  if (auto packed = pack(matrix_nij[n], causal); !packed.is_null()) head[name] = std::move(packed);
}

}  // namespace

nlohmann::ordered_json describe_heads(const TextInspection& inspection) {
  auto json = to_json(inspection);
  for (std::size_t i = 0; i < inspection.layers.size(); ++i) {
    const auto& layer = inspection.layers[i];
    auto& heads = json["layers"][i]["heads"];
    for (std::size_t n = 0; n < heads.size(); ++n) {
      auto& head = heads[n];
      const auto number = static_cast<std::int64_t>(n);
      if (head.contains("eigenvalues")) head["eigenvalues"] = rounded(head["eigenvalues"].get<std::vector<double>>());
      add_matrix(head, "attention", layer.attention_nce, number, inspection.causal);
      add_matrix(head, "scores", layer.score_nce, number, inspection.causal);
      add_matrix(head, "form", layer.forms.form_nij, number);
      add_matrix(head, "input_form", layer.forms.input_form_ndd, number);
      add_matrix(head, "distances", layer.distance_nvv, number);
    }
  }
  return json;
}

}  // namespace metaformer
