#include "model/reversible.h"

#include <array>
#include <memory>

#include "ops/recompute.h"

namespace metaformer {

namespace {

using torch::Tensor;

// Both streams between two blocks.
struct Streams {
  Tensor one_bcd, two_bcd;
};

// The streams after the block, and the place of the random numbers between its branches.
std::pair<Streams, std::uint64_t> through(Block block, const Streams& x, const BlockImpl::Surroundings& surroundings,
                                          Pass& pass) {
  const auto y_one_bcd = block->add_mixer(x.one_bcd, x.two_bcd, surroundings, pass);
  const auto place = pass.random.place();
  return {{y_one_bcd, block->add_feed_forward(x.two_bcd, y_one_bcd, pass)}, place};
}

// The tensors that blocks read besides their own weights and the streams, and that can have gradients.
constexpr std::array<Tensor Visibility::*, 3> shared = {&Visibility::score_bias_nce, &Visibility::content_bias_nk,
                                                        &Visibility::distance_bias_nk};

bool has_gradient(const Tensor& x) { return x.defined() && x.requires_grad(); }

// A block in one pass, and everything that is needed to recompute it.
struct Run {
  Block block;
  std::shared_ptr<const Visibility> visibility;
  Tensor memory_bmd;
  Pass pass;  // as it was before the block
  OperatorSettings settings;
  std::shared_ptr<Streams> behind;                            // after the block that backward has reached; shared
  bool streams_have_gradients = false;                        // the block's input streams
  std::uint64_t place_of_feed_forward = 0, place_behind = 0;  // of the random numbers
  Choices choices = {};
};

// The inputs of the node after the streams: shared tensors, then weights.
Tensors inputs_of(const Block& block, const Visibility& visibility) {
  Tensors all;
  for (const auto member : shared)
    if (has_gradient(visibility.*member)) all.push_back(visibility.*member);
  for (const auto& weight : block->parameters()) all.push_back(weight);
  return all;
}

// The inputs of a branch: x, which may have a gradient, then the others.
Tensors with_leaf(const Tensor& x_bcd, bool needs_dx, const Tensors& others) {
  Tensors all = {x_bcd.detach().requires_grad_(needs_dx)};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

// An undefined gradient is zero.
void add_to(Tensors& sums, const Tensors& gradients, std::size_t first) {
  for (std::size_t i = first; i < gradients.size(); ++i) {
    auto& sum = sums[i - first];
    if (gradients[i].defined()) sum = sum.defined() ? sum + gradients[i] : gradients[i];
  }
}

Tensor plus(const Tensor& x, const Tensor& y) { return y.defined() ? x + y : x; }

Tensors forward(Run& run, const Streams& x) {
  const RepeatScope scope(run.settings, RepeatScope::Gradients::ignored);
  auto pass = run.pass;
  pass.choices = &run.choices;
  const BlockImpl::Surroundings surroundings{.visibility = *run.visibility, .memory_bmd = run.memory_bmd};
  const auto [y, place] = through(run.block, x, surroundings, pass);
  run.place_of_feed_forward = place;
  run.place_behind = pass.random.place();
  *run.behind = y;
  // New handles, because autograd marks the tensors that it returns.
  return {y.one_bcd.view_as(y.one_bcd), y.two_bcd.view_as(y.two_bcd)};
}

Tensors backward(Run& run, const Tensor& dy_behind_one_bcd, const Tensor& dy_two_bcd) {
  TORCH_CHECK(run.behind->one_bcd.defined(), "reversible blocks run backward once for each forward pass");
  run.choices.repeats = true;
  auto visibility = *run.visibility;
  for (const auto member : shared)  // detaches shared tensors from their own graph
    if (has_gradient(visibility.*member)) visibility.*member = (visibility.*member).detach().requires_grad_();
  const auto inputs = inputs_of(run.block, visibility);
  Tensors sums(inputs.size());

  const auto y_one_bcd = run.behind->one_bcd, zeros_bcd = torch::zeros_like(y_one_bcd);
  const auto of_second = with_leaf(y_one_bcd, /*needs_dx=*/true, inputs);
  const auto second = repeat(run.settings, of_second, dy_two_bcd, [&](const Tensor& x_bcd) {
    auto pass = run.pass;
    pass.random.go_back(run.place_of_feed_forward);
    return run.block->add_feed_forward(zeros_bcd, x_bcd, pass);
  });
  const auto x_two_bcd = run.behind->two_bcd - second.y;
  const auto dy_one_bcd = plus(dy_behind_one_bcd, second.gradients[0]);
  add_to(sums, second.gradients, 1);

  const auto of_first = with_leaf(x_two_bcd, run.streams_have_gradients, inputs);
  const auto first = repeat(run.settings, of_first, dy_one_bcd, [&](const Tensor& x_bcd) {
    auto pass = run.pass;
    pass.choices = &run.choices;
    const BlockImpl::Surroundings surroundings{.visibility = visibility, .memory_bmd = run.memory_bmd};
    return run.block->add_mixer(zeros_bcd, x_bcd, surroundings, pass);
  });
  add_to(sums, first.gradients, 1);
  *run.behind = {y_one_bcd - first.y, x_two_bcd};

  Tensors all = {dy_one_bcd, plus(dy_two_bcd, first.gradients[0])};
  all.insert(all.end(), sums.begin(), sums.end());
  return all;
}

Streams run_to_invert(const Block& block, const Streams& x, const BlockImpl::Surroundings& surroundings,
                      std::shared_ptr<const Visibility>& visibility, const std::shared_ptr<Streams>& behind,
                      Pass& pass) {
  if (visibility == nullptr) visibility = std::make_shared<const Visibility>(surroundings.visibility);
  const auto run =
      std::make_shared<Run>(Run{.block = block,
                                .visibility = visibility,
                                .memory_bmd = surroundings.memory_bmd,
                                .pass = pass,
                                .settings = OperatorSettings(x.one_bcd.device()),
                                .behind = behind,
                                .streams_have_gradients = x.one_bcd.requires_grad() || x.two_bcd.requires_grad()});
  Tensors inputs = {x.one_bcd, x.two_bcd};
  for (auto& input : inputs_of(block, *visibility)) inputs.push_back(std::move(input));
  const auto y = own_nodes(
      "a reversible block", inputs, [&](Tensors&) { return forward(*run, x); },
      [run](const Backward& in) { return backward(*run, in.dy[0], in.dy[1]); });
  // The pass continues to draw after the block's draws.
  pass.random.go_back(run->place_behind);
  return {y[0], y[1]};
}

}  // namespace

torch::Tensor through_reversible(std::vector<Block>& blocks, const Tensor& x_bcd, const SurroundingsOf& surroundings_of,
                                 BlockGradients gradients, Pass& pass) {
  const bool inverts = gradients == BlockGradients::by_inversion && torch::GradMode::is_enabled();
  std::shared_ptr<const Visibility> visibility;  // shared by all blocks, like `behind`
  const auto behind = std::make_shared<Streams>();
  Streams x{x_bcd, x_bcd};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto surroundings = surroundings_of(i, x.two_bcd);
    x = inverts ? run_to_invert(blocks[i], x, surroundings, visibility, behind, pass)
                : through(blocks[i], x, surroundings, pass).first;
  }
  return (x.one_bcd + x.two_bcd) / 2;
}

}  // namespace metaformer
