#pragma once
// Tensors with names: what checkpoints and states are made of, and how saved ones get into live ones.

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace metaformer {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// "[2, 16]", for messages; a negative size is "any".
std::string shape_text(at::IntArrayRef shape);

// Copies each saved tensor into the target of the same name. Errors (exit code 2) when the two sets of names, or a
// shape, differ: the file belongs to another architecture. `source` names the file.
void copy_by_name(const NamedTensors& saved, const NamedTensors& targets, const std::string& source);

// All parameters and buffers of a model by name, aliasing them: what a checkpoint keeps of it.
NamedTensors named_state(const torch::nn::Module& model);

}  // namespace metaformer
