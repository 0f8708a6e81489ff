#pragma once
// A language model while it generates text, one token after each of several sequences.

#include <cstdint>
#include <span>

namespace metaformer {

class ModelState;

class Decoder {
 public:
  virtual ~Decoder() = default;

  // Goes on where the model's forward has left the state, which must outlive this or the next call.
  virtual void resume(ModelState& state) = 0;

  // Logits [b, v] of what follows tokens_b, valid until the next call; the state is advanced. Throws Error when it is
  // full.
  virtual std::span<const float> step(std::span<const std::int32_t> tokens_b) = 0;
};

}  // namespace metaformer
