#pragma once
// What the options of mixers with scores have in common. No torch.

#include "config/mixer_config.h"
#include "cpu/attention.h"

namespace metaformer {

constexpr const char* score_std_help =
    "standard deviation of the initial scores between different tokens; the smaller, the nearer each head starts to a "
    "plain mean";

constexpr const char* qk_norm_help =
    "queries and keys are normalised per head (RMS, with a learned gain), so that scores cannot grow with the weights";

constexpr const char* learned_temperature_help =
    "with qk_norm: each head learns a number that multiplies its scores, in place of the gain (cosine attention)";

constexpr const char* fixed_norm_help =
    "the form of each head (M, or W) is divided by its Frobenius norm and multiplied by that of the identity: only its "
    "direction is learned";

// The vectors that are mixed: the projection that scores are made of, that projection before qk_norm, or another one.
enum class MixerValues { shared, unnormalised, own };
template <>
struct EnumNames<MixerValues> {
  static constexpr std::array<std::string_view, 3> values = {"shared", "unnormalised", "own"};
};

constexpr const char* values_help =
    "shared: the projection that scores are made of; unnormalised: the same before qk_norm; own: another projection";

// Values before a normalisation need one.
inline std::optional<MixerProblem> values_problem(MixerValues values, bool qk_norm) {
  if (values != MixerValues::unnormalised || qk_norm) return std::nullopt;
  return MixerProblem{{"model.mixer.values", "model.mixer.qk_norm"},
                      "without qk_norm nothing is normalised: set values to shared, or qk_norm to true"};
}

// Matrices of metric and quadratic attention: p, the output, own values, and the queries' p where the context is
// another sequence.
inline std::int64_t shared_projections(const MixerShape& shape, MixerValues values) {
  return 2 + (values == MixerValues::own ? 1 : 0) + (shape.crosses ? 1 : 0);
}

// A gain and a temperature would be two factors of one score.
inline std::optional<MixerProblem> temperature_problem(bool learned_temperature, bool qk_norm) {
  if (!learned_temperature || qk_norm) return std::nullopt;
  return MixerProblem{{"model.mixer.learned_temperature", "model.mixer.qk_norm"},
                      "true needs normalised queries and keys: set qk_norm to true"};
}

// Why the kernels of cuda/ cannot compute heads of this shape.
inline std::optional<MixerProblem> fused_problem(const MixerShape& shape, MixerValues values) {
  const std::string backend = "model.mixer.backend";
  if (shape.crosses)
    return MixerProblem{{backend}, "'fused' mixes a sequence with itself only: set backend to auto or composed"};
  if (values != MixerValues::shared)
    return MixerProblem{{backend, "model.mixer.values"},
                        "'fused' shares the values with the scores: set values to shared, or backend to composed"};
  if (act_on_scores(shape.positions))
    return MixerProblem{{backend, "model.positions"},
                        fmt::format("'fused' has no {} positions: set backend to composed, or model.positions to none, "
                                    "learned or sinusoidal",
                                    kind_of(shape.positions))};
  if (shape.head_width() % 8 != 0 || shape.head_width() > 128)
    return MixerProblem{
        {backend, "model.width", "model.heads"},
        fmt::format("'fused' needs heads whose width is a multiple of 8 up to 128, not {}; change model.width or "
                    "model.heads, or set composed",
                    shape.head_width())};
  return std::nullopt;
}

// Of softmax attention with `projections` matrices of width x width (the output's counts), and a form of scores.
struct AttentionCost {
  std::int64_t projections = 0;
  std::int64_t form_parameters = 0;  // of a head
  double form_operations = 0;        // of all tokens and heads
  std::int64_t score_width = 0;      // numbers that a score is a product of
  std::int64_t qk_norms = 0;         // norms of queries and keys
  bool learned_temperature = false;  // a number of each head, and no gains of a head's width

  // Positions that are added to scores need the whole matrix; those of Transformer-XL not where our kernel knows them.
  static bool need_pairs(const PositionsConfig& positions, std::int64_t context) {
    if (is<TransformerXlPositionsConfig>(positions)) return context > longest_host_attention;
    return act_on_scores(positions) && !is<RotaryPositionsConfig>(positions);
  }
  std::int64_t norm_parameters(const MixerShape& shape) const {
    return learned_temperature ? shape.heads : qk_norms * shape.head_width();
  }
  std::int64_t shaw_parameters(const MixerShape& shape) const {
    const auto* shaw = std::get_if<ShawPositionsConfig>(&shape.positions);
    return shaw == nullptr ? 0 : (2 * shaw->max_distance + 1) * (score_width + shape.head_width());
  }
  std::int64_t transformer_xl_parameters(const MixerShape& shape) const {
    const auto* xl = std::get_if<TransformerXlPositionsConfig>(&shape.positions);
    if (xl == nullptr) return 0;
    return shape.heads * score_width * (shape.width + (xl->shared_biases ? 0 : 2));
  }

  MixerCost of(const MixerShape& shape, const MixerLoad& load, Backend backend) const {
    const auto d = shape.width, n = shape.heads, k = shape.head_width();
    const bool keeps_pairs = backend == Backend::reference || need_pairs(shape.positions, load.context);
    const bool compares_distances = is<TransformerXlPositionsConfig>(shape.positions);
    const auto width = static_cast<double>(d), heads = static_cast<double>(n);
    return {.parameters = projections * (d * d + (shape.bias ? d : 0)) + n * form_parameters + norm_parameters(shape) +
                          shaw_parameters(shape) + transformer_xl_parameters(shape),
            .operations = 2 * static_cast<double>(projections) * load.tokens * width * width + form_operations +
                          2 * load.pairs * heads * static_cast<double>(score_width + k),
            // The reference keeps scores, weights, mask and dropped weights of all pairs.
            .activations = (compares_distances ? 7 : 5) * d + (keeps_pairs ? 4 * n * load.context : 0),
            .keeps_pairs = keeps_pairs};
  }
};

}  // namespace metaformer
