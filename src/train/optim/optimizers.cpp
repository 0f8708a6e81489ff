#include "train/optim/optimizers.h"

#include <algorithm>
#include <cmath>

#include "cpu/table_rows.h"
#include "ops/kernel.h"

namespace metaformer {

namespace {

// AdamW and Adam, through LibTorch's fused operators.
class Adam : public Optimizer {
 public:
  // `decoupled`: a weight w loses rate x decay x w (AdamW); `in_gradient`: decay x w is added to its gradient.
  enum class Decaying { decoupled, in_gradient };

  Adam(ParameterBuffer& parameters, std::vector<DecayRange> ranges, const MomentsConfig& config, Decaying decaying,
       GradientScale scale)
      : parameters_(parameters),
        ranges_(std::move(ranges)),
        config_(config),
        decaying_(decaying),
        scale_(std::move(scale)),
        steps_(torch::zeros({}, parameters.values().options().dtype(torch::kFloat))) {
    for (const auto& range : ranges_) {
      first_moments_.push_back(torch::zeros({range.count}, parameters.values().options()));
      second_moments_.push_back(torch::zeros_like(first_moments_.back()));
    }
  }

  void step(double learning_rate) override { update(learning_rate); }
  void step(const torch::Tensor& learning_rate) override { update(learning_rate); }

  void reset() override {
    const torch::NoGradGuard no_grad;
    for (auto* moments : {&first_moments_, &second_moments_})
      for (auto& moment : *moments) moment.zero_();
    steps_.zero_();
  }

  NamedTensors state() const override {
    NamedTensors state;
    for (const auto& view : parameters_.views())
      for (std::size_t i = 0; i < ranges_.size(); ++i) {
        const auto& range = ranges_[i];
        if (view.offset < range.first || view.offset >= range.first + range.count) continue;
        state.emplace_back("first_moment." + view.name, part_of_range(first_moments_[i], range, view));
        state.emplace_back("second_moment." + view.name, part_of_range(second_moments_[i], range, view));
      }
    state.emplace_back("steps", steps_);
    return state;
  }

 private:
  template <class Rate>
  void update(const Rate& learning_rate) {
    const torch::NoGradGuard no_grad;
    steps_.add_(1);
    if (scale_.found_inf.defined()) steps_.sub_(scale_.found_inf);
    const auto scale = as_optional(scale_.divisor), found_inf = as_optional(scale_.found_inf);
    const std::vector<torch::Tensor> largest;  // of AMSGrad only
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      const auto& range = ranges_[i];
      const std::vector values = {part_of(parameters_.values(), range)},
                        gradients = {part_of(parameters_.gradients(), range)};
      const auto rate = rate_of(range, learning_rate);
      const std::vector first = {first_moments_[i]}, second = {second_moments_[i]}, steps = {steps_};
      const auto apply = [&](const auto& fused) {
        fused(values, gradients, first, second, largest, steps, rate, config_.betas[0], config_.betas[1],
              range.weight_decay, config_.epsilon, /*amsgrad=*/false, /*maximize=*/false, scale, found_inf);
      };
      if (decaying_ == Decaying::decoupled)
        apply([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
      else
        apply([](const auto&... arguments) { at::_fused_adam_(arguments...); });
    }
  }

  ParameterBuffer& parameters_;
  std::vector<DecayRange> ranges_;
  MomentsConfig config_;
  Decaying decaying_;
  GradientScale scale_;
  std::vector<torch::Tensor> first_moments_, second_moments_;  // of each range
  torch::Tensor steps_;  // float scalar, on the device: what the fused operator reads
};

// State of the whole buffer, by the names of the parameters that change.
NamedTensors state_by_view(const ParameterBuffer& parameters, const std::string& prefix, const torch::Tensor& buffer) {
  NamedTensors state;
  for (const auto& view : parameters.views())
    if (view.rate > 0) state.emplace_back(prefix + view.name, ParameterBuffer::part(buffer, view));
  return state;
}

class Sgd : public Optimizer {
 public:
  Sgd(ParameterBuffer& parameters, const SgdConfig& config, GradientScale scale)
      : parameters_(parameters),
        config_(config),
        ranges_(decay_ranges(parameters, config)),
        scale_(std::move(scale)),
        momentum_(config.momentum > 0 ? torch::zeros_like(parameters.values()) : torch::Tensor()) {}

  void step(double learning_rate) override { update(learning_rate); }
  void step(const torch::Tensor& learning_rate) override { update(learning_rate); }
  void reset() override {
    if (momentum_.defined()) momentum_.zero_();
  }
  NamedTensors state() const override {
    return momentum_.defined() ? state_by_view(parameters_, "momentum.", momentum_) : NamedTensors();
  }

