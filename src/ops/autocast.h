#pragma once
// bf16 or fp16 products with fp32 weights, for one scope.

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "config/train_config.h"

namespace metaformer {

// While it lives, operators that gain from it run in bfloat16 or float16 on `device`. Does nothing for fp32 and tf32.
// Weights are cast once per scope and the casts dropped at its end.
class AutocastScope {
 public:
  AutocastScope(Precision precision, torch::Device device)
      : type_(device.type()), active_(precision == Precision::bf16 || precision == Precision::fp16) {
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
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(type_, was_enabled_);
  }

 private:
  torch::DeviceType type_;
  bool active_;
  bool was_enabled_ = false;
};

}  // namespace metaformer
