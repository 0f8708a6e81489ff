#pragma once
// The factories behind make_mixer, one per mixer, each in a file of its own.

#include "attention/mixer.h"

namespace metaformer {

std::shared_ptr<Mixer> make(const ScaledDotProductOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const QuadraticOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const MetricOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const AveragePoolingOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const IdentityOptions& options, const MixerShape& shape);
std::shared_ptr<Mixer> make(const NoneOptions& options, const MixerShape& shape);

}  // namespace metaformer
