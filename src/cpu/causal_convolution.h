#pragma once
// A filter of every feature over a token and those before it, on the CPU in float32, and what follows it.

#include <cstdint>

namespace metaformer {

// z_t = bias + sum_j filter_j x_(t - size + 1 + j), over tokens of one sequence and t's segment; y = z, or z
// logistic(z).
struct TokenFilter {
  const float* filter_jd = nullptr;  // [size, width]
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

void filter_tokens(const TokenFilter& filter, const FilteredTokens& tokens, float* y);

// Adds to dx [tokens, width], dfilter_jd and, where there is a bias, dbias_d.
void filter_tokens_backward(const TokenFilter& filter, const FilteredTokens& tokens, const float* dy, float* dx,
                            float* dfilter_jd, float* dbias_d);

}  // namespace metaformer
