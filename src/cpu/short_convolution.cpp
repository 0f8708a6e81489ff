#include "cpu/short_convolution.h"

#include <algorithm>
#include <array>

#include "cpu/vector_math.h"

namespace metaformer {

namespace {

// The tokens that a token sees, and which rows of the filter act on them.
struct Seen {
  std::array<std::int64_t, longest_short_filter> token, filter;
  std::int64_t count = 0;
};

METAFORMER_INLINE void find_seen(const ShortFilter& filter, const FilteredTokens& tokens, std::int64_t token,
                                 Seen& seen) {
  seen.count = 0;
  for (std::int64_t j = std::max<std::int64_t>(0, filter.size - 1 - token); j < filter.size; ++j) {
    const auto other = token - filter.size + 1 + j;
    if (tokens.segment != nullptr && tokens.segment[other] != tokens.segment[token]) continue;
    seen.token[static_cast<std::size_t>(seen.count)] = other * filter.width;
    seen.filter[static_cast<std::size_t>(seen.count++)] = j * filter.width;
  }
}

// z of the features from i on.
METAFORMER_INLINE Lanes filtered(const ShortFilter& filter, const FilteredTokens& tokens, const Seen& seen,
                                 std::int64_t i, std::int64_t count) {
  Lanes z = filter.bias_d != nullptr ? load_some(filter.bias_d + i, count) : Lanes{};
  for (std::size_t r = 0; r < static_cast<std::size_t>(seen.count); ++r)
    z += load_some(tokens.x + seen.token[r] + i, count) * load_some(filter.filter_jd + seen.filter[r] + i, count);
  return z;
}

METAFORMER_INLINE void add_some(float* to, Lanes x, std::int64_t count) {
  store_some(to, load_some(to, count) + x, count);
}

}  // namespace

METAFORMER_EVERY_VECTOR_WIDTH
void filter_tokens(const ShortFilter& filter, const FilteredTokens& tokens, float* y) {
  Seen seen;
  const auto first = tokens.tokens - tokens.newest;
  for (auto t = first; t < tokens.tokens; ++t) {
    find_seen(filter, tokens, t, seen);
    for (auto i = tokens.begin; i < tokens.end; i += lane_count) {
      const auto count = std::min<std::int64_t>(lane_count, tokens.end - i);
      Lanes z = filtered(filter, tokens, seen, i, count), logistic, slope;
      if (filter.silu) {
        sigmoid_lanes(z, logistic, slope);
        z *= logistic;
      }
      store_some(y + (t - first) * filter.width + i, z, count);
    }
  }
}

METAFORMER_EVERY_VECTOR_WIDTH
void filter_tokens_backward(const ShortFilter& filter, const FilteredTokens& tokens, const float* dy, float* dx,
                            float* dfilter_jd, float* dbias_d) {
  Seen seen;
  const auto first = tokens.tokens - tokens.newest;
  for (auto t = first; t < tokens.tokens; ++t) {
    find_seen(filter, tokens, t, seen);
    for (auto i = tokens.begin; i < tokens.end; i += lane_count) {
      const auto count = std::min<std::int64_t>(lane_count, tokens.end - i);
      Lanes dz = load_some(dy + (t - first) * filter.width + i, count), logistic, slope;
      if (filter.silu) {
        const Lanes z = filtered(filter, tokens, seen, i, count);
        sigmoid_lanes(z, logistic, slope);
        dz *= logistic + z * slope;
      }
      if (dbias_d != nullptr) add_some(dbias_d + i, dz, count);
      for (std::size_t r = 0; r < static_cast<std::size_t>(seen.count); ++r) {
        const auto token = seen.token[r] + i, row = seen.filter[r] + i;
        add_some(dfilter_jd + row, dz * load_some(tokens.x + token, count), count);
        add_some(dx + token, dz * load_some(filter.filter_jd + row, count), count);
      }
    }
  }
}

}  // namespace metaformer
