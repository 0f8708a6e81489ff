#pragma once
// The mixer of a model: its kinds with their options and rules, and the kinds of positions. attention/ has their
// computation and cost.

#include <algorithm>
#include <memory>

#include "config/schema.h"

namespace metaformer {

class Mixer;

// How a model knows where a token stands.
struct LearnedPositionsConfig
    : Named<"learned", "a learned vector for every position, added to the token's embedding"> {};

struct NoPositionsConfig
    : Named<"none", "no positions: only the mixer's mask and window depend on the order of tokens"> {};

struct SinusoidalPositionsConfig
    : Named<"sinusoidal", "sines and cosines, added to the token's embedding (Vaswani et al. 2017)"> {
  double base = 10000;

  void visit(auto& field) {
    field("base", base, Range{.low = 1, .low_open = true}, "the longest wavelength is 2 pi base tokens");
  }
};

struct RotaryPositionsConfig
    : Named<"rotary", "queries and keys rotated by angles in proportion to the position (RoPE, Su et al. 2021)"> {
  double base = 10000, fraction = 1;

  // How many of `key_width` features of a head are rotated: an even number.
  std::int64_t rotated_width(std::int64_t key_width) const {
    return static_cast<std::int64_t>(fraction * static_cast<double>(key_width)) / 2 * 2;
  }

  void visit(auto& field) {
    field("base", base, Range{.low = 1, .low_open = true}, "the longest wavelength is 2 pi base tokens");
    field("fraction", fraction, above(0, 1), "fraction of a head's features that are rotated, the first ones");
  }
};

struct AlibiPositionsConfig
    : Named<"alibi", "scores fall linearly with the distance, with one slope per head (ALiBi, Press et al. 2022)"> {};

struct T5PositionsConfig
    : Named<"t5", "a learned number per head and bucket of distances, added to the scores (Raffel et al. 2020)"> {
  std::int64_t buckets = 32, max_distance = 128;

  void visit(auto& field) {
    field("buckets", buckets, between(4, 4096),
          "half of them for exact distances, the others logarithmic; without a causal mask each side has half of them");
    field("max_distance", max_distance, between(2, 1 << 20), "distance from which all share the last bucket");
  }
};

struct ShawPositionsConfig
    : Named<"shaw", "learned vectors of clipped distances, added to keys and values (Shaw et al. 2018)"> {
  std::int64_t max_distance = 16;

  void visit(auto& field) {
    field("max_distance", max_distance, between(1, 4096), "larger distances are clipped to this one");
  }
};

struct TransformerXlPositionsConfig : Named<"transformer_xl",
                                            "scores include projected sinusoids of the distance, and two learned "
                                            "vectors replace the query's position (Transformer-XL, Dai et al. 2019)"> {
  bool shared_biases = true;
  std::int64_t clamp_length = 0;

  void visit(auto& field) {
    field("shared_biases", shared_biases,
          "all layers share the two learned vectors u and v; false: each layer has its own");
    field("clamp_length", clamp_length, between(0, 1 << 20),
          "larger distances, in both directions, count as this one; 0: no limit");
  }
};

using PositionsConfig =
    std::variant<LearnedPositionsConfig, NoPositionsConfig, SinusoidalPositionsConfig, RotaryPositionsConfig,
                 AlibiPositionsConfig, T5PositionsConfig, ShawPositionsConfig, TransformerXlPositionsConfig>;

// Whether positions change scores, and so need a mixer with scores; the others are added to the embeddings.
inline bool act_on_scores(const PositionsConfig& positions) {
  return !is<LearnedPositionsConfig>(positions) && !is<NoPositionsConfig>(positions) &&
         !is<SinusoidalPositionsConfig>(positions);
}

// reference: the formula as written, with the whole score matrix. composed: batched products around the library's
// attention. fused: the CUDA kernels of cuda/. automatic: of the backends that support the options, the one that is
// expected to be the fastest (attention/kernel_choice.h); the reference only if there is no other.
enum class Backend { automatic, reference, composed, fused };
constexpr std::array<std::string_view, 4> enum_names(Backend) { return {"auto", "reference", "composed", "fused"}; }

// Properties of the model around a mixer.
struct MixerShape {
  std::int64_t width = 0, heads = 0;
  std::int64_t context = 0;            // tokens of the sequences that the model is made for
  double dropout = 0;                  // of scores, in training
  bool bias = false;                   // in projections
  double output_std = 0.02;            // standard deviation of the initial weights of its output projection
  std::int64_t layer = 0, layers = 1;  // index of its block, and number of blocks
  bool is_first_of_kind = true;        // no block before it has a mixer of its kind
  PositionsConfig positions = NoPositionsConfig{};  // only those that act on scores concern a mixer
  bool crosses = false;  // its context is another sequence: a decoder sees an encoder's output
  std::int64_t head_width() const { return width / heads; }
};

// A contradiction between options, or between options and the model. `what` says what is wrong with the first key
// ("model.mixer.score"); changing one of the other keys would resolve it, too.
struct MixerProblem {
  std::vector<std::string> keys;
  std::string what;
};

// Default properties of a mixer; the functions below MixerConfig explain them. Options of mixers with several backends
// also have `backend`. `make`, defined in the mixer's source in attention/, makes the mixer, not yet initialised
// (model/parameters.h).
struct MixerOptions {
  static constexpr bool has_scores = false, chooses_by_whole_sequence = false, carries_state = false,
                        takes_longer_context = true, can_be_causal = true;
  bool can_cross() const { return false; }  // whether its context can be another sequence
  std::vector<Backend> backends() const { return {Backend::composed}; }
  std::int64_t key_width(const MixerShape& shape) const { return shape.head_width(); }
  std::int64_t tokens_kept(std::int64_t tokens) const { return tokens; }  // see tokens_kept_of
  std::optional<MixerProblem> problem(const MixerShape&) const { return std::nullopt; }
};

// Options of mixers with queries and keys.
void visit_qk_norm(auto& field, auto& o) {
  field("qk_norm", o.qk_norm,
        "queries and keys are normalised per head (RMS, with a learned gain), so that scores cannot grow with the "
        "weights");
  field("learned_temperature", o.learned_temperature,
        "with qk_norm: each head learns a number that multiplies its scores, in place of the gain (cosine attention)");
}

void visit_backend(auto& field, Backend& backend) {
  field("backend", backend,
        "reference: the formula as written; composed: batched products around the library's attention; fused: CUDA "
        "kernels, where the mixer has them; auto chooses");
}

// The vectors that are mixed: the projection from which scores are computed, the same before qk_norm, or another
// projection.
enum class MixerValues { shared, unnormalised, own };
constexpr std::array<std::string_view, 3> enum_names(MixerValues) { return {"shared", "unnormalised", "own"}; }

// The reason why the kernels of cuda/ cannot compute heads of this shape; nothing if they can.
std::optional<MixerProblem> fused_problem(const MixerShape& shape);

// The function that turns a token's scores into weights. sigmoid: each score s on its own, sigmoid(s - log n), where
// the token sees n tokens (in Ramapuram et al. 2024 n is the length of the sequence). So weights add up to about 1 at
// the start, and do not depend on later tokens or on other texts in a packed row.
enum class AttentionWeights { softmax, sigmoid };
constexpr std::array<std::string_view, 2> enum_names(AttentionWeights) { return {"softmax", "sigmoid"}; }

void visit_score_std(auto& field, std::optional<double>& score_std) {
  field("score_std", score_std, positive,
        "standard deviation of the initial scores between different tokens; null: queries and keys are drawn from "
        "N(0, 0.02²), as in GPT-2");
}

struct ScaledDotProductOptions : MixerOptions,
                                 Named<"scaled_dot_product", "softmax(q k^T / sqrt(k)) v, three projections (2017)"> {
  static constexpr bool has_scores = true;
  std::optional<double> score_std = 1;
  bool qk_norm = false, learned_temperature = false;
  std::int64_t window = 0, key_value_heads = 0;
  bool sinks = false;
  AttentionWeights weights = AttentionWeights::softmax;
  Backend backend = Backend::automatic;

  std::vector<Backend> backends() const { return {Backend::composed, Backend::reference}; }
  bool can_cross() const { return true; }
  std::int64_t key_heads(const MixerShape& shape) const { return key_value_heads == 0 ? shape.heads : key_value_heads; }
  std::int64_t tokens_kept(std::int64_t tokens) const { return window == 0 ? tokens : std::min(tokens, window); }
  std::optional<MixerProblem> problem(const MixerShape& shape) const;

  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    visit_score_std(field, score_std);
    visit_qk_norm(field, *this);
    field("window", window, between(0, 1 << 20),
          "a token sees only tokens at a distance below this, itself included; 0: all tokens");
    field("key_value_heads", key_value_heads, between(0, 1 << 16),
          "heads of keys and values, each shared by equally many heads of queries (GQA, Ainslie et al. 2023; 1: MQA, "
          "Shazeer 2019); 0: one for each head of queries");
    field("sinks", sinks,
          "each head learns the score of one additional token whose value is 0, so that weights may add up to less "
          "than 1");
    field("weights", weights,
          "softmax; or sigmoid: sigmoid(s - log n) of each score s separately, for a token that sees n tokens "
          "(Ramapuram et al. 2024)");
    visit_backend(field, backend);
  }
};

