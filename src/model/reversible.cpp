#include "model/reversible.h"

#include <array>
#include <memory>

#include "ops/recompute.h"

namespace metaformer {

namespace {

using torch::Tensor;
using Tensors = torch::autograd::variable_list;

// Both streams between two blocks.
struct Streams {
  Tensor one_bcd, two_bcd;
};

Streams run(Block block, const Streams& x, const BlockImpl::Surroundings& surroundings, Pass& pass) {
  Streams y;
  y.one_bcd = block->add_mixer(x.one_bcd, x.two_bcd, surroundings, pass);
  y.two_bcd = block->add_feed_forward(x.two_bcd, y.one_bcd, pass);
  return y;
}

// What blocks read besides their own weights and the streams, as far as it has gradients.
constexpr std::array<Tensor Visibility::*, 3> shared = {&Visibility::score_bias_nce, &Visibility::content_bias_nk,
                                                        &Visibility::distance_bias_nk};

bool has_gradient(const Tensor& x) { return x.defined() && x.requires_grad(); }

// A block in one pass, and what it takes to compute it again.
struct Run : torch::CustomClassHolder {
  Run(Block of_block, std::shared_ptr<const Visibility> of_pass, const Tensor& memory, const Pass& given,
      torch::Device device)
      : block(std::move(of_block)), visibility(std::move(of_pass)), memory_bmd(memory), pass(given), settings(device) {}

  // The inputs of the Function behind the streams: what is shared, then weights.
  Tensors inputs() const {
    Tensors all;
    for (const auto member : shared)
      if (has_gradient((*visibility).*member)) all.push_back((*visibility).*member);
    for (const auto& weight : block->parameters()) all.push_back(weight);
    return all;
  }

  Block block;
  std::shared_ptr<const Visibility> visibility;
  Tensor memory_bmd;
  Pass pass;                                                  // as it was before the block
  bool streams_have_gradients = false;                        // those that the block reads
  std::uint64_t place_of_feed_forward = 0, place_behind = 0;  // of the random numbers
  Choices choices;
  OperatorSettings settings;
  std::shared_ptr<Streams> behind;  // the block that backward has come to; of all blocks of the pass
};

// What all blocks of a pass share.
struct SharedParts {
  std::shared_ptr<const Visibility> visibility;
  std::shared_ptr<Streams> behind = std::make_shared<Streams>();
};

// What a branch gives, and the gradients of its inputs for those of what it gives.
struct Repeated {
  Tensor branch_bcd;
  Tensors gradients;  // of x, then of `inputs`
};

// `needs_dx`: whether x has a gradient.
template <class Branch>
Repeated repeat(const Run& run, const Tensor& x_bcd, bool needs_dx, const Tensors& inputs, const Tensor& dbranch_bcd,
                Branch branch) {
  Tensors all = {x_bcd.detach().requires_grad_(needs_dx)};
  all.insert(all.end(), inputs.begin(), inputs.end());
  Tensor y_bcd;
  {
    const RepeatScope scope(run.settings, RepeatScope::Gradients::recorded);
    y_bcd = branch(all.front());
  }
  auto gradients = gradients_of(y_bcd, all, dbranch_bcd);
  return {y_bcd.detach(), std::move(gradients)};
}

// An undefined gradient is zero.
void add_to(Tensors& sums, const Tensors& gradients, std::size_t first) {
  for (std::size_t i = first; i < gradients.size(); ++i) {
    auto& sum = sums[i - first];
    if (gradients[i].defined()) sum = sum.defined() ? sum + gradients[i] : gradients[i];
  }
}

Tensor plus(const Tensor& x, const Tensor& y) { return y.defined() ? x + y : x; }

class ReversibleBlock : public torch::autograd::Function<ReversibleBlock> {
 public:
  static Tensors forward(torch::autograd::AutogradContext* context, const c10::intrusive_ptr<Run>& run_of_block,
                         const Tensor& one_bcd, const Tensor& two_bcd, at::TensorList) {
    auto& own = *run_of_block;
    own.streams_have_gradients = one_bcd.requires_grad() || two_bcd.requires_grad();
    context->saved_data["run"] = c10::IValue::make_capsule(run_of_block);
    const RepeatScope scope(own.settings, RepeatScope::Gradients::ignored);
    auto pass = own.pass;
    pass.choices = &own.choices;
    const BlockImpl::Surroundings surroundings{.visibility = *own.visibility, .memory_bmd = own.memory_bmd};
    auto y_one_bcd = own.block->add_mixer(one_bcd, two_bcd, surroundings, pass);
    own.place_of_feed_forward = pass.random.place();
    auto y_two_bcd = own.block->add_feed_forward(two_bcd, y_one_bcd, pass);
    own.place_behind = pass.random.place();
    own.behind->one_bcd = y_one_bcd;
    own.behind->two_bcd = y_two_bcd;
    // Copies of the handles: autograd marks those that it returns.
    return {y_one_bcd.view_as(y_one_bcd), y_two_bcd.view_as(y_two_bcd)};
  }

  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    require_first_order("a reversible block");
    auto& own = *c10::static_intrusive_pointer_cast<Run>(context->saved_data["run"].toCapsule());
    TORCH_CHECK(own.behind->one_bcd.defined(), "reversible blocks run backward once for each forward pass");
    own.choices.repeats = true;
    auto visibility = *own.visibility;
    Tensors inputs;  // as forward was given them; what is shared is cut off from its own graph
    for (const auto member : shared) {
      if (!has_gradient(visibility.*member)) continue;
      visibility.*member = (visibility.*member).detach().requires_grad_();
      inputs.push_back(visibility.*member);
    }
    for (const auto& weight : own.block->parameters()) inputs.push_back(weight);
    Tensors sums(inputs.size());

