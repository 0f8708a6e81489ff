#include "ops/kernel.h"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace metaformer {

namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;

bool is_among(const Tensors& tensors, const torch::Tensor& x) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.is_same(x); });
}

class OwnNode : public Node {
 public:
  OwnNode(const char* operation, const Tensors& inputs, BackwardFunction backward)
      : Node(torch::autograd::collect_next_edges(inputs)), operation_(operation), backward_(std::move(backward)) {}

  std::string name() const override { return operation_; }

  // Keeps the tensors that forward saved; to be called after the results have this node as their history. A result
  // holds its node, so the node must not hold the result as well.
  void save(const Tensors& saved, const Tensors& results) {
    for (const auto& variable : saved) saved_.emplace_back(variable, is_among(results, variable));
  }

  Tensors apply(Tensors&& dy) override {
    TORCH_CHECK(!torch::GradMode::is_enabled(), operation_,
                " has no second derivatives: call backward without create_graph");
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!is_released_, torch::autograd::ERR_BACKWARD_TWICE);  // also if nothing is saved
    Tensors saved;
    for (const auto& variable : saved_) saved.push_back(variable.unpack(getptr()));
    for (std::size_t i = 0; i < dy.size(); ++i)
      if (!dy[i].defined()) dy[i] = input_metadata(i).zeros_like();
    return backward_({.saved = std::move(saved), .dy = std::move(dy), .node = *this});
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (auto& variable : saved_) variable.reset_data();
    is_released_ = true;
  }

 private:
  const char* operation_;
  BackwardFunction backward_;
  std::vector<SavedVariable> saved_;
  bool is_released_ = false;
};

}  // namespace

Tensors own_nodes(const char* operation, const Tensors& inputs, c10::function_ref<Tensors(Tensors& saved)> forward,
                  BackwardFunction backward) {
  std::shared_ptr<OwnNode> node;
  if (torch::autograd::compute_requires_grad(inputs))
    node = {new OwnNode(operation, inputs, std::move(backward)), torch::autograd::deleteNode};
  const torch::NoGradGuard no_grad;
  Tensors saved;
  auto results = forward(saved);
  if (!node) return results;
  for (auto& result : results)  // a result that is an input is returned as a view: the input keeps its own history
    if (is_among(inputs, result)) result = result.view_as(result);
  torch::autograd::set_history(results, node);
  node->save(saved, results);
  return results;
}

torch::Tensor own_node(const char* operation, const Tensors& inputs,
                       c10::function_ref<torch::Tensor(Tensors& saved)> forward, BackwardFunction backward) {
  const auto as_list = [&](Tensors& saved) -> Tensors { return {forward(saved)}; };
  return own_nodes(operation, inputs, as_list, std::move(backward)).front();
}

}  // namespace metaformer