// The options that metric and quadratic attention share.
void visit_form(auto& field, auto& o) {
  field("values", o.values,
        "shared: the projection that gives the scores; unnormalised: that projection before qk_norm; own: a separate "
        "projection");
  field("score_std", o.score_std, positive,
        "standard deviation of the initial scores between different tokens; the smaller, the closer each head starts "
        "to a plain mean");
  visit_qk_norm(field, o);
  field("fixed_norm", o.fixed_norm,
        "the form of each head (M, or W) is divided by its Frobenius norm and multiplied by that of the identity: only "
        "its direction is learned");
  visit_backend(field, o.backend);
}

enum class QuadraticForm { projected, full };
constexpr std::array<std::string_view, 2> enum_names(QuadraticForm) { return {"projected", "full"}; }

struct QuadraticOptions
    : MixerOptions,
      Named<"quadratic", "scores from a free bilinear form over one shared projection (or over the inputs x)"> {
  static constexpr bool has_scores = true;
  QuadraticForm form = QuadraticForm::projected;
  MixerValues values = MixerValues::shared;
  double score_std = 1;
  bool qk_norm = false, learned_temperature = false, fixed_norm = false;
  Backend backend = Backend::automatic;

  std::vector<Backend> backends() const {
    if (form == QuadraticForm::full) return {Backend::composed, Backend::reference};
    return {Backend::composed, Backend::reference, Backend::fused};
  }

  // The full form scores the inputs themselves, not projections of each side.
  bool can_cross() const { return form == QuadraticForm::projected; }

  std::optional<MixerProblem> problem(const MixerShape& shape) const;
  std::int64_t key_width(const MixerShape& shape) const {
    return form == QuadraticForm::full ? shape.width : shape.head_width();
  }

  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    field("form", form, "projected: p W p^T per head; full: x U x^T with a width x width form per head");
    visit_form(field, *this);
  }
};

