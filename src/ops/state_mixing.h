#pragma once
// The recurrence that linear attention, RetNet, GLA, Mamba-2, DeltaNet and RWKV-7 share: each head has a matrix as its
// state, S in R^(v x k), which every token lets decay, changes by a product of two vectors, and adds to:
//
//   S_t = S_(t-1) (diag(w_t) + a_t b_t^T) + value_t k_t^T,   o_t = S_t q_t
//
// Its forms give the same numbers but for rounding: token by token, on the CPU by kernels (cpu/state_mixing.h) and else
// by operators, and in chunks of tokens, whose sums are products of matrices (the delta rule's as in Yang et al. 2024,
// "Parallelizing linear transformers with the delta rule", with decay as in Yang et al. 2025). States are float32, or
// float64 where the inputs are.

#include <torch/types.h>

#include <limits>

namespace metaformer {

struct StateSteps {
  torch::Tensor q_bnck, k_bnck, value_bncv;
  torch::Tensor log_decay_bncw;  // log w_t, at most 0: w = 1, a number of each head, or w = k; undefined: w_t = 1
  // A lower bound of log w_t: with w = k chunks are faster if it is near 0.
  double least_log_decay = -std::numeric_limits<double>::infinity();
  torch::Tensor a_bnck, b_bnck;  // both or neither: no product
  torch::Tensor segment_bc;      // undefined: all one segment. A segment starts with an empty state; -1 is padding,
                                 // which reads 0 and writes nothing
};

struct StateMemory {
  torch::Tensor state_bnvk;  // undefined: empty
  torch::Tensor segment_b;   // whose state it is; undefined: that of the tokens that follow, whatever it is
};

// o_bncv, in the type of the values. `memory` becomes the state after the last token. By kernels on the CPU, except in
// float64; elsewhere a token by itself, and several in chunks.
torch::Tensor mix_states(const StateSteps& steps, StateMemory& memory);

// By one form.
torch::Tensor mix_states_by_kernels(const StateSteps& steps, StateMemory& memory);
torch::Tensor mix_states_in_chunks(const StateSteps& steps, StateMemory& memory);
torch::Tensor mix_states_by_token(const StateSteps& steps, StateMemory& memory);

// Tokens of a chunk of a sequence of so many: all of a short one.
std::int64_t tokens_of_chunk(std::int64_t tokens);

}  // namespace metaformer
