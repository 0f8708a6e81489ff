#include "train/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cpu/table_rows.h"
#include "ops/autocast.h"
#include "ops/fused_update.h"
#include "ops/kernel.h"

namespace metaformer {

namespace {

constexpr std::int64_t alignment = 16;  // of views in the buffer

using View = ParameterBuffer::View;

// Elements [first, first + count) of the parameter buffer, with the tensors that a fused operator updates there: lists
// of one tensor each, as these operators expect.
struct Range {
  std::int64_t first = 0, count = 0;
  double weight_decay = 0;
  double rate = 1;  // factor of the learning rate
  std::vector<torch::Tensor> values, gradients;
  std::vector<std::vector<torch::Tensor>> moments;  // a list for each kind
};

bool takes_all(const View&) { return true; }

// The ranges of the views that `takes` accepts, in their order, without frozen views. Neighbours with the same decay
// and rate form one range. Views that never decay are not joined with views that may. If `tables_apart`, a table with
// listed gradient rows is joined with no other view.
std::vector<Range> ranges_of(const ParameterBuffer& parameters, const WeightDecayConfig& config, bool tables_apart,
                             bool (*takes)(const View&)) {
  std::vector<Range> ranges;
  const auto& views = parameters.views();
  const View* last = nullptr;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto& view = views[i];
    if (view.rate == 0 || !takes(view)) continue;
    const auto end = i + 1 < views.size() ? views[i + 1].offset : parameters.values().numel();
    const double weight_decay = view.decay == Decay::none ? 0
                                : view.decay == Decay::embeddings
                                    ? config.embedding_weight_decay.value_or(config.weight_decay)
                                    : config.weight_decay;
    const auto is_apart = [&](const View& given) { return tables_apart && given.gradient_rows != nullptr; };
    const bool joins = last != nullptr && ranges.back().first + ranges.back().count == view.offset &&
                       ranges.back().weight_decay == weight_decay && last->rate == view.rate &&
                       (last->decay == Decay::none) == (view.decay == Decay::none) && !is_apart(*last) &&
                       !is_apart(view);
    if (!joins) ranges.push_back({.first = view.offset, .weight_decay = weight_decay, .rate = view.rate});
    ranges.back().count = end - ranges.back().first;
    last = &view;
  }
  return ranges;
}

// An optimiser that updates range by range. Its state consists of named moments, with a number for every element.
class RangeOptimizer : public Optimizer {
 public:
  void step(const LearningRate& learning_rate) override {
    const torch::NoGradGuard no_grad;
    for (const auto& range : ranges_) {
      const auto times = [&](const auto& rate) { return range.rate == 1 ? LearningRate(rate) : rate * range.rate; };
      update(range, std::visit(times, learning_rate));
      count_write(range.values.front());  // LibTorch's fused operators do not
    }
  }

  void reset() override {
    const torch::NoGradGuard no_grad;
    for (auto& range : ranges_)
      for (auto& moment : range.moments) moment.front().zero_();
  }

  NamedTensors state() const override {
    NamedTensors state;
    for (const auto& view : parameters_.views())
      for (const auto& range : ranges_) {
        if (view.offset < range.first || view.offset >= range.first + range.count) continue;
        for (std::size_t i = 0; i < names_.size(); ++i)
          state.emplace_back(
              names_[i] + view.name,
              range.moments[i].front().narrow(0, view.offset - range.first, view.count).view(view.parameter.sizes()));
      }
    return state;
  }

 protected:
  // `names`: of the moments.
  RangeOptimizer(ParameterBuffer& parameters, const WeightDecayConfig& config, std::vector<std::string> names,
                 const GradientScale& scale, bool tables_apart = false, bool (*takes)(const View&) = takes_all)
      : parameters_(parameters),
        scale_(scale),
        names_(std::move(names)),
        ranges_(ranges_of(parameters, config, tables_apart, takes)) {
    for (auto& range : ranges_) {
      range.values = {parameters.values().narrow(0, range.first, range.count)};
      range.gradients = {parameters.gradients().narrow(0, range.first, range.count)};
      for (std::size_t i = 0; i < names_.size(); ++i)
        range.moments.push_back({torch::zeros_like(range.values.front())});
    }
  }