// How the metric M of a head is parameterised.
enum class MetricConstraint { symmetric, psd, diagonal, identity };
constexpr std::array<std::string_view, 4> enum_names(MetricConstraint) {
  return {"symmetric", "psd", "diagonal", "identity"};
}

enum class MetricScore { bilinear, distance, as_published };
constexpr std::array<std::string_view, 3> enum_names(MetricScore) { return {"bilinear", "distance", "as_published"}; }

struct MetricOptions : MixerOptions, Named<"metric", "scores from a learned metric tensor over one shared projection"> {
  static constexpr bool has_scores = true;
  MetricConstraint constraint = MetricConstraint::symmetric;
  MetricScore score = MetricScore::bilinear;
  MixerValues values = MixerValues::shared;
  double score_std = 1;
  bool qk_norm = false, learned_temperature = false, fixed_norm = false;
  Backend backend = Backend::automatic;

  std::vector<Backend> backends() const {
    if (score == MetricScore::as_published) return {Backend::reference};
    return {Backend::composed, Backend::reference, Backend::fused};
  }

  // The published formula mirrors scores at the diagonal, so a sequence must attend to itself.
  bool can_cross() const { return score != MetricScore::as_published; }

  std::optional<MixerProblem> problem(const MixerShape& shape) const;

  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    field("constraint", constraint,
          "M symmetric; psd (M = L L^T); diagonal; or identity (scores p p^T, no metric parameters)");
    field("score", score,
          "bilinear: p M p'; distance: -(p-p') M (p-p'); as_published: the uncorrected formula, for comparison only");
    visit_form(field, *this);
  }
};

