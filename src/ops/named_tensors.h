#pragma once
// Named tensors, of which checkpoints and states consist, and the copying of saved ones into a model's.

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace metaformer {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// "[2, 16]", for messages; a negative size is "any".
std::string shape_text(at::IntArrayRef shape);

// Copies each saved tensor into the target of the same name. Throws Error (exit code 2) if the two sets of names, or a
// shape, differ: the file belongs to another architecture. `source` names the file.
void copy_by_name(const NamedTensors& saved, const NamedTensors& targets, const std::string& source);

// All parameters and buffers of a model by name, for a checkpoint. The tensors are the model's own, not copies.
NamedTensors named_state(const torch::nn::Module& model);

}  // namespace metaformer
