#pragma once
// Loading saved tensors into live ones.

#include "train/safetensors.h"

namespace metaformer {

// Copies each saved tensor into the target of the same name. Errors (exit code 2) when the two sets of names, or a
// shape, differ: the file belongs to another architecture. `source` names the file.
void copy_by_name(const NamedTensors& saved, const NamedTensors& targets, const std::string& source);

// All parameters of a model by name, aliasing them.
NamedTensors named_parameters(const torch::nn::Module& model);

}  // namespace metaformer
