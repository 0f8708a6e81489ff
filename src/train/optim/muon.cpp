#include "train/optim/muon.h"

#include <algorithm>
#include <cmath>

namespace metaformer {

namespace {

// X <- a X + b (X X') X + c (X X')^2 X.
constexpr double a = 3.4445, b = -4.7750, c = 2.0315;

// b A + c A^2 of A = X X'.
torch::Tensor factor(const torch::Tensor& gram_mrr) { return torch::baddbmm(gram_mrr, gram_mrr, gram_mrr, b, c); }

torch::Tensor iterate(torch::Tensor x_mrc, std::int64_t iterations) {
  for (std::int64_t i = 0; i < iterations; ++i) {
    const auto gram_mrr = torch::bmm(x_mrc, x_mrc.transpose(1, 2));
    x_mrc = torch::baddbmm(x_mrc, factor(gram_mrr), x_mrc, a);
  }
  return x_mrc;
}

// The same with products of r x r matrices between the first and the last: every iteration multiplies X by a polynomial
// P in A = X X' and so A by P^2. Needs more digits than bfloat16 has: A has the squares of the singular values.
torch::Tensor iterate_gram(const torch::Tensor& x_mrc, std::int64_t iterations) {
  auto gram_mrr = torch::bmm(x_mrc, x_mrc.transpose(1, 2));
  torch::Tensor all_mrr;
  for (std::int64_t i = 0; i < iterations; ++i) {
    auto factor_mrr = factor(gram_mrr);
    factor_mrr.diagonal(0, 1, 2).add_(a);
    all_mrr = i == 0 ? factor_mrr : torch::bmm(factor_mrr, all_mrr);
    if (i + 1 < iterations) gram_mrr = torch::bmm(torch::bmm(factor_mrr, gram_mrr), factor_mrr);
  }
  return torch::bmm(all_mrr, x_mrc);
}

}  // namespace

torch::Tensor orthogonalise(const torch::Tensor& x_mrc, std::int64_t iterations, torch::ScalarType type) {
  const auto rows = x_mrc.size(1), columns = x_mrc.size(2);
  if (rows > columns) return orthogonalise(x_mrc.transpose(1, 2), iterations, type).transpose(1, 2);
  constexpr double least_norm = 1e-7;
  const auto norm_m11 = torch::linalg_vector_norm(x_mrc, 2, at::IntArrayRef({1, 2}), /*keepdim=*/true);
  const auto unit_mrc = (x_mrc / norm_m11.clamp_min(least_norm)).to(type);
  const bool is_wide = columns >= 2 * rows, has_digits = type != torch::kBFloat16 && type != torch::kHalf;
  return is_wide && has_digits ? iterate_gram(unit_mrc, iterations) : iterate(unit_mrc, iterations);
}

namespace {

bool is_hidden(const ParameterBuffer::View& view) { return view.hidden_matrices > 0; }

// A parameter, or its gradient, as its m matrices [m, r, c] with r <= c.
torch::Tensor as_matrices(const torch::Tensor& tensor, const ParameterBuffer::View& view) {
  const auto columns = tensor.size(-1), rows = tensor.numel() / columns / view.hidden_matrices;
  const auto matrices_mrc = tensor.view({view.hidden_matrices, rows, columns});
  return rows > columns ? matrices_mrc.transpose(1, 2) : matrices_mrc;
}

}  // namespace

Muon::Muon(ParameterBuffer& parameters, const MuonConfig& config, torch::ScalarType type, GradientScale scale)
    : config_(config),
      type_(type),
      scale_(std::move(scale)),
      rest_(parameters, decay_ranges(parameters, config, [](const auto& view) { return !is_hidden(view); }), config,
            Adam::Decaying::decoupled, scale_) {
  const torch::NoGradGuard no_grad;
  for (const auto& view : parameters.views())
    if (is_hidden(view) && view.rate > 0) add(view);
  for (auto& group : groups_) {
    group.direction_mrc = torch::cat(group.values);
    group.momentum_mrc = torch::zeros_like(group.direction_mrc);
  }
}

void Muon::add(const ParameterBuffer::View& view) {
  const auto value_mrc = as_matrices(view.parameter.detach(), view);
  const auto fits = [&](const Group& group) {
    return group.rate == view.rate && group.values.front().sizes().slice(1) == value_mrc.sizes().slice(1);
  };
  auto group = std::find_if(groups_.begin(), groups_.end(), fits);
  if (group == groups_.end()) group = groups_.emplace(groups_.end());
  group->rate = view.rate;
  group->names.push_back(view.name);
  group->counts.push_back(view.hidden_matrices);
  group->values.push_back(value_mrc);
  group->gradients.push_back(as_matrices(view.parameter.grad(), view));
}

// Leaves what is to be orthogonalised. Gradients that are not finite leave the momentum as it is.
void Muon::take_gradients(Group& group) {
  const double kept = config_.momentum;
  at::cat_out(group.direction_mrc, group.gradients);
  if (scale_.divisor.defined()) {
    group.direction_mrc.div_(scale_.divisor).nan_to_num_(0, 0, 0);
    group.momentum_mrc.lerp_(group.direction_mrc, (1 - scale_.found_inf) * (1 - kept));
  } else {
    group.momentum_mrc.lerp_(group.direction_mrc, 1 - kept);
  }
  group.direction_mrc.lerp_(group.momentum_mrc, kept);
}

template <class Rate>
void Muon::update_matrices(Group& group, const Rate& rate) {
  constexpr double usual_rms = 0.2;  // of AdamW's updates, divided by the learning rate
  take_gradients(group);
  const auto larger_side = static_cast<double>(group.direction_mrc.size(2));
  const auto step_mrc = orthogonalise(group.direction_mrc, config_.iterations, type_).to(torch::kFloat);
  step_mrc.mul_(rate * (usual_rms * std::sqrt(larger_side)));
  if (config_.weight_decay > 0) at::_foreach_mul_(group.values, 1 - rate * config_.weight_decay);
  at::_foreach_sub_(group.values, step_mrc.split_with_sizes(group.counts));
}

template <class Rate>
void Muon::update(const Rate& learning_rate) {
  const torch::NoGradGuard no_grad;
  for (auto& group : groups_) update_matrices(group, learning_rate * group.rate);
}

void Muon::step(double learning_rate) {
  if (scale_.found_inf.defined()) return step(torch::full_like(scale_.found_inf, learning_rate));
  update(learning_rate);
  rest_.step(learning_rate);
}

void Muon::step(const torch::Tensor& learning_rate) {
  update(scale_.found_inf.defined() ? learning_rate * (1 - scale_.found_inf) : learning_rate);
  rest_.step(learning_rate);
}

void Muon::reset() {
  const torch::NoGradGuard no_grad;
  for (auto& group : groups_) group.momentum_mrc.zero_();
  rest_.reset();
}

NamedTensors Muon::state() const {
  NamedTensors state;
  for (const auto& group : groups_) {
    const auto momenta = group.momentum_mrc.split_with_sizes(group.counts);
    for (std::size_t i = 0; i < group.names.size(); ++i) state.emplace_back("momentum." + group.names[i], momenta[i]);
  }
  for (auto& entry : rest_.state()) state.push_back(std::move(entry));
  return state;
}

}  // namespace metaformer