  virtual void update(const Range& range, const LearningRate& learning_rate) = 0;

  const std::vector<Range>& ranges() const { return ranges_; }

  const ParameterBuffer& parameters_;
  GradientScale scale_;

 private:
  std::vector<std::string> names_;
  std::vector<Range> ranges_;
};

// AdamW and Adam.
class Adam : public RangeOptimizer {
 public:
  // `decoupled`: a weight w loses rate x decay x w (AdamW); `in_gradient`: decay x w is added to its gradient.
  enum class Decaying { decoupled, in_gradient };

  template <class Config>
  Adam(ParameterBuffer& parameters, const Config& config, const GradientScale& scale, Decaying decaying,
       bool (*takes)(const View&) = takes_all)
      : RangeOptimizer(parameters, config, {"first_moment.", "second_moment."}, scale, /*tables_apart=*/false, takes),
        config_(config),
        decaying_(decaying),
        steps_(torch::zeros({}, parameters.values().options().dtype(torch::kFloat))) {}

  void step(const LearningRate& learning_rate) override {
    if (has_fused_update(parameters_.values())) return step_by_kernel(learning_rate);
    {
      const torch::NoGradGuard no_grad;
      steps_.add_(1);
      if (scale_.found_inf) steps_.sub_(*scale_.found_inf);
    }
    RangeOptimizer::step(learning_rate);
  }

  void reset() override {
    RangeOptimizer::reset();
    steps_.zero_();
  }

  NamedTensors state() const override {
    auto state = RangeOptimizer::state();
    state.emplace_back("steps", steps_);
    return state;
  }

 private:
  void update(const Range& range, const LearningRate& learning_rate) override {
    const std::vector<torch::Tensor> largest;  // of AMSGrad only
    const std::vector<torch::Tensor> steps = {steps_};
    const auto apply = [&](const auto&... all) {
      decaying_ == Decaying::decoupled ? at::_fused_adamw_(all...) : at::_fused_adam_(all...);
    };
    const auto apply_at = [&](const auto& rate) {
      apply(range.values, range.gradients, range.moments[0], range.moments[1], largest, steps, rate, config_.betas[0],
            config_.betas[1], range.weight_decay, config_.epsilon, /*amsgrad=*/false, /*maximize=*/false,
            scale_.divisor, scale_.found_inf);
    };
    std::visit(apply_at, learning_rate);
  }

  void step_by_kernel(const LearningRate& learning_rate) {
    const torch::NoGradGuard no_grad;
    std::vector<FusedAdamRange> all;
    const auto copy = parameters_.half() == nullptr ? torch::Tensor() : parameters_.half()->copy();
    for (const auto& range : ranges())
      all.push_back({.values = range.values.front(),
                     .gradients = range.gradients.front(),
                     .first_moments = range.moments[0].front(),
                     .second_moments = range.moments[1].front(),
                     .copies = copy.defined() ? copy.narrow(0, range.first, range.count) : copy,
                     .weight_decay = range.weight_decay,
                     .rate = range.rate});
    fused_adam({.decoupled = decaying_ == Decaying::decoupled,
                .betas = {config_.betas.begin(), config_.betas.end()},
                .epsilon = config_.epsilon,
                .factor = scale_.factor,
                .divisor = scale_.divisor,
                .found_inf = scale_.found_inf},
               all, steps_, learning_rate);
  }

  MomentsConfig config_;
  Decaying decaying_;
  torch::Tensor steps_;  // float scalar on the device, as the fused operator expects
};

class Sgd : public RangeOptimizer {
 public:
  Sgd(ParameterBuffer& parameters, const SgdConfig& config, const GradientScale& scale)
      : RangeOptimizer(parameters, config, std::vector<std::string>(config.momentum > 0 ? 1 : 0, "momentum."), scale),
        momentum_(config.momentum) {}

