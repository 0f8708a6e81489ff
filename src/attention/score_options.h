#pragma once
// What the options of mixers with scores have in common. No torch.

#include "config/mixer_options.h"

namespace metaformer {

constexpr const char* score_std_help =
    "standard deviation of the initial scores between different tokens; the smaller, the nearer each head starts to a "
    "plain mean";

// Why the kernels of cuda/ cannot compute heads of this shape.
inline std::optional<MixerProblem> fused_problem(const MixerShape& shape) {
  const std::string backend = "model.mixer.backend";
  if (shape.head_width() % 8 != 0 || shape.head_width() > 128)
    return MixerProblem{
        {backend, "model.width", "model.heads"},
        fmt::format("'fused' needs heads whose width is a multiple of 8 up to 128, not {}; change model.width or "
                    "model.heads, or set composed",
                    shape.head_width())};
  if (shape.dropout > 0)
    return MixerProblem{{backend, "model.dropout"},
                        "'fused' has no dropout on scores: set model.dropout to 0, or backend to composed"};
  return std::nullopt;
}

// Of softmax attention with `projections` matrices of width x width (the output's counts), and a form of scores.
struct AttentionCost {
  std::int64_t projections = 0;
  std::int64_t form_parameters = 0;  // of a head
  double form_operations = 0;        // of all tokens and heads
  std::int64_t score_width = 0;      // numbers that a score is a product of

  MixerCost of(const MixerShape& shape, const MixerLoad& load, Backend backend) const {
    const auto d = shape.width, n = shape.heads, k = shape.head_width();
    const bool keeps_pairs = backend == Backend::reference;
    const auto width = static_cast<double>(d), heads = static_cast<double>(n);
    return {.parameters = projections * (d * d + (shape.bias ? d : 0)) + n * form_parameters,
            .operations = 2 * static_cast<double>(projections) * load.tokens * width * width + form_operations +
                          2 * load.pairs * heads * static_cast<double>(score_width + k),
            // The reference keeps scores, weights, mask and dropped weights of all pairs.
            .activations = 5 * d + (keeps_pairs ? 4 * n * load.context : 0),
            .keeps_pairs = keeps_pairs};
  }
};

}  // namespace metaformer
