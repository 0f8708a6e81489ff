#include "cpu/rotary.h"

#include <algorithm>

#include "cpu/vector_math.h"

namespace metaformer {

namespace {

// The points from `l` on of a row, at most as many as there are lanes.
template <class Element>
METAFORMER_INLINE void rotate_lanes(const RotaryToken<Element>& token, const Element* x, Element* y, std::int64_t l,
                                    std::int64_t count) {
  const auto second = token.pairs + l;
  const Lanes a = load_some(x + l, count), b = load_some(x + second, count);
  const Lanes c = load_some(token.cosines + l, count), s = load_some(token.sines + l, count) * token.direction;
  store_some(y + l, a * c - b * s, count);
  store_some(y + second, b * c + a * s, count);
}

template <class Element>
METAFORMER_INLINE void rotate_heads(const RotaryToken<Element>& token) {
  for (std::int64_t head = 0; head < token.heads; ++head) {
    const Element* x = token.x + head * token.x_stride;
    Element* y = token.y + head * token.y_stride;
    std::int64_t l = 0;
    for (; l + lane_count <= token.pairs; l += lane_count) rotate_lanes(token, x, y, l, lane_count);
    if (l < token.pairs) rotate_lanes(token, x, y, l, token.pairs - l);
    std::copy(x + 2 * token.pairs, x + token.width, y + 2 * token.pairs);
  }
}

}  // namespace

METAFORMER_EVERY_VECTOR_WIDTH
void rotate_token(const RotaryToken<float>& token) { rotate_heads(token); }

METAFORMER_EVERY_VECTOR_WIDTH
void rotate_token(const RotaryToken<std::uint16_t>& token) { rotate_heads(token); }

}  // namespace metaformer