 private:
  void update(const Range& range, const LearningRate& learning_rate) override {
    const auto moments = range.moments.empty() ? std::vector<torch::Tensor>() : range.moments.front();
    // is_first_step is never needed: without dampening, a momentum of zeros becomes the gradient anyway.
    const auto apply_at = [&](const auto& rate) {
      at::_fused_sgd_(range.values, range.gradients, moments, range.weight_decay, momentum_, rate, /*dampening=*/0,
                      /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false, scale_.divisor,
                      scale_.found_inf);
    };
    std::visit(apply_at, learning_rate);
  }

  double momentum_;
};

// With the sum s of a weight's squared gradients: s <- s + g^2, w <- w - rate g / (sqrt(s) + epsilon). A weight whose
// gradient is zero does not change. So on the CPU, tables with listed gradient rows (GradientRows) are updated only in
// these rows, unless they decay.
class Adagrad : public RangeOptimizer {
 public:
  Adagrad(ParameterBuffer& parameters, const AdagradConfig& config, const GradientScale& scale)
      : RangeOptimizer(parameters, config, {"squared_gradients."}, scale, /*tables_apart=*/true),
        epsilon_(config.epsilon),
        steps_(torch::ones({}, parameters.values().options().dtype(torch::kFloat))) {}

 private:
  void update(const Range& range, const LearningRate& learning_rate) override {
    const auto& values = range.values.front();
    const auto* number = std::get_if<double>(&learning_rate);
    const bool has_kernel = values.is_cpu() && values.scalar_type() == torch::kFloat && !scale_.divisor;
    const auto& views = parameters_.views();
    const auto table =
        std::find_if(views.begin(), views.end(), [&](const View& view) { return view.offset == range.first; });
    if (has_kernel && number != nullptr && table->has_listed_rows() && range.weight_decay == 0)
      return update_listed_rows(range, *table, static_cast<float>(*number));
    const auto apply_at = [&](const auto& rate) {
      at::_fused_adagrad_(range.values, range.gradients, range.moments.front(), {steps_}, rate, /*lr_decay=*/0,
                          range.weight_decay, epsilon_, /*maximize=*/false, scale_.divisor, scale_.found_inf);
    };
    std::visit(apply_at, learning_rate);
  }

  void update_listed_rows(const Range& range, const View& table, float rate) const {
    const auto& rows = table.gradient_rows->listed();
    const AdagradRows listed = {.values = range.values.front().data_ptr<float>(),
                                .gradients = range.gradients.front().data_ptr<float>(),
                                .sums = range.moments.front().front().data_ptr<float>(),
                                .rows = rows.data(),
                                .width = table.row_width()};
    const auto grain = std::max<std::int64_t>(1, (1 << 14) / listed.width);
    at::parallel_for(0, std::ssize(rows), grain, [&](std::int64_t first, std::int64_t last) {
      adagrad_rows(listed, first, last, rate, static_cast<float>(epsilon_));
    });
  }

