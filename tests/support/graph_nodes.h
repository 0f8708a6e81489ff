#pragma once
// The nodes in the graph of a result.

#include <set>
#include <string>
#include <vector>

#include "ops/kernel.h"

namespace metaformer {

// The names of all nodes that lead to y; of nodes of our own their operation.
inline std::vector<std::string> names_of_nodes(const torch::Tensor& y) {
  std::vector<std::string> names;
  std::set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> left = {y.grad_fn().get()};
  while (!left.empty()) {
    auto* node = left.back();
    left.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    const auto* operation = operation_of(*node);
    names.push_back(operation != nullptr ? operation : node->name());
    for (const auto& edge : node->next_edges()) left.push_back(edge.function.get());
  }
  return names;
}

}  // namespace metaformer