// How many buckets a round of hashing has.
struct LshBuckets {
  static constexpr const char *expected = "an even number of buckets or 'auto'",
                              *type = "even integer, at least 2, or auto", *word = "auto";
  static constexpr std::int64_t fewest = 2, step = 2;
  std::int64_t count = 0;  // 0 stands for `auto`
  bool automatic() const { return count == 0; }
  std::string write() const { return automatic() ? word : std::to_string(count); }
  bool read(const std::string& text);
};

// The tokens that a token sees in its chunks: all, or those of its bucket.
enum class LshVisible { chunk, bucket };
constexpr std::array<std::string_view, 2> enum_names(LshVisible) { return {"chunk", "bucket"}; }

struct LshOptions
    : MixerOptions,
      Named<"lsh",
            "softmax over tokens in neighbouring hash buckets, with one projection for queries and keys (Reformer)"> {
  static constexpr bool chooses_by_whole_sequence = true;
  std::int64_t rounds = 4, chunk = 64;
  LshBuckets buckets;
  LshVisible visible = LshVisible::chunk;
  bool correct_duplicates = false;
  double score_std = 1;

  // The number of buckets for `context` tokens: by default half a chunk falls into each.
  std::int64_t bucket_count(std::int64_t context) const;

  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    field("rounds", rounds, between(1, 1024), "rounds of hashing; a token sees the union of their tokens");
    field("chunk", chunk, between(2, 1 << 20),
          "tokens in a chunk of the sorted sequence; a token sees its chunk and the one before; sequences of at most "
          "this length have full attention");
    field("buckets", buckets, "buckets of a round of hashing; auto: 2 model.context / chunk");
    field("visible", visible,
          "chunk: all tokens of the token's chunk and the one before; bucket: only those in its own bucket");
    field("correct_duplicates", correct_duplicates, "a token that is seen in several rounds counts once");
    field("score_std", score_std, positive, "standard deviation of the initial scores between different tokens");
  }
};

struct DifferentialOptions
    : MixerOptions,
      Named<"differential", "the difference of two softmaxes for each pair of heads (Ye et al. 2024)"> {
  static constexpr bool has_scores = true;
  std::optional<double> score_std = 1;
  Backend backend = Backend::automatic;

  std::vector<Backend> backends() const { return {Backend::composed, Backend::reference}; }
  bool can_cross() const { return true; }
  std::optional<MixerProblem> problem(const MixerShape& shape) const;

  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    visit_score_std(field, score_std);
    visit_backend(field, backend);
  }
};

// Width of a pooling window in tokens, or all visible tokens.
struct PoolingWindow {
  static constexpr const char *expected = "a number of tokens (at least 1) or 'all'",
                              *type = "integer, at least 1, or all", *word = "all";
  static constexpr std::int64_t fewest = 1, step = 1;
  std::int64_t tokens = 3;  // 0 stands for `all`
  bool all() const { return tokens == 0; }
  std::string write() const { return all() ? word : std::to_string(tokens); }
  bool read(const std::string& text);
};