  double epsilon_;
  torch::Tensor steps_;  // float scalar that the fused operator requires, without effect
};

// X <- a X + b (X X') X + c (X X')^2 X.
constexpr double a = 3.4445, b = -4.7750, c = 2.0315;

// b A + c A^2 for A = X X'.
torch::Tensor factor(const torch::Tensor& gram_mrr) { return torch::baddbmm(gram_mrr, gram_mrr, gram_mrr, b, c); }

torch::Tensor iterate(torch::Tensor x_mrc, std::int64_t iterations) {
  for (std::int64_t i = 0; i < iterations; ++i) {
    const auto gram_mrr = torch::bmm(x_mrc, x_mrc.transpose(1, 2));
    x_mrc = torch::baddbmm(x_mrc, factor(gram_mrr), x_mrc, a);
  }
  return x_mrc;
}

// The same, where all products but the first and the last are of r x r matrices: every iteration multiplies X by a
// polynomial P in A = X X' and so A by P^2. Needs more precision than bfloat16 has, because A has the squares of the
// singular values.
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

bool is_hidden(const View& view) { return view.hidden_matrices > 0; }

// A parameter, or its gradient, as its m matrices [m, r, c] with r <= c.
torch::Tensor as_matrices(const torch::Tensor& tensor, const View& view) {
  const auto columns = tensor.size(-1), rows = tensor.numel() / columns / view.hidden_matrices;
  const auto matrices_mrc = tensor.view({view.hidden_matrices, rows, columns});
  return rows > columns ? matrices_mrc.transpose(1, 2) : matrices_mrc;
}

// With mu the momentum, G the gradient and O the orthogonal factor of an r x c matrix W:
//   M <- mu M + (1 - mu) G,   W <- (1 - rate decay) W - rate 0.2 sqrt(max(r, c)) O(mu M + (1 - mu) G)
// The factor gives updates the size of AdamW's (Liu et al. 2025, "Muon is Scalable for LLM Training"), so that one
// learning rate serves both. The ParameterSpec of a parameter says whether it consists of such matrices.
class Muon : public Optimizer {
 public:
  // The products of the orthogonalisation are computed in `type`.
  Muon(ParameterBuffer& parameters, const MuonConfig& config, torch::ScalarType type, const GradientScale& scale)
      : config_(config),
        type_(type),
        scale_(scale),
        rest_(parameters, config, scale, Adam::Decaying::decoupled, [](const View& view) { return !is_hidden(view); }) {
    const torch::NoGradGuard no_grad;
    for (const auto& view : parameters.views())
      if (is_hidden(view) && view.rate > 0) add(view);
    for (auto& group : groups_) {
      group.direction_mrc = torch::cat(group.values);
      group.momentum_mrc = torch::zeros_like(group.direction_mrc);
    }
  }

