#include "attention/mixers.h"

#include "cpu/attention.h"

namespace metaformer {

std::shared_ptr<Mixer> make_mixer(const MixerConfig& config, const MixerShape& shape) {
  return std::visit([&](const auto& options) { return make(options, shape); }, config);
}

MixerCost cost_of(const MixerConfig& config, const MixerShape& shape, const MixerLoad& load) {
  return std::visit([&](const auto& options) { return cost(options, shape, load); }, config);
}

// Of positions that the mixer owns.
static std::int64_t position_parameters(const MixerShape& shape, std::int64_t score_width) {
  if (const auto* shaw = std::get_if<ShawPositionsConfig>(&shape.positions))
    return (2 * shaw->max_distance + 1) * (score_width + shape.head_width());
  if (const auto* xl = std::get_if<TransformerXlPositionsConfig>(&shape.positions))
    return shape.heads * score_width * (shape.width + (xl->shared_biases ? 0 : 2));
  return 0;
}

bool AttentionCost::need_pairs(const PositionsConfig& positions, std::int64_t context) {
  if (is<TransformerXlPositionsConfig>(positions)) return context > longest_host_attention;
  return act_on_scores(positions) && !is<RotaryPositionsConfig>(positions);
}

MixerCost AttentionCost::of(const MixerShape& shape, const MixerLoad& load, Backend backend) const {
  const auto d = shape.width, n = shape.heads, k = shape.head_width();
  const bool keeps_pairs = backend == Backend::reference || need_pairs(shape.positions, load.context);
  const bool compares_distances = is<TransformerXlPositionsConfig>(shape.positions);
  const auto norm_parameters = learned_temperature ? n : qk_norms * k;
  const auto width = static_cast<double>(d), heads = static_cast<double>(n);
  return {.parameters = projections * (d * d + (shape.bias ? d : 0)) + n * form_parameters + norm_parameters +
                        position_parameters(shape, score_width),
          .operations = 2 * static_cast<double>(projections) * load.tokens * width * width + form_operations +
                        2 * load.pairs * heads * static_cast<double>(score_width + k),
          // The reference keeps scores, weights, mask and dropped weights of all pairs.
          .activations = (compares_distances ? 7 : 5) * d + (keeps_pairs ? 4 * n * load.context : 0),
          .keeps_pairs = keeps_pairs};
}

}  // namespace metaformer
