#pragma once
// A mixer's memory while a sequence is generated.

#include <torch/types.h>

#include <string>
#include <vector>

#include "ops/named_tensors.h"

namespace metaformer {

// What a mixer needs of earlier tokens, in numbered buffers [..., tokens, features] that are allocated once.
class MixerState {
 public:
  // Loaded tensors go to `device`; others stay where they come from.
  explicit MixerState(std::int64_t capacity, torch::Device device = torch::kCPU)
      : capacity_(capacity), device_(device) {}

  // Appends `fresh`, [..., tokens, features], to buffer `slot` and returns all of that buffer so far (a view). Throws
  // Error (exit code 1) when more than `capacity` tokens would be held, (exit code 2) when they are of other sizes.
  torch::Tensor extend(std::size_t slot, const torch::Tensor& fresh);

  // For decoders, which write to the buffers by themselves. The whole of buffer `slot`: of sizes as given to `extend`,
  // but with `capacity` tokens.
  const torch::Tensor& buffer(std::size_t slot) const { return buffers_.at(slot).storage; }
  std::int64_t length(std::size_t slot) const { return buffers_.at(slot).length; }
  // The place of one more token, which holds nothing yet. Throws Error when the state is full.
  std::int64_t append(std::size_t slot);

  // Of what is not extended: whether there is something, and all of it.
  bool holds(std::size_t slot) const { return slot < buffers_.size() && buffers_[slot].length > 0; }
  torch::Tensor held(std::size_t slot) const;

  // Sequence i becomes what sequence rows_b[i] was; there may be another number of them.
  void select(const torch::Tensor& rows_b);

  // Forgets the tokens, keeps the buffers.
  void reset();

  // Forgets all but the newest tokens, which move to the front of the buffers.
  void keep_newest(std::int64_t tokens);

  // The tokens of every buffer by name, aliasing them.
  NamedTensors tensors() const;

  // Takes up what tensors() gave, in new buffers. Throws Error (exit code 2) for other names, or more tokens than
  // `capacity`.
  void load(const NamedTensors& saved, const std::string& source);

  // Bytes of the buffers.
  std::int64_t bytes() const;

 private:
  struct Buffer {
    torch::Tensor storage;
    std::int64_t length = 0;
  };
  Buffer& slot_for(std::size_t slot, const torch::Tensor& like);
  void require_room(std::int64_t tokens) const;

  std::int64_t capacity_;
  torch::Device device_;
  std::vector<Buffer> buffers_;
};

}  // namespace metaformer