  void step(const LearningRate& given) override {
    if (!scale_.found_inf) {
      std::visit([&](const auto& rate) { update(rate); }, given);
      return rest_.step(given);
    }
    const auto* number = std::get_if<double>(&given);
    const auto rate = number == nullptr ? std::get<torch::Tensor>(given) : torch::full_like(*scale_.found_inf, *number);
    update(rate * (1 - *scale_.found_inf));
    rest_.step(rate);
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
  // than columns are transposed.
  struct Group {
    double rate = 1;
    std::vector<std::string> names;
    std::vector<std::int64_t> counts;              // number of matrices for each name
    std::vector<torch::Tensor> values, gradients;  // for each name, [m, r, c]
    torch::Tensor momentum_mrc, direction_mrc;     // of all; the second is the input of the orthogonalisation
  };

  void add(const View& view) {
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

  // Updates the momentum, and sets direction_mrc to the matrices to orthogonalise. If gradients are not finite, the
  // momentum does not change.
  void take_gradients(Group& group) {
    const double kept = config_.momentum;
    at::cat_out(group.direction_mrc, group.gradients);
    if (scale_.divisor) {
      group.direction_mrc.div_(*scale_.divisor).nan_to_num_(0, 0, 0);
      group.momentum_mrc.lerp_(group.direction_mrc, (1 - *scale_.found_inf) * (1 - kept));
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

}  // namespace

std::vector<Shard> shards_of(const ParameterBuffer& parameters, const TrainConfig& config, int size) {
  const auto total = parameters.values().numel();
  const auto border = [&](int rank) {
    if (rank == size) return total;
    const auto place = total * rank / size / alignment * alignment;
    if (!is<MuonConfig>(config.optimizer)) return place;
    auto nearest = total;  // border that cuts no view
    for (const auto& view : parameters.views())
      if (std::abs(view.offset - place) < std::abs(nearest - place)) nearest = view.offset;
    return nearest;
  };
  std::vector<Shard> shards;
  for (int rank = 0; rank < size; ++rank)
    shards.push_back({.first = border(rank), .count = border(rank + 1) - border(rank)});
  return shards;
}

ShardedOptimizer::ShardedOptimizer(ParameterBuffer& parameters, const TrainConfig& config, const GradientScale& scale,
                                   ProcessGroup& group)
    : parameters_(parameters),
      group_(group),
      shards_(shards_of(parameters, config, group.size())),
      shard_(parameters, own_shard().first, own_shard().count),
      own_(make_optimizer(shard_, config, scale)) {}

void ShardedOptimizer::step(const LearningRate& learning_rate) {
  own_->step(learning_rate);
  for (std::size_t rank = 0; rank < shards_.size(); ++rank)
    if (shards_[rank].count > 0)
      group_.broadcast(parameters_.values().narrow(0, shards_[rank].first, shards_[rank].count),
                       static_cast<int>(rank));
}

// Takes the longest matching name, because the name of one view may be the end of another's.
const ParameterBuffer::View* ShardedOptimizer::view_of(const std::string& name) const {
  const ParameterBuffer::View* found = nullptr;
  for (const auto& view : parameters_.views())
    if (name.ends_with("." + view.name) && (found == nullptr || view.name.size() > found->name.size())) found = &view;
  return found;
}

NamedTensors ShardedOptimizer::state() const {
  std::vector<std::string> names;
  std::map<std::string, std::vector<torch::Tensor>> parts;  // of each name, by rank
  for (const auto& of_rank : gather_tensors(group_, own_->state()))
    for (const auto& [name, tensor] : of_rank) {
      if (!parts.contains(name)) names.push_back(name);
      parts[name].push_back(tensor);
    }
  NamedTensors state;
  for (const auto& name : names) {
    const auto& tensors = parts.at(name);
    const auto& first = tensors.front();
    const auto* view = first.dim() == 0 ? nullptr : view_of(name);
    // Whole: the view lies in one shard, or the tensor belongs to no view, such as the number of steps.
    const bool is_whole = view == nullptr || first.numel() == view->count;
    state.emplace_back(name, is_whole ? first : torch::cat(tensors).view(view->parameter.sizes()));
  }
  return state;
}

std::string ShardedOptimizer::first_not_finite() const {
  const auto names = group_.gather(own_->first_not_finite());
  const auto found = std::ranges::find_if_not(names, &std::string::empty);
  return found == names.end() ? "" : *found;
}

void ShardedOptimizer::load(const NamedTensors& state) {
  const torch::NoGradGuard no_grad;
  for (auto& [own_name, target] : own_->state())
    for (const auto& [name, whole] : state) {
      if (name != own_name) continue;
      const auto* view = target.dim() == 0 ? nullptr : view_of(name);
      const auto first = view == nullptr ? 0 : std::max<std::int64_t>(own_shard().first - view->offset, 0);
      target.copy_(whole.reshape({-1}).narrow(0, first, target.numel()).view(target.sizes()));
    }
}

std::string Optimizer::first_not_finite() const {
  for (const auto& [name, tensor] : state())
    if (!tensor.isfinite().all().item<bool>()) return name;
  return "";
}

std::unique_ptr<Optimizer> make_optimizer(ParameterBuffer& parameters, const TrainConfig& config,
                                          const GradientScale& scale) {
  if (const auto* adamw = std::get_if<AdamWConfig>(&config.optimizer))
    return std::make_unique<Adam>(parameters, *adamw, scale, Adam::Decaying::decoupled);
  if (const auto* adam = std::get_if<AdamConfig>(&config.optimizer))
    return std::make_unique<Adam>(parameters, *adam, scale, Adam::Decaying::in_gradient);
  if (const auto* sgd = std::get_if<SgdConfig>(&config.optimizer))
    return std::make_unique<Sgd>(parameters, *sgd, scale);
  if (const auto* adagrad = std::get_if<AdagradConfig>(&config.optimizer))
    return std::make_unique<Adagrad>(parameters, *adagrad, scale);
  // The orthogonalisation uses 16-bit products if the model does.
  return std::make_unique<Muon>(parameters, std::get<MuonConfig>(config.optimizer),
                                has_half_products(config.precision) ? torch::kBFloat16 : torch::kFloat, scale);
}

bool clips_in_update(const ParameterBuffer& parameters, const TrainConfig& config) {
  return has_fused_update(parameters.values()) &&
         (is<AdamWConfig>(config.optimizer) || is<AdamConfig>(config.optimizer));
}

torch::Tensor orthogonalise(const torch::Tensor& x_mrc, std::int64_t iterations, torch::ScalarType type) {
  const auto rows = x_mrc.size(1), columns = x_mrc.size(2);
  if (rows > columns) return orthogonalise(x_mrc.transpose(1, 2), iterations, type).transpose(1, 2);
  constexpr double least_norm = 1e-7;
  const auto norm_m11 = torch::linalg_vector_norm(x_mrc, 2, at::IntArrayRef({1, 2}), /*keepdim=*/true);
  const auto unit_mrc = (x_mrc / norm_m11.clamp_min(least_norm)).to(type);
  const bool is_wide = columns >= 2 * rows, has_digits = type != torch::kBFloat16 && type != torch::kHalf;
  return is_wide && has_digits ? iterate_gram(unit_mrc, iterations) : iterate(unit_mrc, iterations);
}

LossScale::LossScale(torch::Device device)
    : factor_(torch::full({}, initial, torch::TensorOptions().dtype(torch::kFloat).device(device))),
      found_inf_(torch::zeros_like(factor_)),
      good_steps_(torch::zeros({}, torch::TensorOptions().dtype(torch::kInt).device(device))) {}

torch::Tensor LossScale::unscaled_norm(const torch::Tensor& scaled_norm) {
  found_inf_.copy_(scaled_norm.isfinite().logical_not());
  return scaled_norm / factor_;
}

void LossScale::adapt() {
  constexpr double growth = 2, backoff = 0.5;
  constexpr std::int64_t growth_interval = 2000;
  at::_amp_update_scale_(factor_, good_steps_, found_inf_, growth, backoff, growth_interval);
  factor_.clamp_min_(smallest);
}

void LossScale::reset() {
  factor_.fill_(initial);
  good_steps_.zero_();
}

NamedTensors LossScale::state() const { return {{"loss_scale", factor_}, {"loss_scale_good_steps", good_steps_}}; }

WeightAverage::WeightAverage(ParameterBuffer& parameters, double decay, std::function<void()> exchanged)
    : parameters_(parameters),
      decay_(decay),
      exchanged_(std::move(exchanged)),
      other_(decay > 0 ? parameters.values().clone() : torch::Tensor()) {}

void WeightAverage::update(std::int64_t step) {
  if (!other_.defined()) return;
  const torch::NoGradGuard no_grad;
  const auto t = static_cast<double>(step);
  other_.lerp_(parameters_.values(), (1 - decay_) / (1 - std::pow(decay_, t)));
}

void WeightAverage::reset() {
  if (other_.defined()) other_.copy_(parameters_.values());
}

NamedTensors WeightAverage::state() const {
  NamedTensors state;
  if (!other_.defined()) return state;
  for (const auto& view : parameters_.views())
    state.emplace_back("trained." + view.name, ParameterBuffer::part(other_, view));
  return state;
}

void WeightAverage::exchange() {
  if (!other_.defined()) return;
  const torch::NoGradGuard no_grad;
  const auto values = parameters_.values().clone();
  parameters_.values().copy_(other_);
  other_.copy_(values);
  if (exchanged_) exchanged_();
}

}  // namespace metaformer
