#include "ops/kernel.h"

namespace metaformer {

namespace {

using torch::autograd::AutogradContext;

struct Work : torch::CustomClassHolder {
  Work(const char* of_operation, std::size_t of_inputs, BackwardFunction given)
      : operation(of_operation), inputs(of_inputs), backward(std::move(given)) {}
  const char* operation;
  std::size_t inputs;
  BackwardFunction backward;
};

c10::intrusive_ptr<Work> work_of(const AutogradContext& context) {
  return c10::static_intrusive_pointer_cast<Work>(context.saved_data.at("work").toCapsule());
}

class OwnNode : public torch::autograd::Function<OwnNode> {
 public:
  static Tensors forward(AutogradContext* context, at::TensorList, const c10::intrusive_ptr<Work>& work,
                         const c10::function_ref<Tensors(Tensors&)>& compute) {
    Tensors saved;
    auto results = compute(saved);
    context->save_for_backward(std::move(saved));
    context->saved_data["work"] = c10::IValue::make_capsule(work);
    return results;
  }

  static Tensors backward(AutogradContext* context, Tensors dy) {
    const auto work = work_of(*context);
    TORCH_CHECK(!torch::GradMode::is_enabled(), work->operation,
                " has no second derivatives: call backward without create_graph");
    auto gradients = work->backward(
        {.saved = context->get_saved_variables(), .dy = std::move(dy), .inputs = work->inputs, .context = *context});
    gradients.resize(gradients.size() + 2);  // of what is no tensor
    return gradients;
  }
};

}  // namespace

Tensors own_nodes(const char* operation, const Tensors& inputs, c10::function_ref<Tensors(Tensors& saved)> forward,
                  BackwardFunction backward) {
  const auto work = c10::make_intrusive<Work>(operation, inputs.size(), std::move(backward));
  return OwnNode::apply(at::TensorList(inputs), work, forward);
}

torch::Tensor own_node(const char* operation, const Tensors& inputs,
                       c10::function_ref<torch::Tensor(Tensors& saved)> forward, BackwardFunction backward) {
  const auto as_list = [&](Tensors& saved) -> Tensors { return {forward(saved)}; };
  return own_nodes(operation, inputs, as_list, std::move(backward)).front();
}

const char* operation_of(const torch::autograd::Node& node) {
  const auto* own = dynamic_cast<const torch::autograd::CppNode<OwnNode>*>(&node);
  return own == nullptr ? nullptr : work_of(own->ctx_)->operation;
}

}  // namespace metaformer
