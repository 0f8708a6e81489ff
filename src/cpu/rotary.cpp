#include "cpu/rotary.h"

#include <algorithm>

#include "cpu/vector_math.h"

namespace metaformer {

namespace {

template <class Element>
METAFORMER_INLINE void rotate_lanes(const Element* first, const Element* second, const float* cosines,
                                    const float* sines, float direction, Element* to_first, Element* to_second) {
  const Lanes a = load_lanes(first), b = load_lanes(second);
  const Lanes c = load_lanes(cosines), s = load_lanes(sines) * direction;
  store_lanes(to_first, a * c - b * s);
  store_lanes(to_second, b * c + a * s);
}

// The last pairs of a row, fewer than there are lanes.
template <class Element>
METAFORMER_INLINE void rotate_rest(const Element* x, Element* y, const RotaryToken<Element>& token, std::int64_t done) {
  const auto count = token.pairs - done;
  Element from[2][lane_count] = {}, to[2][lane_count];
  float angles[2][lane_count] = {};
  std::copy_n(x + done, count, from[0]);
  std::copy_n(x + token.pairs + done, count, from[1]);
  std::copy_n(token.cosines + done, count, angles[0]);
  std::copy_n(token.sines + done, count, angles[1]);
  rotate_lanes(from[0], from[1], angles[0], angles[1], token.direction, to[0], to[1]);
  std::copy_n(to[0], count, y + done);
  std::copy_n(to[1], count, y + token.pairs + done);
}

template <class Element>
METAFORMER_INLINE void rotate_heads(const RotaryToken<Element>& token) {
  for (std::int64_t head = 0; head < token.heads; ++head) {
    const Element* x = token.x + head * token.x_stride;
    Element* y = token.y + head * token.y_stride;
    std::int64_t l = 0;
    for (; l + lane_count <= token.pairs; l += lane_count)
      rotate_lanes(x + l, x + token.pairs + l, token.cosines + l, token.sines + l, token.direction, y + l,
                   y + token.pairs + l);
    if (l < token.pairs) rotate_rest(x, y, token, l);
    std::copy(x + 2 * token.pairs, x + token.width, y + 2 * token.pairs);
  }
}

}  // namespace

METAFORMER_EVERY_VECTOR_WIDTH
void rotate_token(const RotaryToken<float>& token) { rotate_heads(token); }

METAFORMER_EVERY_VECTOR_WIDTH
void rotate_token(const RotaryToken<std::uint16_t>& token) { rotate_heads(token); }

}  // namespace metaformer
