#pragma once
// Tests that hold for every mixer.

#include "attention/make_mixer.h"
#include "support/torch_catch.h"

namespace metaformer {

// One of every_mixer(): the test case runs once with each.
inline MixerOptions any_mixer() {
  static const auto all = every_mixer();
  return all[GENERATE_COPY(range(std::size_t{0}, all.size()))];
}

}  // namespace metaformer
