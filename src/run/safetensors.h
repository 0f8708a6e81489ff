#pragma once
// The safetensors file format (https://github.com/huggingface/safetensors): named tensors behind a JSON header.

#include <map>
#include <string>

#include "ops/named_tensors.h"

namespace metaformer {

// The file's bytes. Tensors are written in the order given, contiguous, from any device; `metadata` beside the format
// that other readers expect.
std::string to_safetensors(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata = {});

// Tensors on the CPU. `source` names the bytes in errors (exit code 1): a header that is not valid, tensors that
// overlap or lie outside, two of one name, an unknown type. Never allocates more than the input's size again.
NamedTensors from_safetensors(const std::string& bytes, const std::string& source);

}  // namespace metaformer
