#pragma once
// The gates of a recurrent layer for one token of each of several sequences, on the CPU in float32
// (model/recurrent_model.h has the formulas). Nothing is allocated.

#include <cstdint>

namespace metaformer {

// of_x_bg = W x + b and of_h_bg = R h + b', the gates side by side in PyTorch's order: i, f, g, o. Replaces the states.
void step_lstm(const float* of_x_bg, const float* of_h_bg, float* h_bd, float* c_bd, std::int64_t batch,
               std::int64_t width);

// The same with the gates r, z, n.
void step_gru(const float* of_x_bg, const float* of_h_bg, float* h_bd, std::int64_t batch, std::int64_t width);

}  // namespace metaformer
