#pragma once
// The recurrence that linear attention, RetNet, GLA, Mamba-2, DeltaNet and RWKV-7 share. The state of each head is a
// matrix S in R^(v x k). Every token lets it decay, changes it by a product of two vectors, and adds another product:
//
//   S_t = S_(t-1) (diag(w_t) + a_t b_t^T) + value_t k_t^T,   o_t = S_t q_t
//
// Its implementations give the same numbers except for rounding: token by token, by kernels on the CPU
// (cpu/state_mixing.h) or by operators, and in chunks of tokens, whose sums are products of matrices (the delta rule's
// as in Yang et al. 2024, "Parallelizing linear transformers with the delta rule", with decay as in Yang et al. 2025).
// States are float32, or float64 if the inputs are.

#include <torch/types.h>

#include <limits>

namespace metaformer {

struct StateSteps {
  torch::Tensor q_bnck, k_bnck, value_bncv;
  torch::Tensor log_decay_bncw;  // log w_t, at most 0; dimension w is 1 (a number per head) or k; undefined: w_t = 1
  // A lower bound of log w_t: with dimension w = k chunks are faster if it is near 0.
  double least_log_decay = -std::numeric_limits<double>::infinity();
  torch::Tensor a_bnck, b_bnck;  // both defined or neither: no a_t b_t^T
  torch::Tensor segment_bc;      // undefined: all one segment. A segment starts with an empty state; -1 is padding,
                                 // which reads 0 and writes nothing
};

struct StateMemory {
  torch::Tensor state_bnvk;  // undefined: empty
  torch::Tensor segment_b;   // the segment of the state; undefined: that of the next token
};

// Returns o_bncv in the type of the values. `memory` becomes the state after the last token. Uses kernels on the CPU,
// except in float64; elsewhere a single token is mixed by itself, and several in chunks.
torch::Tensor mix_states(const StateSteps& steps, StateMemory& memory);

// The same by one implementation.
torch::Tensor mix_states_by_kernels(const StateSteps& steps, StateMemory& memory);
torch::Tensor mix_states_in_chunks(const StateSteps& steps, StateMemory& memory);
torch::Tensor mix_states_by_token(const StateSteps& steps, StateMemory& memory);

// The size of a chunk in a sequence of `tokens` tokens: a short sequence is one chunk.
std::int64_t tokens_of_chunk(std::int64_t tokens);

}  // namespace metaformer
