#pragma once
// The recurrence of matrix states (ops/state_mixing.h has its formula) on the CPU in float32, one head of one sequence
// at a time, token by token: a state stays in the nearest cache, and no matrix of pairs of tokens is made. Backward
// goes through chunks of tokens from the last to the first, and computes the states of each again from the one before
// it.

#include <cstdint>
#include <vector>

#include "cpu/vector_code.h"

namespace metaformer {

// Neighbouring numbers of every token; `stride` numbers between tokens. No data: none of the tokens has any.
template <class Number>
struct TokenRows {
  Number* data = nullptr;
  std::int64_t stride = 0;

  Number* of(std::int64_t token) const { return data + token * stride; }
  explicit operator bool() const { return data != nullptr; }
};

enum class StateToken : std::uint8_t {
  goes_on,
  begins,  // with an empty state
  padding  // reads 0 and writes nothing
};

struct HeadStates {
  std::int64_t tokens = 0, key_width = 0, value_width = 0;
  std::int64_t decay_width = 0;  // 1, of all features alike, or key_width
  TokenRows<const float> q, k, value, log_decay, a, b;
  const StateToken* kinds = nullptr;  // of the tokens; none: all go on

  // A state is [key_width, columns()], the values' features and zeros behind them.
  std::int64_t columns() const { return (value_width + 15) / 16 * 16; }
  std::int64_t state_size() const { return key_width * columns(); }
};

constexpr std::int64_t tokens_between_states = 16;

// Writes o. `state`, that before the first token, becomes that after the last. `kept`, unless it is null, gets the
// state before token 0, before token tokens_between_states, and so on, in this order. `workspace` is memory that a
// thread uses again in its next call.
void mix_head_states(const HeadStates& head, float* state, TokenRows<float> o, float* kept,
                     std::vector<float>& workspace, VectorCode code = widest_vector_code());

struct HeadStateGradients {
  TokenRows<const float> o;
  TokenRows<float> q, k, value, log_decay, a, b;  // those of a, b and log_decay may be none
};

// Adds to the gradients. `dstate`, of the state after the last token, becomes that before the first.
void mix_head_states_backward(const HeadStates& head, const float* kept, float* dstate,
                              const HeadStateGradients& gradients, std::vector<float>& workspace,
                              VectorCode code = widest_vector_code());

}  // namespace metaformer
