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
  double operations = 0;         // multiplications and additions of a forward pass
  std::int64_t activations = 0;  // numbers that a token leaves for the backward pass
  bool keeps_pairs = false;      // holds numbers for every pair of tokens and head
};

// The mixer that the options describe, not yet initialised (see model/parameters.h).
std::shared_ptr<Mixer> make_mixer(const MixerConfig& config, const MixerShape& shape);

// The same for each kind of options, in the mixer's source.
std::shared_ptr<Mixer> make(const ScaledDotProductOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const QuadraticOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const MetricOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const LshOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const AveragePoolingOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const IdentityOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const NoneOptions& options, const MixerShape& shape);

MixerCost cost_of(const MixerConfig& config, const MixerShape& shape, const MixerLoad& load);

// Positions that are added to scores need the whole matrix; those of Transformer-XL not where our kernel knows them.
bool need_pairs(const PositionsConfig& positions, std::int64_t context);

}  // namespace metaformer
