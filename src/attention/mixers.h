#pragma once
// The table of mixers. No torch.

#include <functional>

#include "config/mixer_config.h"

namespace metaformer {

class Mixer;

struct MixerRow {
  MixerConfig defaults;
  std::function<std::shared_ptr<Mixer>(const MixerOptions& options, const MixerShape& shape)> make;
};

// The row of a mixer whose options are `Options` (see MixerOptionsOf), with `make(const Options&, const MixerShape&)`
// beside them.
template <class Options>
MixerRow mixer_row() {
  return {Options{}, [](const MixerOptions& options, const MixerShape& shape) -> std::shared_ptr<Mixer> {
            return make(dynamic_cast<const MixerOptionsOf<Options>&>(options).options, shape);
          }};
}

// From now on configs know the mixer and make_mixer makes it.
void register_mixer(const MixerRow& row);

// Every mixer of this folder: to be called before the first config is read.
void register_mixers();

// The mixer that the options describe, not yet initialised (see model/parameters.h). Throws Error (exit code 1) for one
// that is not registered.
std::shared_ptr<Mixer> make_mixer(const MixerConfig& config, const MixerShape& shape);

}  // namespace metaformer
