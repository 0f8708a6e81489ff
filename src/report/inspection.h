#pragma once
// The inside of a trained network. With one text, or a pair: attention maps, score tables, the forms of the scores,
// distances between tokens, norms by depth. With a split: gradients by depth, the loss by position in the window, and
// how much context counts. Files: docs/inspect.md.

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention/mixer.h"
#include "config/schema.h"
#include "data/pairs.h"
#include "model/stream_probe.h"
#include "ops/pass.h"
#include "run/load_run.h"
#include "tasks/task.h"

namespace metaformer {

// The bilinear forms that heads score with. n heads; i and j the vectors that the form maps (k features of a
// projection, or d of the input); r eigenvalues. All float64 on the CPU.
struct HeadForms {
  // The form as scores use it, without 1/sqrt(k): M of metric, W or U of quadratic attention, unpacked from the
  // checkpoint, with its fixed norm and its temperature. Undefined for scaled dot product, which has no such form.
  torch::Tensor form_nij;
  // The form between inputs of the mixer, with 1/sqrt(k): W_q^T W_k / sqrt(k), P^T M P / sqrt(k), ... (rows of W are
  // outputs, as in the checkpoint; papers that write x W_q call it W_q W_k^T). For a distance: the part of the score
  // that depends on both tokens. Undefined if scores are not a single form of the input (qk_norm, as_published), or if
  // the forms of all heads would have more than `most_input_form_numbers` numbers.
  torch::Tensor input_form_ndd;
  // Ascending eigenvalues of the symmetric part of form_nij; for scaled dot product, of W_q^T W_k / sqrt(k), without
  // those that are 0 because its rank is at most 2 k. Undefined if there is neither.
  torch::Tensor eigenvalue_nr;
  std::vector<double> asymmetry;  // by head, of the same form: |F - F^T| / (2 |F|), Frobenius; 0: symmetric
};

constexpr std::int64_t most_input_form_numbers = std::int64_t{1} << 24;

// `form_nij`: of the mixer's ScoredVectors; undefined: none. `k`: the width of its heads.
HeadForms forms_of(const Mixer& mixer, const torch::Tensor& form_nij, std::int64_t k);

// Whether d(x, y) = sqrt((x - y) F (x - y)) is a metric, by the eigenvalues of F's symmetric part. metric: all
// positive; pseudometric: none negative; no_metric: some negative; unknown: not known, as for normalised queries and
// keys.
enum class FormVerdict { metric, pseudometric, no_metric, unknown };
constexpr std::array<std::string_view, 4> enum_names(FormVerdict) {
  return {"metric", "pseudometric", "no_metric", "unknown"};
}

// Axioms of a metric for one head. Scores and squares count as 0 below 1e-9 of the largest.
struct MetricAxioms {
  FormVerdict verdict = FormVerdict::unknown;
  double negative_eigenvalues = 0;  // fraction
  std::int64_t vectors = 0;         // number of tested vectors: the first `most_vectors`
  double asymmetric_pairs = 0;      // fraction of pairs with scores p_c F p_e and p_e F p_c that differ
  double negative_pairs = 0;        // fraction of pairs with d^2 < 0, which have no distance
  double incomplete_triples = 0;    // fraction of triples with such a pair
  double violated_triples = 0;      // fraction of other triples with a side longer than both others together
};

constexpr std::int64_t most_vectors = 128;

// By head, on the batch's first sequence. `eigenvalue_nr`: as in HeadForms; undefined: not known.
std::vector<MetricAxioms> test_axioms(const ScoredVectors& vectors, const torch::Tensor& eigenvalue_nr);

// sign(d^2) sqrt(|d^2|) of every pair of tokens, [n, c, c], with d^2 = (left_c - left_e) F (right_c - right_e) in the
// batch's first sequence: a distance, or a negative number if there is none.
torch::Tensor signed_distances(const ScoredVectors& vectors);

// One layer; all vectors have an entry for each head, and are empty for mixers without scores. Tensors are float64 on
// the CPU; letters: n heads, c (queries) and e (keys) tokens of the text, v tokens of TextInspection::vocabulary. If
// keys belong to a source, distance_nvv, axioms and mean_attention_distance are empty.
struct LayerInspection {
  std::string mixer;            // kind
  torch::Tensor score_nce;      // before the softmax: divided by sqrt(k), positions included; not masked
  torch::Tensor attention_nce;  // weights; rows sum to 1, except with sinks or sigmoids
  torch::Tensor distance_nvv;   // signed_distances between the embeddings of tokens
  HeadForms forms;
  std::vector<MetricAxioms> axioms;               // on the vectors of the text
  std::vector<double> negative_scores;            // fraction of the visible scores
  std::vector<double> mean_attention_distance;    // |c - e| weighted by attention, in tokens
  std::vector<double> distance_rank_correlation;  // sorters only: Spearman, of distance_nvv with |i - j|

