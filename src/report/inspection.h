#pragma once
// The inside of a trained network, for one text.

#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attention/mixer.h"
#include "data/pair_dataset.h"
#include "model/stream_probe.h"
#include "report/metric_axioms.h"
#include "run/load_run.h"

namespace metaformer {

// The bilinear forms that the heads of a mixer score with.

// Letters: n heads; i and j what the form maps (the k features of a projection, or d of the input); r eigenvalues. All
// float64 on the CPU.
struct HeadForms {
  // As scores use it, without 1/sqrt(k): M of metric, W or U of quadratic attention, unpacked from the checkpoint, with
  // its fixed norm and its temperature. Undefined for scaled dot product, which has none.
  torch::Tensor form_nij;
  // Between inputs of the mixer, with 1/sqrt(k): W_q^T W_k / sqrt(k), P^T M P / sqrt(k), ... (rows of W are outputs, as
  // in the checkpoint; papers that write x W_q call it W_q W_k^T). Of a distance: of the part of the score that depends
  // on both tokens. Undefined where scores are no single form of the input (qk_norm, as_published), and where the forms
  // of the heads would hold more than `most_input_form_numbers`.
  torch::Tensor input_form_ndd;
  // Of the symmetric part of form_nij; of scaled dot product, of W_q^T W_k / sqrt(k), without those that are 0 because
  // its rank is at most 2 k. Ascending. Undefined where there is neither.
  torch::Tensor eigenvalue_nr;
  std::vector<double> asymmetry;  // by head, of the same form: |F - F^T| / (2 |F|), Frobenius; 0: symmetric
};

constexpr std::int64_t most_input_form_numbers = std::int64_t{1} << 24;

// `form_nij`: what the mixer has shown a probe (ScoredVectors); undefined: none. `k`: the width of its heads.
HeadForms forms_of(const Mixer& mixer, const torch::Tensor& form_nij, std::int64_t k);

// What a trained network does with one text, or with a pair: attention maps, score tables, the forms that scores are
// made of, distances between tokens, and norms by depth. Files: docs/inspect.md.

// One layer; all vectors have an entry for each head, and are empty for mixers without scores. Tensors are float64 on
// the CPU; letters: n heads, c (queries) and e (keys) tokens of the text, v tokens of TextInspection::vocabulary. Where
// keys are of a source, distance_nvv, axioms and mean_attention_distance are empty.
struct LayerInspection {
  torch::Tensor score_nce;      // before the softmax: divided by sqrt(k), with what positions add; not masked
  torch::Tensor attention_nce;  // after the softmax: rows sum to 1
  torch::Tensor distance_nvv;   // signed_distances between the embeddings of tokens
  HeadForms forms;
  std::vector<MetricAxioms> axioms;               // on the vectors of the text
  std::vector<double> negative_scores;            // fraction of the visible scores
  std::vector<double> mean_attention_distance;    // |c - e| weighted by attention, in tokens
  std::vector<double> distance_rank_correlation;  // sorters only: Spearman, of distance_nvv with |i - j|

  bool has_scores() const { return attention_nce.defined(); }
  std::size_t heads() const { return has_scores() ? static_cast<std::size_t>(attention_nce.size(0)) : 0; }
};

// Which tokens of an encoder and decoder attend to which: the source's to each other, the target's to each other, the
// target's to the source.
enum class InspectedPart { whole, encoder, decoder, cross };
template <>
struct EnumNames<InspectedPart> {
  static constexpr std::array<std::string_view, 4> values = {"whole", "encoder", "decoder", "cross"};
};

struct TextInspection {
  InspectedPart part = InspectedPart::whole;
  std::string mixer;                    // kind
  bool causal = false;                  // no token attends to a later one: cells behind the diagonal are to be blank
  std::vector<std::string> tokens;      // of the text as the model reads it, decoded; "[class]": a class token
  std::vector<std::string> keys;        // of what they attend to; empty: the same
  std::vector<std::string> vocabulary;  // the tokens of distance_nvv
  std::vector<LayerInspection> layers;
  DepthNorms norms;  // of a token's vectors, mean over the tokens; of cross those of the decoder

  const std::vector<std::string>& key_tokens() const { return keys.empty() ? tokens : keys; }
};

struct InspectionLimits {
  std::int64_t tokens = 64;      // of the text, from its start
  std::int64_t vocabulary = 96;  // of a larger vocabulary: the distinct tokens of the text in their order, so many
};

// More than so many tokens are refused: scores are kept for every pair of them.
constexpr std::int64_t most_inspected_tokens = 1024;

// Throws Error (exit code 2) for a run whose model is no transformer, which has nothing to inspect.
void require_transformer(const LoadedRun& run);

// The token ids of a text as the run's model reads them: cut to the limit and to the model's context, a
// source to one token less, as a mark follows; for sorters the numbers of a list, which are followed by the sorted list
// without its last number. Errors: exit code 2 for a list of another length, 3 for a text that is empty or cannot be
// encoded.
std::vector<std::int32_t> ids_of_text(const LoadedRun& run, const std::string& text, std::int64_t tokens);

// Runs the model once over the ids, in float64 whatever it was trained in, so that mixers take their reference path.
// Not while another thread uses the model: it is float32 again only afterwards. Errors: exit code 2 for a model that is
// no transformer, and for more tokens than most_inspected_tokens.
TextInspection inspect_text(const LoadedRun& run, const std::vector<std::int32_t>& ids,
                            const InspectionLimits& limits = {});

// The same of an encoder and decoder that reads a source and writes a target (without marks, not empty, cut to the
// limit and the context): encoder, decoder, cross. A token of the decoder is named after what it reads, one of cross
// after what is written there; "[mark]" ends the source, and begins and ends the target.
std::vector<TextInspection> inspect_pair(const LoadedRun& run, const EncodedPair& pair,
                                         const InspectionLimits& limits = {});

// All arrays, float32, by the names of docs/inspect.md: "layer.0.attention", "cross.layer.0.attention", ...
NamedTensors to_tensors(const TextInspection& inspection);

// The numbers without the arrays:
//   {"mixer", "causal", "tokens": [..], "keys": [..], "vocabulary": [..], "norms": (see DepthNorms),
//    "layers": [{"heads": [{"eigenvalues": [..], "asymmetry", "verdict", "negative_eigenvalues", "asymmetric_pairs",
//                           "negative_pairs", "incomplete_triples", "violated_triples", "negative_scores",
//                           "mean_attention_distance", "distance_rank_correlation"}]}]}
// What a mixer does not have is absent; mixers without scores have no heads.
nlohmann::ordered_json to_json(const TextInspection& inspection);

// The same with the arrays in it, rounded to `digits` significant digits, for a page: each head also has "attention",
// "scores", "form", "input_form" and "distances" as arrays of rows. Cells of attention and scores that a causal mask
// hides are null. Forms of more than `widest_form` rows are left out.
nlohmann::ordered_json to_json_with_arrays(const TextInspection& inspection, int digits = 4,
                                           std::int64_t widest_form = 128);

}  // namespace metaformer
