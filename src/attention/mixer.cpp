#include "attention/mixer.h"

#include "attention/mixer_decoder.h"

namespace metaformer {

std::unique_ptr<MixerDecoder> Mixer::decoder(std::int64_t, std::int64_t) const { return nullptr; }

}  // namespace metaformer
