#pragma once
// A filter of every feature over the newest tokens of a sequence, on the CPU in float32, and what follows it.

#include <cstdint>

namespace metaformer {

constexpr std::int64_t longest_short_filter = 64;

// z_t = bias + sum_j filter_j x_(t - size + 1 + j), over tokens of one sequence and t's segment; y = z, or z
// logistic(z).
struct ShortFilter {
  const float* filter_jd = nullptr;  // [size, width]; size at most longest_short_filter
  const float* bias_d = nullptr;     // none: 0
  std::int64_t size = 0, width = 0;
  bool silu = false;
};

// Features `begin` ... `end` - 1 of a sequence, whose last `newest` tokens have results.
struct FilteredTokens {
  const float* x = nullptr;               // [tokens, width]
  const std::int64_t* segment = nullptr;  // [tokens]; none: all one
  std::int64_t tokens = 0, newest = 0, begin = 0, end = 0;
};

void filter_tokens(const ShortFilter& filter, const FilteredTokens& tokens, float* y);

// Adds to dx [tokens, width], dfilter_jd and, where there is a bias, dbias_d.
void filter_tokens_backward(const ShortFilter& filter, const FilteredTokens& tokens, const float* dy, float* dx,
                            float* dfilter_jd, float* dbias_d);

}  // namespace metaformer
