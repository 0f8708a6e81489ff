#pragma once
// The safetensors file format (https://github.com/huggingface/safetensors): named tensors after a JSON header.

#include <map>
#include <string>

#include "ops/named_tensors.h"

namespace metaformer {

// Returns the file's bytes. Tensors may be on any device, and are written contiguously in the given order. `metadata`
// is added to the entry "format" that other readers expect.
std::string to_safetensors(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata = {});

// Tensors on the CPU. Errors (exit code 1), which name `source`: an invalid header, tensors that overlap or lie outside
// the file, a repeated name, an unknown type. Never allocates more than the size of the input.
NamedTensors from_safetensors(const std::string& bytes, const std::string& source);

}  // namespace metaformer