struct AveragePoolingOptions
    : MixerOptions,
      Named<"average_pooling", "mean over a window of visible tokens, minus the token (PoolFormer)"> {
  PoolingWindow window;
  Backend backend = Backend::automatic;

  std::vector<Backend> backends() const { return {Backend::composed, Backend::reference}; }

  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    field("window", window, "tokens in the window, counting the token itself; or all");
    visit_backend(field, backend);
  }
};

// Mixers that read earlier tokens from a state: a matrix for each head, which every token decays and adds to
// (ops/state_mixing.h). Its size does not depend on the length of the text.

enum class StateDirection { both, forward };
constexpr std::array<std::string_view, 2> enum_names(StateDirection) { return {"both", "forward"}; }

struct StateMixerOptions : MixerOptions {
  static constexpr bool carries_state = true;
  StateDirection direction = StateDirection::both;
  std::int64_t convolution = 0;
};

void visit_state(auto& field, auto& o, const char* convolved) {
  field("convolution", o.convolution, between(0, 64), convolved);
  field("direction", o.direction,
        "in models without a causal mask: both adds a pass in each direction; forward reads only forwards");
}

enum class LinearFeatures { elu, taylor };
constexpr std::array<std::string_view, 2> enum_names(LinearFeatures) { return {"elu", "taylor"}; }

struct LinearAttentionOptions
    : StateMixerOptions,
      Named<"linear_attention", "f(q) f(k)^T v, normalised: attention without softmax (Katharopoulos et al. 2020)"> {
  LinearFeatures features = LinearFeatures::elu;
  std::int64_t feature_width = 16;

  std::int64_t key_width(const MixerShape& shape) const {
    return features == LinearFeatures::taylor ? feature_width : shape.head_width();
  }
  std::optional<MixerProblem> problem(const MixerShape& shape) const;
  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    field("features", features,
          "elu: f(x) = elu(x) + 1; taylor: the exponential of a score, expanded to second order (Based, Arora et al. "
          "2024)");
    field("feature_width", feature_width, between(1, 128),
          "with features taylor: features of a head's queries and keys");
    visit_state(field, *this, "tokens of a short convolution of queries, keys and values; 0: none");
  }
};

struct RetentionOptions
    : StateMixerOptions,
      Named<"retention",
            "q k^T decays with the distance, at a fixed rate for each head; gated (RetNet, Sun et al. 2023)"> {
  std::optional<MixerProblem> problem(const MixerShape& shape) const;
  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    visit_state(field, *this, "tokens of a short convolution of queries, keys and values; 0: none");
  }
};

struct GatedLinearAttentionOptions
    : StateMixerOptions,
      Named<"gated_linear_attention",
            "a state with a decay for each feature of the keys, computed from the token (GLA, Yang et al. 2024)"> {
  std::int64_t rank = 16;

  std::optional<MixerProblem> problem(const MixerShape& shape) const;
  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    field("rank", rank, between(1, 1024), "rank of the two matrices whose product gives the decay");
    visit_state(field, *this, "tokens of a short convolution of queries, keys and values; 0: none");
  }
};

struct Mamba2Options : StateMixerOptions,
                       Named<"mamba2", "a state space with one decay for each head and token (Dao and Gu 2024)"> {
  std::int64_t expand = 1, state = 64;
  Mamba2Options() { convolution = 4; }

  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    field("expand", expand, between(1, 16),
          "inner width over model width; the paper's 2 has 1.8 times the parameters of scaled_dot_product");
    field("state", state, between(1, 4096),
          "size of the state: features of the keys (B) and queries (C), which all heads share");
    visit_state(field, *this, "tokens of a short convolution of queries, keys and values; 0: none");
  }
};

struct DeltaNetOptions : StateMixerOptions,
                         Named<"delta_net",
                               "the value stored under a key is replaced by a new one, at a rate computed from the "
                               "token (Yang et al. 2024)"> {
  DeltaNetOptions() { convolution = 4; }
  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    visit_state(field, *this, "tokens of a short convolution of queries, keys and values; 0: none");
  }
};

