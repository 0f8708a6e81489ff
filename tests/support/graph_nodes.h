#pragma once
// The nodes in the graph of a result.

#include <torch/autograd.h>

#include <set>
#include <string>
#include <vector>

namespace metaformer {

// The names of all nodes that lead to y.
inline std::vector<std::string> names_of_nodes(const torch::Tensor& y) {
  std::vector<std::string> names;
  std::set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> left = {y.grad_fn().get()};
  while (!left.empty()) {
    auto* node = left.back();
    left.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    names.push_back(node->name());
    for (const auto& edge : node->next_edges()) left.push_back(edge.function.get());
  }
  return names;
}

}  // namespace metaformer
