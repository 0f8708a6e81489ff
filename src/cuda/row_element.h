#pragma once
// The types of the rows that kernels read and write, and of copies of the weights.

namespace metaformer::cuda {

enum class RowElement { fp32, bf16, fp16 };

}  // namespace metaformer::cuda
