#pragma once
// How text is generated: what is drawn, and what of a long text the model sees.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace metaformer {

// What of a text that outgrows the model's context is kept while it is generated: the last half of the context, when it
// is full (one token in context / 2 encodes that much again), or all but the oldest token (every token encodes the
// whole context again, as in nanoGPT).
enum class WindowKind { half, slide };

// The newest tokens that are kept of context + 1.
inline std::int64_t tokens_kept(std::int64_t context, WindowKind kind) {
  return kind == WindowKind::slide ? context : std::max<std::int64_t>(1, context / 2);
}

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the most likely token
  std::int64_t top_k = 200;  // 0: all
  double top_p = 1;          // smallest set of likeliest tokens that holds this share
  std::uint64_t seed = 1337;
  bool cached = true;  // false: encode the whole window for every token (slow; the same text)
  bool graphs = true;  // false: the host starts every operation, on a GPU too
  WindowKind window = WindowKind::half;
  std::vector<std::int32_t> never = {};  // ids that are not drawn, ascending: those without a token
};

}  // namespace metaformer