struct GatedDeltaNetOptions
    : StateMixerOptions,
      Named<"gated_delta_net", "delta_net whose state also decays; gated (Yang, Kautz, Hatamizadeh 2025)"> {
  GatedDeltaNetOptions() { convolution = 4; }
  std::optional<MixerProblem> problem(const MixerShape& shape) const;
  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    visit_state(field, *this, "tokens of a short convolution of queries, keys and values; 0: none");
  }
};

struct Rwkv7Options
    : StateMixerOptions,
      Named<"rwkv7", "a delta rule with a rate and a decay for every feature (RWKV-7, Peng et al. 2025)"> {
  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    field("direction", direction,
          "in models without a causal mask: both adds a pass in each direction; forward reads only forwards");
  }
};

// Mixers whose weights depend on the positions of tokens, not on their content. They have weights for model.context
// tokens.
struct PlacedMixerOptions : MixerOptions {
  static constexpr bool takes_longer_context = false;
};

// The averaged vectors: the inputs themselves, or projections of them; then the output is a projection, too.
enum class AveragedValues { inputs, own };
constexpr std::array<std::string_view, 2> enum_names(AveragedValues) { return {"inputs", "own"}; }

void visit_averaged(auto& field, auto& o) {
  field("values", o.averaged, "inputs: averages the inputs; own: averages a projection of them, and projects the mean");
}

struct RandomOptions : PlacedMixerOptions,
                       Named<"random",
                             "a mean of the visible tokens with fixed random weights, the same for all texts "
                             "(RandFormer, Yu et al. 2023)"> {
  AveragedValues averaged = AveragedValues::inputs;

  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) { visit_averaged(field, *this); }
};

struct StaticOptions
    : PlacedMixerOptions,
      Named<"static",
            "a mean of the visible tokens with learned weights for each head (Synthesizer, Tay et al. 2021)"> {
  AveragedValues averaged = AveragedValues::own;

  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) { visit_averaged(field, *this); }
};

struct SpatialGatingOptions
    : PlacedMixerOptions,
      Named<"spatial_gating",
            "features gated by a learned sum of other features over the tokens (gMLP, Liu et al. 2021)"> {
  double expand = 4.0 / 3;

  // The width of either half: the nearest multiple of 8, at least 8.
  std::int64_t gated_width(std::int64_t width) const { return multiple_of_8(static_cast<double>(width) * expand); }

  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    field("expand", expand, above(0, 64),
          "gated width over model width, rounded to a multiple of 8; by default the projections have as many weights "
          "as those of scaled_dot_product");
  }
};

struct FourierOptions
    : MixerOptions,
      Named<"fourier", "the real part of a Fourier transform over tokens and features (FNet, Lee-Thorp et al. 2022)"> {
  static constexpr bool chooses_by_whole_sequence = true, can_be_causal = false;
  std::shared_ptr<Mixer> make(const MixerShape& shape) const;
};

struct ShortConvolutionOptions
    : StateMixerOptions,
      Named<"short_convolution", "a gated convolution over few tokens (LFM2, Liquid AI 2025)"> {
  ShortConvolutionOptions() { convolution = 3; }
  std::optional<MixerProblem> problem(const MixerShape& shape) const;
  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) { visit_state(field, *this, "tokens that the convolution sees, the token itself included"); }
};

struct HyenaOptions : MixerOptions,
                      Named<"hyena",
                            "gated convolutions over all tokens, with filters that a network computes from the "
                            "distance (Poli et al. 2023)"> {
  static constexpr bool takes_longer_context = false;
  std::int64_t order = 2, filter_width = 64, convolution = 3;
  StateDirection direction = StateDirection::both;

  std::shared_ptr<Mixer> make(const MixerShape& shape) const;

  void visit(auto& field) {
    field("order", order, between(2, 8), "products with projections, and a long convolution between any two of them");
    field("filter_width", filter_width, between(1, 4096), "hidden width of the network that computes the filters");
    visit_state(field, *this, "tokens of a short convolution of the projections; 0: none");
  }
};

// The two controls of the ablation.
struct IdentityOptions : MixerOptions, Named<"identity", "the branch returns its input: no mixing"> {
  std::shared_ptr<Mixer> make(const MixerShape& shape) const;
};
struct NoneOptions : MixerOptions, Named<"none", "no mixer branch at all"> {
  std::shared_ptr<Mixer> make(const MixerShape& shape) const;
};

