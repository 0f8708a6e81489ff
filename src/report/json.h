#pragma once
// Results as JSON: for `--json`, inspection.json and the report page.

#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "report/comparison.h"
#include "report/curves.h"
#include "report/inspection.h"

namespace metaformer {

// {"margin", "differing_keys", "metrics": [{"name", "title", "scale", "digits"}], "groups": [{"name", "short_name",
// "reference": its name, "settings", "runs": [{"seed", "source", "key", "attention_collapse" where there is one}],
// "metrics": {NAME: {"n", "mean", "sd", "values", "difference": {"pairs", "mean", "low", "high", "p", "equivalent"}}},
// "mcnemar": [...]}], "notes"}. Numbers are as in the runs, not in the measure's scale.
nlohmann::ordered_json to_json(const Comparison& comparison);

// {"name", "title", "scale", "digits"}.
nlohmann::ordered_json to_json(const Measure& measure);

// The numbers without the arrays, or with matrices for the page: the heads then also have "attention", "scores",
// "form", "input_form" and "distances", packed, if the mixer has them and they have at most 256 columns.
//   {"mixer", "causal", "tokens": [..], "keys": [..], "vocabulary": [..], "norms": (see DepthNorms),
//    "layers": [{"heads": [{"eigenvalues": [..], "asymmetry", "verdict", "negative_eigenvalues", "asymmetric_pairs",
//                           "negative_pairs", "incomplete_triples", "violated_triples", "negative_scores",
//                           "mean_attention_distance", "distance_rank_correlation"}]}]}
// Fields that a mixer does not have are absent; mixers without scores have no heads.
enum class Matrices { none, packed };
nlohmann::ordered_json to_json(const TextInspection& inspection, Matrices matrices = Matrices::none);

// {"gradients": {"stream": (as DepthNorms), "mixer": [..], "feed_forward": [..]},
//  "loss_by_position": [{"position", "targets", "loss"}], "loss_by_context": [{"tokens", "loss"}], "context_targets",
//  "effective_context"}; missing results are absent.
nlohmann::ordered_json to_json(const SplitInspection& inspection);

// {"views": [...], "series": {NAME: {"runs": [{"axis", "value"} or null], "groups": [{.., "low", "high"}]}},
//  "axes": [{"step", "time", "tokens" if they are known}]}; "axis" is the number of the curve's axis.
nlohmann::ordered_json to_json(const CurveTable& table);

// [{"title", "log", "lines": [{"block", "step", "value", "low", "high"}]}], with at most `most_points` points for each
// curve.
nlohmann::ordered_json to_json(const std::vector<BlockPanel>& panels, std::size_t most_points);

// {"rows", "columns", "low", "high", "bits", "layout", "data"}: values as whole numbers from 0 (low) to 2^bits - 1
// (high), little-endian, base64. bits: 16, an error of at most (high - low) / 131070, or 8 for more than 96 x 96 cells.
// layout: "full"; "lower", the lower triangle with the diagonal, for what a causal mask leaves; "symmetric", the same
// for a matrix that equals its transpose. Null for a matrix that is undefined or not finite.
nlohmann::ordered_json pack(const torch::Tensor& matrix_ij, bool causal = false);

// Rounded to `digits` significant digits; null if JSON has no such number. In a list whole numbers are integers.
nlohmann::ordered_json rounded(double value, int digits = 5);
nlohmann::ordered_json rounded(const std::vector<double>& values, int digits = 5);

}  // namespace metaformer
