#pragma once
// bfloat16 as the vector code takes it (base/vector_math.h).

#include <torch/types.h>

namespace metaformer {

inline std::uint16_t* bits_of(const torch::Tensor& bf16) { return reinterpret_cast<std::uint16_t*>(bf16.data_ptr()); }

}  // namespace metaformer