 private:
  template <class Rate>
  void update(const Rate& learning_rate) {
    const torch::NoGradGuard no_grad;
    for (const auto& range : ranges_) {
      std::vector<torch::Tensor> momentum;
      if (momentum_.defined()) momentum.push_back(part_of(momentum_, range));
      // Not as a first step: without dampening, a momentum of zeros becomes the gradient anyway.
      at::_fused_sgd_({part_of(parameters_.values(), range)}, {part_of(parameters_.gradients(), range)}, momentum,
                      range.weight_decay, config_.momentum, rate_of(range, learning_rate), /*dampening=*/0,
                      /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false, as_optional(scale_.divisor),
                      as_optional(scale_.found_inf));
    }
  }

  ParameterBuffer& parameters_;
  SgdConfig config_;
  std::vector<DecayRange> ranges_;
  GradientScale scale_;
  torch::Tensor momentum_;  // undefined: none
};

// With the sum s of a weight's squared gradients: s <- s + g^2, w <- w - rate g / (sqrt(s) + epsilon). A weight whose
// gradient is zero stays as it is, so that on the CPU tables whose rows with gradients are listed (GradientRows) are
// updated there only, unless they decay.
class Adagrad : public Optimizer {
 public:
  Adagrad(ParameterBuffer& parameters, const AdagradConfig& config, GradientScale scale)
      : parameters_(parameters),
        config_(config),
        scale_(std::move(scale)),
        ranges_(decay_ranges(parameters, config, [](const auto& view) { return view.gradient_rows == nullptr; })),
        sums_(torch::zeros_like(parameters.values())),
        steps_(torch::ones({}, parameters.values().options().dtype(torch::kFloat))) {
    for (const auto& view : parameters.views()) {
      if (view.gradient_rows == nullptr) continue;
      for (const auto& range : decay_ranges(parameters, config, [&](const auto& other) { return &other == &view; }))
        tables_.push_back({.view = view, .range = range});
    }
  }

  void step(double learning_rate) override {
    const torch::NoGradGuard no_grad;
    for (const auto& range : ranges_) update(range, learning_rate);
    const auto& values = parameters_.values();
    const bool has_kernel = values.is_cpu() && values.scalar_type() == torch::kFloat && !scale_.divisor.defined();
    for (const auto& table : tables_)
      if (has_kernel && table.view.has_listed_rows() && table.range.weight_decay == 0)
        update_listed_rows(table, learning_rate);
      else
        update(table.range, learning_rate);
  }

  void step(const torch::Tensor& learning_rate) override {
    const torch::NoGradGuard no_grad;
    for (const auto& range : ranges_) update(range, learning_rate);
    for (const auto& table : tables_) update(table.range, learning_rate);
  }

  void reset() override { sums_.zero_(); }
  NamedTensors state() const override { return state_by_view(parameters_, "squared_gradients.", sums_); }

 private:
  // A table whose rows with gradients may be listed.
  struct Table {
    const ParameterBuffer::View& view;
    DecayRange range;
  };

  template <class Rate>
  void update(const DecayRange& range, const Rate& learning_rate) {
    at::_fused_adagrad_({part_of(parameters_.values(), range)}, {part_of(parameters_.gradients(), range)},
                        {part_of(sums_, range)}, {steps_}, rate_of(range, learning_rate), /*lr_decay=*/0,
                        range.weight_decay, config_.epsilon, /*maximize=*/false, as_optional(scale_.divisor),
                        as_optional(scale_.found_inf));
  }

  void update_listed_rows(const Table& table, double learning_rate) {
    const auto start_of = [&](const torch::Tensor& buffer) { return buffer.data_ptr<float>() + table.view.offset; };
    const auto& rows = table.view.gradient_rows->listed();
    const AdagradRows listed = {.values = start_of(parameters_.values()),
                                .gradients = start_of(parameters_.gradients()),
                                .sums = start_of(sums_),
                                .rows = rows.data(),
                                .width = table.view.row_width()};
    const auto rate = static_cast<float>(rate_of(table.range, learning_rate));
    const auto grain = std::max<std::int64_t>(1, (1 << 14) / listed.width);
    at::parallel_for(0, std::ssize(rows), grain, [&](std::int64_t first, std::int64_t last) {
      adagrad_rows(listed, first, last, rate, static_cast<float>(config_.epsilon));
    });
  }