  // The arrays by their names in files (docs/inspect.md), [n, ...]; undefined if the mixer has none.
  NamedTensors arrays() const;
  bool has_scores() const { return attention_nce.defined(); }
  std::size_t heads() const { return has_scores() ? static_cast<std::size_t>(attention_nce.size(0)) : 0; }
};

// Parts of an encoder-decoder: attention within the source (encoder), within the target (decoder), and of the target to
// the source (cross).
enum class InspectedPart { whole, encoder, decoder, cross };
constexpr std::array<std::string_view, 4> enum_names(InspectedPart) { return {"whole", "encoder", "decoder", "cross"}; }

struct TextInspection {
  InspectedPart part = InspectedPart::whole;
  std::string mixer;                    // kind; for several kinds TransformerConfig::mixer_names()
  bool causal = false;                  // no token attends to a later one: cells after the diagonal are to be blank
  std::vector<std::string> tokens;      // of the text as the model reads it, decoded; "[class]": a class token
  std::vector<std::string> keys;        // the tokens that they attend to; empty: the same
  std::vector<std::string> vocabulary;  // the tokens of distance_nvv
  std::vector<LayerInspection> layers;
  DepthNorms norms;  // of a token's vectors, mean over the tokens; for cross those of the decoder
  // The same before training, for a model with random initial weights; not for cross.
  std::optional<DepthNorms> norms_at_start = {};

  const std::vector<std::string>& key_tokens() const { return keys.empty() ? tokens : keys; }
};

struct InspectionLimits {
  std::int64_t tokens = 64;      // of the text, from its start
  std::int64_t vocabulary = 96;  // of a larger vocabulary: the first distinct tokens of the text
};

// More tokens are refused: scores are kept for every pair of them.
constexpr std::int64_t most_inspected_tokens = 1024;

// Throws Error (exit code 2) for a run whose model is no transformer.
void require_transformer(const LoadedRun& run);

// Token ids of a text as the run's model reads it: cut to the limit and to the model's context, a source to one token
// less, because a mark follows. For sorters a list's numbers, then the sorted list without its last number. Errors:
// exit code 2, a list of another length; 3, a text that is empty or cannot be encoded.
std::vector<std::int32_t> ids_of_text(const LoadedRun& run, const std::string& text, std::int64_t tokens);

// Runs the model once over the ids, in float64, so that mixers take their reference path. No other thread may use the
// model meanwhile: it is float32 again only afterwards. Errors: exit code 2 for a model that is no transformer, and for
// more tokens than most_inspected_tokens.
TextInspection inspect_text(const LoadedRun& run, const std::vector<std::int32_t>& ids,
                            const InspectionLimits& limits = {});

// The same for an encoder-decoder that reads a source and writes a target (without marks, not empty, cut to the limit
// and the context). Returns encoder, decoder, cross. A token of the decoder has the name of the token that is read
// there, one of cross the name of the token that is written there; "[mark]" ends the source, and begins and ends the
// target.
std::vector<TextInspection> inspect_pair(const LoadedRun& run, const EncodedPair& pair,
                                         const InspectionLimits& limits = {});

// All arrays, float32, by the names of docs/inspect.md: "layer.0.attention", "cross.layer.0.attention", ...
NamedTensors to_tensors(const TextInspection& inspection);

// Gradients of the mean loss of one training-sized batch, without dropout and update, with an empty memory.
struct GradientNorms {
  DepthNorms stream;                        // Frobenius norm of the gradient with respect to the stream
  std::vector<double> mixer, feed_forward;  // by layer, with respect to the branch's parameters, its norms included
};

// Mean cross-entropy of the targets at one position of the window, from 0.
struct PositionLoss {
  std::int64_t position = 0, targets = 0;
  double loss = 0;
};

// Mean cross-entropy of the same targets if the model reads only the last `tokens` tokens before each.
struct ContextLoss {
  std::int64_t tokens = 0;
  double loss = 0;
};

struct SplitInspection {
  GradientNorms gradients;
  std::vector<PositionLoss> loss_by_position;  // not for classifiers; positions without targets are left out
  // Language models without memory only. The targets are the last ones of `context_targets` windows spread over the
  // split; positions start again at the first token that the model reads.
  std::vector<ContextLoss> loss_by_context;
  std::int64_t context_targets = 0;
  // The smallest context in loss_by_context from which on the loss is at most 1% above that with the whole context.
  std::optional<std::int64_t> effective_context;
};

struct SplitLimits {
  std::int64_t batches = 0;             // of evaluation, for loss_by_position; 0: the whole split
  std::int64_t context_targets = 1024;  // at most, rounded up to whole batches
};

// Inspects the model on the validation split, in the precision of the run (gradients in float32). Throws Interrupted
// when a signal asks to stop. Errors: exit code 2 for a model that is no transformer.
SplitInspection inspect_split(const LoadedRun& run, const Task& task, const SplitLimits& limits = {});

// SplitInspection::effective_context, from losses with growing context, the last one with the whole context.
std::int64_t effective_context_of(const std::vector<ContextLoss>& losses);

}  // namespace metaformer
