#pragma once
// Mixed precision.

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include <vector>

#include "config/train_config.h"

namespace metaformer {

// Whether products in this precision have operands of 16 bits.
inline bool has_half_products(Precision precision) {
  return precision == Precision::bf16 || precision == Precision::fp16;
}

// The type of these operands.
inline torch::ScalarType half_type(Precision precision) {
  return precision == Precision::bf16 ? torch::kBFloat16 : torch::kHalf;
}

// The type of the result of a linear layer, whose weights are of the type of x or float32.
inline torch::ScalarType product_type(const torch::Tensor& x) {
  const auto device = x.device().type();
  const bool casts = at::autocast::is_autocast_enabled(device) && x.scalar_type() != torch::kDouble;
  return casts ? at::autocast::get_autocast_dtype(device) : x.scalar_type();
}

// Whether the end of a scope clears the cache of cast weights, which all threads share. `keep`: an outer scope, in any
// thread, clears it.
enum class AutocastCasts { drop, keep };

// While it lives, operators that gain from it run in bfloat16 or float16 on `device` in this thread. Does nothing for
// fp32 and tf32. Each weight is cast once until the cache is cleared.
class AutocastScope {
 public:
  AutocastScope(Precision precision, torch::Device device, AutocastCasts casts = AutocastCasts::drop)
      : type_(device.type()), casts_(casts), active_(has_half_products(precision)) {
    if (!active_) return;
    was_enabled_ = at::autocast::is_autocast_enabled(type_);
    at::autocast::set_autocast_dtype(type_, half_type(precision));
    at::autocast::set_autocast_enabled(type_, true);
    at::autocast::increment_nesting();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;
  ~AutocastScope() {
    if (!active_) return;
    if (at::autocast::decrement_nesting() == 0 && casts_ == AutocastCasts::drop) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(type_, was_enabled_);
  }

 private:
  torch::DeviceType type_;
  AutocastCasts casts_;
  bool active_;
  bool was_enabled_ = false;
};

// A copy of float32 weights in bfloat16 or float16, beside the flat buffer that holds them. Under autocast in this type
// linear layers read the copy, so that no pass casts a weight.
//
// The copy is read only while it is current: LibTorch counts the writes to every tensor, and the copy holds the counts
// of the weights that it was made of. Kernels without this count call count_write(). A weight whose copy is not current
// is cast as without a copy.
class HalfWeights {
 public:
  // A parameter, which begins at element `offset` of the buffer, and `count` elements with the gap after it.
  struct Part {
    torch::Tensor parameter;
    std::int64_t offset = 0, count = 0;
    std::int64_t end() const { return offset + count; }
  };

  // `values`: the buffer, float32, of which no other copy exists; `parts`: the parameters to copy, in the order of
  // their offsets. The copy is not current until refresh().
  HalfWeights(torch::Tensor values, std::vector<Part> parts, torch::ScalarType type);
  HalfWeights(const HalfWeights&) = delete;
  HalfWeights& operator=(const HalfWeights&) = delete;
  ~HalfWeights();

  bool is_current() const;

  // Casts the values unless the copy is current.
  void refresh();

  // The copy of the whole buffer, for kernels that write both. They keep a current copy current.
  const torch::Tensor& copy() const { return copy_; }

  // The copy of a weight, in its shape: of a parameter or a view of one. Undefined if autocast has another type or is
  // off, if the weight is in no buffer with a copy, or if the copy is not current. May be called by several threads
  // while none writes the weights.
  static torch::Tensor copy_of(const torch::Tensor& weight);

 private:
  bool is_current(std::size_t part) const;

  torch::Tensor values_, copy_;
  std::vector<Part> parts_;
  std::int64_t counted_ = -1;               // writes to the buffer when it was copied
  std::vector<std::int64_t> part_counted_;  // and to each parameter
};

// Counts a write to x that LibTorch does not see, such as that of a kernel or of its fused optimisers.
void count_write(const torch::Tensor& x);

}  // namespace metaformer
