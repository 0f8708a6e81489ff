#pragma once
// The rotation of rotary positions (Su et al. 2021, equation 34) for one token on the CPU, in vector code.

#include <cstdint>

namespace metaformer {

// The heads of one token: rows of `width` features, `x_stride` and `y_stride` elements apart. Of each row, features l
// and l + pairs (l < pairs) are the two coordinates of a point, which is turned by the angle whose cosine and sine are
// cosines[l] and sines[l]; the features from 2 pairs on are copied.
template <class Element>
struct RotaryToken {
  const Element* x = nullptr;
  Element* y = nullptr;
  std::int64_t x_stride = 0, y_stride = 0, heads = 0, width = 0, pairs = 0;
  const float *cosines = nullptr, *sines = nullptr;
  float direction = 1;  // -1: back
};

void rotate_token(const RotaryToken<float>& token);
void rotate_token(const RotaryToken<std::uint16_t>& token);  // bfloat16, as bits

}  // namespace metaformer
