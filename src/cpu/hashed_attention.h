#pragma once
// LSH attention on the CPU (attention/lsh.h has the rule), forward and backward, one head of one sequence at
// a time, in float32: one softmax over all that a token sees in all rounds, computed chunk by chunk, so that nothing is
// kept for pairs of tokens. Sums are in a fixed order.

#include <cstdint>

#include "cpu/attention.h"

namespace metaformer {

// A chunk is a multiple of this many tokens.
constexpr std::int64_t hashed_chunk_step = 16;

struct HashedHead {
  bool causal = false, same_bucket = false;
  std::int64_t tokens = 0, rounds = 0, chunk = 0;
  const std::int64_t* bucket = nullptr;  // of every token, round by round: 0 ... buckets - 1
  std::int64_t buckets = 0;
  const std::int64_t* segment = nullptr;  // per token; tokens see those of their own segment, those of -1 see nothing
  HeadRows q, v, t;                       // of float; t: forward writes it, backward reads it
  float* log_sum = nullptr;  // per token: of the exponentials of its scores; infinity where it sees nothing
  // Backward only:
  HeadRows dt, dq, dv;
};

// t and log_sum. A token that sees nothing gets its own value, padding (segment -1) zeros.
void attend_hashed(const HashedHead& head, HeadWorkspace& workspace, VectorCode code = widest_vector_code());

// dq and dv. Keys are queries divided by their norm, so that dq has both.
void attend_hashed_backward(const HashedHead& head, HeadWorkspace& workspace, VectorCode code = widest_vector_code());

}  // namespace metaformer