    const auto &y_one_bcd = own.behind->one_bcd, &dy_two_bcd = gradients[1];
    const auto zeros_bcd = torch::zeros_like(y_one_bcd);
    const auto second = repeat(own, y_one_bcd, /*needs_dx=*/true, inputs, dy_two_bcd, [&](const Tensor& x_bcd) {
      auto pass = own.pass;
      pass.random.go_back(own.place_of_feed_forward);
      return own.block->add_feed_forward(zeros_bcd, x_bcd, pass);
    });
    const auto x_two_bcd = own.behind->two_bcd - second.branch_bcd;
    const auto dy_one_bcd = plus(gradients[0], second.gradients[0]);
    add_to(sums, second.gradients, 1);

    const auto first = repeat(own, x_two_bcd, own.streams_have_gradients, inputs, dy_one_bcd, [&](const Tensor& x_bcd) {
      auto pass = own.pass;
      pass.choices = &own.choices;
      const BlockImpl::Surroundings surroundings{.visibility = visibility, .memory_bmd = own.memory_bmd};
      return own.block->add_mixer(zeros_bcd, x_bcd, surroundings, pass);
    });
    add_to(sums, first.gradients, 1);
    own.behind->one_bcd = y_one_bcd - first.branch_bcd;
    own.behind->two_bcd = x_two_bcd;

    Tensors all = {Tensor(), dy_one_bcd, plus(dy_two_bcd, first.gradients[0])};
    all.insert(all.end(), sums.begin(), sums.end());
    return all;
  }
};

Streams run_to_invert(const Block& block, const Streams& x, const BlockImpl::Surroundings& surroundings,
                      SharedParts& parts, Pass& pass) {
  if (parts.visibility == nullptr) parts.visibility = std::make_shared<const Visibility>(surroundings.visibility);
  const auto own = c10::make_intrusive<Run>(block, parts.visibility, surroundings.memory_bmd, pass, x.one_bcd.device());
  own->behind = parts.behind;
  const auto inputs = own->inputs();
  const auto y = ReversibleBlock::apply(own, x.one_bcd, x.two_bcd, at::TensorList(inputs));
  // The pass draws on behind what the block has drawn.
  pass.random.go_back(own->place_behind);
  return {y[0], y[1]};
}

}  // namespace

torch::Tensor through_reversible(std::vector<Block>& blocks, const Tensor& x_bcd, const SurroundingsOf& surroundings_of,
                                 BlockGradients gradients, Pass& pass) {
  const bool inverts = gradients == BlockGradients::by_inversion && torch::GradMode::is_enabled();
  SharedParts parts;
  Streams x{x_bcd, x_bcd};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto surroundings = surroundings_of(i, x.two_bcd);
    x = inverts ? run_to_invert(blocks[i], x, surroundings, parts, pass) : run(blocks[i], x, surroundings, pass);
  }
  return (x.one_bcd + x.two_bcd) / 2;
}

}  // namespace metaformer
