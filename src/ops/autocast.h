#pragma once
// Mixed precision.

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include "config/train_config.h"

namespace metaformer {

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
      : type_(device.type()), casts_(casts), active_(precision == Precision::bf16 || precision == Precision::fp16) {
    if (!active_) return;
    was_enabled_ = at::autocast::is_autocast_enabled(type_);
    at::autocast::set_autocast_dtype(type_, precision == Precision::bf16 ? torch::kBFloat16 : torch::kHalf);
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

}  // namespace metaformer