  ParameterBuffer& parameters_;
  AdagradConfig config_;
  GradientScale scale_;
  std::vector<DecayRange> ranges_;  // of all other parameters
  std::vector<Table> tables_;
  torch::Tensor sums_;
  torch::Tensor steps_;  // float scalar that the library's operator wants, and which has no effect
};

}  // namespace

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

// With mu the momentum, G the gradient and O the orthogonal factor of an r x c matrix W:
//   M <- mu M + (1 - mu) G,   W <- (1 - rate decay) W - rate 0.2 sqrt(max(r, c)) O(mu M + (1 - mu) G)
// The factor gives updates the size of AdamW's (Liu et al. 2025, "Muon is Scalable for LLM Training"), so that one
// learning rate serves both. Which matrices these are is said where they are registered (ParameterSpec).
class Muon : public Optimizer {
 public:
  // The products that orthogonalise are in `type`.
  Muon(ParameterBuffer& parameters, const MuonConfig& config, torch::ScalarType type, const GradientScale& scale)
      : config_(config),
        type_(type),
        scale_(scale),
        rest_(parameters, decay_ranges(parameters, config, [](const auto& view) { return !is_hidden(view); }), config,
              Adam::Decaying::decoupled, scale) {
    const torch::NoGradGuard no_grad;
    for (const auto& view : parameters.views())
      if (is_hidden(view) && view.rate > 0) add(view);
    for (auto& group : groups_) {
      group.direction_mrc = torch::cat(group.values);
      group.momentum_mrc = torch::zeros_like(group.direction_mrc);
    }
  }

  void step(double learning_rate) override {
    if (scale_.found_inf.defined()) return step(torch::full_like(scale_.found_inf, learning_rate));
    update(learning_rate);
    rest_.step(learning_rate);
  }

  void step(const torch::Tensor& learning_rate) override {
    update(scale_.found_inf.defined() ? learning_rate * (1 - scale_.found_inf) : learning_rate);
    rest_.step(learning_rate);
  }

  void reset() override {
    const torch::NoGradGuard no_grad;
    for (auto& group : groups_) group.momentum_mrc.zero_();
    rest_.reset();
  }

  NamedTensors state() const override {
    NamedTensors state;
    for (const auto& group : groups_) {
      const auto momenta = group.momentum_mrc.split_with_sizes(group.counts);
      for (std::size_t i = 0; i < group.names.size(); ++i) state.emplace_back("momentum." + group.names[i], momenta[i]);
    }
    for (auto& entry : rest_.state()) state.push_back(std::move(entry));
    return state;
  }

 private:
  // Matrices of one shape and one factor of the learning rate, which are orthogonalised together. Those with more rows
  // than columns lie transposed.
  struct Group {
    double rate = 1;
    std::vector<std::string> names;
    std::vector<std::int64_t> counts;              // of matrices of each name
    std::vector<torch::Tensor> values, gradients;  // of each name, [m, r, c]
    torch::Tensor momentum_mrc, direction_mrc;     // of all; the second is workspace for what is orthogonalised
  };

  void add(const ParameterBuffer::View& view) {
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
  void take_gradients(Group& group) {
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
  void update(const Rate& learning_rate) {
    constexpr double usual_rms = 0.2;  // of AdamW's updates, divided by the learning rate
    const torch::NoGradGuard no_grad;
    for (auto& group : groups_) {
      const Rate rate = learning_rate * group.rate;
      take_gradients(group);
      const auto larger_side = static_cast<double>(group.direction_mrc.size(2));
      const auto step_mrc = orthogonalise(group.direction_mrc, config_.iterations, type_).to(torch::kFloat);
      step_mrc.mul_(rate * (usual_rms * std::sqrt(larger_side)));
      if (config_.weight_decay > 0) at::_foreach_mul_(group.values, 1 - rate * config_.weight_decay);
      at::_foreach_sub_(group.values, step_mrc.split_with_sizes(group.counts));
    }
  }

  MuonConfig config_;
  torch::ScalarType type_;
  GradientScale scale_;
  std::vector<Group> groups_;
  Adam rest_;
};

// Of the products that orthogonalise: as those of the model.
torch::ScalarType product_type(Precision precision) {
  return precision == Precision::bf16 || precision == Precision::fp16 ? torch::kBFloat16 : torch::kFloat;
}

struct MakeOptimizer {
  ParameterBuffer& parameters;
  Precision precision;
  const GradientScale& scale;

  std::unique_ptr<Optimizer> operator()(const AdamWConfig& config) const {
    return std::make_unique<Adam>(parameters, decay_ranges(parameters, config), config, Adam::Decaying::decoupled,
                                  scale);
  }
  std::unique_ptr<Optimizer> operator()(const AdamConfig& config) const {
    return std::make_unique<Adam>(parameters, decay_ranges(parameters, config), config, Adam::Decaying::in_gradient,
                                  scale);
  }
  std::unique_ptr<Optimizer> operator()(const SgdConfig& config) const {
    return std::make_unique<Sgd>(parameters, config, scale);
  }
  std::unique_ptr<Optimizer> operator()(const AdagradConfig& config) const {
    return std::make_unique<Adagrad>(parameters, config, scale);
  }
  std::unique_ptr<Optimizer> operator()(const MuonConfig& config) const {
    return std::make_unique<Muon>(parameters, config, product_type(precision), scale);
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(ParameterBuffer& parameters, const TrainConfig& config,
                                          const GradientScale& scale) {
  return std::visit(MakeOptimizer{parameters, config.precision, scale}, config.optimizer);
}

}  // namespace metaformer
