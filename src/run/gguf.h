#pragma once
// The GGUF file format of ggml and llama.cpp (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), version 3:
// metadata and named tensors.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ops/named_tensors.h"

namespace metaformer {

using GgufValue = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::int32_t>, std::vector<float>,
                               std::vector<std::string>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

// Returns the file's bytes. Tensors may be on any device, and are written in float32 in the given order.
std::string to_gguf(const GgufMetadata& metadata, const NamedTensors& tensors);

}  // namespace metaformer
