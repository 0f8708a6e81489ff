#pragma once
// The mixer that a config asks for.

#include <memory>
#include <vector>

#include "attention/mixer.h"

namespace metaformer {

// The mixer that the options describe, not yet initialised (see initialise in model/sequence_model.h).
std::shared_ptr<Mixer> make_mixer(const MixerOptions& options, const MixerShape& shape);

// One of each kind with its defaults, and every meaningful combination of their options: what "for every mixer" means.
std::vector<MixerOptions> every_mixer();

}  // namespace metaformer
