#pragma once
// Makes the mixer of a config, and says what it costs.

#include <cstdint>
#include <memory>

#include "config/mixer_config.h"

namespace metaformer {

class Mixer;

// What a forward pass is given.
struct MixerLoad {
  std::int64_t context = 0;  // tokens of a sequence
  double tokens = 0;         // of all sequences
  double pairs = 0;          // of tokens of which one sees the other, of all sequences
};

struct MixerCost {
  std::int64_t parameters = 0;
  double operations = 0;         // multiplications and additions of a forward pass
  std::int64_t activations = 0;  // numbers that a token leaves for the backward pass
  bool keeps_pairs = false;      // holds numbers for every pair of tokens and head
};

// The mixer that the options describe, not yet initialised (see model/parameters.h).
std::shared_ptr<Mixer> make_mixer(const MixerConfig& config, const MixerShape& shape);

MixerCost cost_of(const MixerConfig& config, const MixerShape& shape, const MixerLoad& load);

// The same for one kind of options. The source of each mixer specialises both; what is missing does not link.
template <class Options>
std::shared_ptr<Mixer> make(const Options& options, const MixerShape& shape);
template <class Options>
MixerCost cost(const Options& options, const MixerShape& shape, const MixerLoad& load);

// Matrices of metric and quadratic attention: p, the output, own values, and the queries' p where the context is
// another sequence.
inline std::int64_t shared_projections(const MixerShape& shape, MixerValues values) {
  return 2 + (values == MixerValues::own ? 1 : 0) + (shape.crosses ? 1 : 0);
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
  static bool need_pairs(const PositionsConfig& positions, std::int64_t context);

  MixerCost of(const MixerShape& shape, const MixerLoad& load, Backend backend) const;
};

}  // namespace metaformer
