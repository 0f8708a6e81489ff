#include "attention/mixers.h"

#include "cpu/attention.h"
#include "cpu/hashed_attention.h"

namespace metaformer {

std::shared_ptr<Mixer> make_mixer(const MixerConfig& config, const MixerShape& shape) {
  return std::visit([&](const auto& options) { return make(options, shape); }, config);
}

bool need_pairs(const PositionsConfig& positions, std::int64_t context) {
  if (is<TransformerXlPositionsConfig>(positions)) return context > longest_host_attention;
  return act_on_scores(positions) && !is<RotaryPositionsConfig>(positions);
}

namespace {

double real(std::int64_t count) { return static_cast<double>(count); }

// Of softmax attention with `projections` matrices of width x width, the output's included, whose scores are products
// of `score_width` numbers. `form_operations`: what the forms of all heads take.
MixerCost attention_cost(const MixerShape& shape, const MixerLoad& load, Backend backend, std::int64_t projections,
                         std::int64_t score_width, double form_operations) {
  const auto d = shape.width, n = shape.heads;
  const bool keeps_pairs = backend == Backend::reference || need_pairs(shape.positions, load.context);
  const bool compares_distances = is<TransformerXlPositionsConfig>(shape.positions);
  return {.operations = 2 * real(projections) * load.tokens * real(d) * real(d) + form_operations +
                        2 * load.pairs * real(n) * real(score_width + shape.head_width()),
          // The reference keeps scores, weights, mask and dropped weights of all pairs.
          .activations = (compares_distances ? 7 : 5) * d + (keeps_pairs ? 4 * n * load.context : 0),
          .keeps_pairs = keeps_pairs};
}

// Matrices of metric and quadratic attention: p, the output, own values, and the queries' p where the context is
// another sequence.
std::int64_t shared_projections(const MixerShape& shape, MixerValues values) {
  return 2 + (values == MixerValues::own ? 1 : 0) + (shape.crosses ? 1 : 0);
}

MixerCost cost(const ScaledDotProductOptions& options, const MixerShape& shape, const MixerLoad& load) {
  return attention_cost(shape, load, options.backend, /*projections=*/4, shape.head_width(), /*form_operations=*/0);
}

MixerCost cost(const QuadraticOptions& options, const MixerShape& shape, const MixerLoad& load) {
  const auto side = options.key_width(shape);
  return attention_cost(shape, load, options.backend, shared_projections(shape, options.values), side,
                        2 * load.tokens * real(shape.heads) * (real(side) * real(side)));
}

MixerCost cost(const MetricOptions& options, const MixerShape& shape, const MixerLoad& load) {
  const auto k = shape.head_width();
  const double of_a_feature = options.constraint == MetricConstraint::identity   ? 0
                              : options.constraint == MetricConstraint::diagonal ? 1
                                                                                 : 2 * real(k);
  return attention_cost(shape, load, options.backend, shared_projections(shape, options.values), k,
                        load.tokens * real(shape.width) * of_a_feature);
}

MixerCost cost(const LshOptions& options, const MixerShape& shape, const MixerLoad& load) {
  const auto d = shape.width, n = shape.heads,
             seen = load.context <= options.chunk ? load.context : options.rounds * 2 * options.chunk;
  const bool hashes = load.context > options.chunk;
  const auto rotated = real(options.rounds * options.bucket_count(shape.context)) / 2;
  // The kernel keeps a token's buckets and a number for each head. Operators keep for every round a query, two keys
  // and two values (of the window), and the result; weights, and a byte of mask for each.
  const bool has_kernel =
      hashes && options.chunk % hashed_chunk_step == 0 && !options.correct_duplicates && shape.dropout == 0;
  const auto copies = hashes ? 6 * options.rounds : 0, pairs = n * seen;
  const auto of_operators = copies * d + pairs + pairs / 4 + (shape.dropout > 0 ? pairs : 0);
  return {.operations = 6 * load.tokens * real(d) * real(d) + (hashes ? 2 * load.tokens * real(d) * rotated : 0) +
                        4 * load.tokens * real(seen) * real(d),
          .activations = 5 * d + (has_kernel ? (2 * options.rounds + 1) * n : of_operators)};
}

// No products of matrices; the reference has a weight for every pair.
MixerCost cost(const AveragePoolingOptions& options, const MixerShape& shape, const MixerLoad&) {
  return {.activations = shape.width, .keeps_pairs = options.backend == Backend::reference};
}

MixerCost cost(const IdentityOptions&, const MixerShape& shape, const MixerLoad&) {
  return {.activations = shape.width};
}

MixerCost cost(const NoneOptions&, const MixerShape& shape, const MixerLoad&) { return {.activations = shape.width}; }

}  // namespace

MixerCost cost_of(const MixerConfig& config, const MixerShape& shape, const MixerLoad& load) {
  return std::visit([&](const auto& options) { return cost(options, shape, load); }, config);
}

}  // namespace metaformer
