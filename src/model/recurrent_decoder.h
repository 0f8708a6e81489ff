#pragma once
// The decoder of a recurrent model on the CPU, in float32, through buffers that are allocated once. A call of
// LibTorch's layer for one token takes several times as long as its arithmetic.

#include <memory>

#include "config/recurrent_config.h"
#include "model/decoder.h"
#include "model/recurrent_layers.h"

namespace metaformer {

// All tensors are float32, contiguous and on the CPU; they are kept alive.
std::unique_ptr<Decoder> make_recurrent_decoder(const RecurrentConfig& config, const torch::Tensor& token_table_vd,
                                                const RecurrentLayersImpl& layers, const torch::Tensor& head_vd,
                                                std::int64_t batch);

}  // namespace metaformer
