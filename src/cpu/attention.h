#pragma once
// Softmax attention on the CPU, forward and backward, one head of one sequence at a time. Of tiles of queries only the
// keys that a causal mask leaves are multiplied, and nothing of size tokens^2 is kept (Dao et al. 2022); sums are in
// float32 and in a fixed order, so that results do not depend on the number of threads.

#include <cstdint>

#include "cpu/head_attention.h"

namespace metaformer {

// Keys for which a tile of scores, 2 MiB, stays in the caches.
constexpr std::int64_t longest_host_attention = 16384;

// For which instructions the code is made. Results differ between them by rounding.
enum class VectorCode { plain, avx2, avx512, avx512_bf16 };
VectorCode widest_vector_code();  // that this CPU has

// t and log_sum. NaN spreads to what sees it.
void attend_forward(const HeadAttention& head, HeadWorkspace& room, VectorCode code = widest_vector_code());

// dq, dk and, where values are not the keys, dv.
void attend_backward(const HeadAttention& head, HeadWorkspace& room, VectorCode code = widest_vector_code());

}  // namespace metaformer