// The mixers, in the order in which they are listed everywhere. The first is the default.
using MixerConfig =
    std::variant<ScaledDotProductOptions, QuadraticOptions, MetricOptions, LshOptions, DifferentialOptions,
                 LinearAttentionOptions, RetentionOptions, GatedLinearAttentionOptions, Mamba2Options, DeltaNetOptions,
                 GatedDeltaNetOptions, Rwkv7Options, ShortConvolutionOptions, HyenaOptions, FourierOptions,
                 SpatialGatingOptions, StaticOptions, RandomOptions, AveragePoolingOptions, IdentityOptions,
                 NoneOptions>;

// Whether it mixes by scores, so that positions may act on them.
inline bool has_scores(const MixerConfig& mixer) {
  return std::visit([](const auto& options) { return options.has_scores; }, mixer);
}

// Whether the set of tokens that a token sees depends on later tokens (LSH). Then generation token by token differs
// from one pass over the whole text.
inline bool chooses_by_whole_sequence(const MixerConfig& mixer) {
  return std::visit([](const auto& options) { return options.chooses_by_whole_sequence; }, mixer);
}

// Whether the mixer can hide later tokens from a token.
inline bool can_be_causal(const MixerConfig& mixer) {
  return std::visit([](const auto& options) { return options.can_be_causal; }, mixer);
}

// Whether the mixer remembers earlier tokens by a state of fixed size, which continues from one pass to the next.
inline bool carries_state(const MixerConfig& mixer) {
  return std::visit([](const auto& options) { return options.carries_state; }, mixer);
}

// Whether a context may be longer than model.context, as with model.memory.
inline bool takes_longer_context(const MixerConfig& mixer) {
  return !chooses_by_whole_sequence(mixer) &&
         std::visit([](const auto& options) { return options.takes_longer_context; }, mixer);
}

// How many of `tokens` earlier tokens a state without fixed size must keep for the next token.
inline std::int64_t tokens_kept_of(const MixerConfig& mixer, std::int64_t tokens) {
  return std::visit([&](const auto& options) { return options.tokens_kept(tokens); }, mixer);
}

// The backends that the options have, and the chosen one: composed if there is no choice.
inline std::vector<Backend> backends_of(const MixerConfig& mixer) {
  return std::visit([](const auto& options) { return options.backends(); }, mixer);
}
Backend backend_of(const MixerConfig& mixer);
MixerConfig with_backend(MixerConfig mixer, Backend backend);  // does nothing if there is only composed

// Whether a token needs nothing from earlier tokens but a state of fixed size.
inline bool has_endless_state(const MixerConfig& mixer) {
  return carries_state(mixer) || is<IdentityOptions>(mixer) || is<NoneOptions>(mixer);
}

// Whether a mixer that could read in both directions (where tokens see later ones) only reads forwards.
inline bool reads_forwards(const MixerConfig& mixer) {
  return std::visit(
      [](const auto& options) {
        if constexpr (requires { options.direction; }) return options.direction == StateDirection::forward;
        return false;
      },
      mixer);
}

// The number of features of a query or key of a mixer with scores.
inline std::int64_t key_width(const MixerConfig& mixer, const MixerShape& shape) {
  return std::visit([&](const auto& options) { return options.key_width(shape); }, mixer);
}

// The first problem of the options themselves, else a backend that they do not have; nothing if there is none.
std::optional<MixerProblem> problem_of(const MixerConfig& mixer, const MixerShape& shape);

// Consecutive blocks of one mixer: an item of a list of mixers, which the blocks of a model take by turns.
struct MixerLayers {
  MixerConfig mixer;
  std::int64_t layers = 1;

  void visit(auto& field) {
    field("mixer", mixer, "mixer of these blocks");
    field("layers", layers, between(1, 1024), "number of consecutive blocks with this mixer");
  }
};

}  // namespace metaformer
