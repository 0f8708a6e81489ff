#pragma once
// What tests of blocks have in common.

#include "config/model_config.h"
#include "support/mixer_options.h"

namespace metaformer {

// With the mixer that returns its input, so that only the block's own parts count.
inline TransformerConfig config_of_block(std::int64_t width, const NormConfig& norm,
                                         const FeedForwardConfig& feed_forward) {
  TransformerConfig config;
  config.heads = 2;
  config.width = width;
  config.norm = norm;
  config.feed_forward = feed_forward;
  config.mixer = IdentityOptions{};
  return config;
}

}  // namespace metaformer
