#include "cpu/causal_convolution.h"

#include <algorithm>
#include <vector>

#include "cpu/vector_math.h"

namespace metaformer {

namespace {

// Neighbouring tokens that a token sees, and the row of the filter that acts on the first of them.
struct Run {
  std::int64_t token, row, count;
};

METAFORMER_INLINE void find_runs(const TokenFilter& filter, const FilteredTokens& tokens, std::int64_t token,
                                 std::vector<Run>& runs) {
  runs.clear();
  const auto first = std::max<std::int64_t>(0, token - filter.size + 1), row = filter.size - 1 - token;
  if (tokens.segment == nullptr) return runs.push_back({first, first + row, token + 1 - first});
  bool goes_on = false;
  for (auto other = first; other <= token; ++other) {
    const bool seen = tokens.segment[other] == tokens.segment[token];
    if (seen && !goes_on) runs.push_back({other, other + row, 0});
    if (seen) ++runs.back().count;
    goes_on = seen;
  }
}

// z of `count` features from i on. Four sums take turns, as each addition waits for the one before it.
METAFORMER_INLINE Lanes filtered(const TokenFilter& filter, const FilteredTokens& tokens, const std::vector<Run>& runs,
                                 std::int64_t i, std::int64_t count) {
  Lanes z[4] = {};
  if (filter.bias_d != nullptr) z[0] = load_some(filter.bias_d + i, count);
  for (const auto& run : runs) {
    const float *x = tokens.x + run.token * filter.width + i, *f = filter.filter_jd + run.row * filter.width + i;
    std::int64_t s = 0;
    for (; s + 4 <= run.count; s += 4, x += 4 * filter.width, f += 4 * filter.width)
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n)
        z[n] += load_some(x + n * filter.width, count) * load_some(f + n * filter.width, count);
    for (; s < run.count; ++s, x += filter.width, f += filter.width) z[0] += load_some(x, count) * load_some(f, count);
  }
  return (z[0] + z[1]) + (z[2] + z[3]);
}

METAFORMER_INLINE void add_some(float* to, Lanes x, std::int64_t count) {
  store_some(to, load_some(to, count) + x, count);
}

}  // namespace

METAFORMER_EVERY_VECTOR_WIDTH
void filter_tokens(const TokenFilter& filter, const FilteredTokens& tokens, float* y) {
  std::vector<Run> runs;
  const auto first = tokens.tokens - tokens.newest;
  for (auto t = first; t < tokens.tokens; ++t) {
    find_runs(filter, tokens, t, runs);
    for (auto i = tokens.begin; i < tokens.end; i += lane_count) {
      const auto count = std::min<std::int64_t>(lane_count, tokens.end - i);
      Lanes z = filtered(filter, tokens, runs, i, count), logistic, slope;
      if (filter.silu) {
        sigmoid_lanes(z, logistic, slope);
        z *= logistic;
      }
      store_some(y + (t - first) * filter.width + i, z, count);
    }
  }
}

METAFORMER_EVERY_VECTOR_WIDTH
void filter_tokens_backward(const TokenFilter& filter, const FilteredTokens& tokens, const float* dy, float* dx,
                            float* dfilter_jd, float* dbias_d) {
  std::vector<Run> runs;
  const auto first = tokens.tokens - tokens.newest;
  for (auto t = first; t < tokens.tokens; ++t) {
    find_runs(filter, tokens, t, runs);
    for (auto i = tokens.begin; i < tokens.end; i += lane_count) {
      const auto count = std::min<std::int64_t>(lane_count, tokens.end - i);
      Lanes dz = load_some(dy + (t - first) * filter.width + i, count), logistic, slope;
      if (filter.silu) {
        const Lanes z = filtered(filter, tokens, runs, i, count);
        sigmoid_lanes(z, logistic, slope);
        dz *= logistic + z * slope;
      }
      if (dbias_d != nullptr) add_some(dbias_d + i, dz, count);
      for (const auto& run : runs) {
        auto token = run.token * filter.width + i, row = run.row * filter.width + i;
        for (std::int64_t s = 0; s < run.count; ++s, token += filter.width, row += filter.width) {
          add_some(dfilter_jd + row, dz * load_some(tokens.x + token, count), count);
          add_some(dx + token, dz * load_some(filter.filter_jd + row, count), count);
        }
      }
    }
  }
}

}  // namespace metaformer
