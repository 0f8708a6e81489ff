#include "train/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace metaformer {

namespace {

constexpr std::string_view factor_prefix = "adapter.", base_prefix = "base.", name_of_a = ".lora_A",
                           name_of_b = ".lora_B";

// Matrices that map hidden vectors to hidden vectors.
bool is_adaptable(const SpecifiedParameter& parameter) {
  return parameter.spec.hidden_matrices > 0 && parameter.spec.is_trained;
}

bool is_named_by(const std::vector<std::string>& given, const std::string& name, const NameForm& form) {
  return std::any_of(given.begin(), given.end(), [&](const auto& entry) { return form.matches(name, entry); });
}

void require_all_named(std::string_view key, const std::vector<std::string>& given,
                       const std::vector<std::string>& names, const NameForm& form, std::string_view what) {
  for (const auto& entry : given) require_named(key, entry, names, form, what);
}

std::string without_weight(const std::string& name) {
  constexpr std::string_view ending = ".weight";
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : name;
}

// All dimensions but the last are rows.
torch::Tensor as_matrix(const torch::Tensor& tensor) { return tensor.view({-1, tensor.size(-1)}); }

// The factors of a target, initialised.
std::vector<SpecifiedParameter> factors_of(const SpecifiedParameter& target, const TrainConfig& config) {
  const auto weight_oi = as_matrix(target.value.detach());
  const auto rank = config.lora.rank, outputs = weight_oi.size(0), inputs = weight_oi.size(1);
  const auto name = without_weight(target.name);
  const auto bound = 1 / std::sqrt(static_cast<double>(inputs));  // Kaiming's for a slope of sqrt(5)
  const ParameterSpec of_a = {.init = Init::uniform(bound), .decay = Decay::matrices, .hidden_matrices = 1};
  const ParameterSpec of_b = {
      .init = Init::zeros(), .decay = Decay::matrices, .hidden_matrices = target.spec.hidden_matrices};
  std::vector<SpecifiedParameter> factors = {{name + std::string(name_of_a), torch::zeros({rank, inputs}), of_a},
                                             {name + std::string(name_of_b), torch::zeros({outputs, rank}), of_b}};
  for (auto& factor : factors) {
    initialise(factor, static_cast<std::uint64_t>(config.seed));
    factor.value = factor.value.to(target.value.device(), target.value.scalar_type());
  }
  return factors;
}

}  // namespace

std::vector<SpecifiedParameter> with_adapters(std::vector<SpecifiedParameter> all, const TrainConfig& config) {
  const auto& [rank, alpha, targets, full] = config.lora;
  std::vector<std::string> names, matrices;
  for (const auto& parameter : all) {
    names.push_back(parameter.name);
    if (is_adaptable(parameter)) matrices.push_back(parameter.name);
  }
  require_all_named("train.lora.targets", targets, matrices, name_by_part, "matrix of the blocks");
  require_all_named("train.lora.full", full, names, name_by_beginning, "parameter");
  std::vector<SpecifiedParameter> factors;
  for (auto& parameter : all) {
    const bool is_full = is_named_by(full, parameter.name, name_by_beginning);
    const bool is_target = is_adaptable(parameter) && is_named_by(targets, parameter.name, name_by_part);
    if (is_full && is_target)
      fail_usage("train.lora.full: {} is also a target of train.lora.targets: leave it out of one of them",
                 parameter.name);
    if (is_target)
      for (auto& factor : factors_of(parameter, config)) factors.push_back(std::move(factor));
    parameter.spec.is_trained = parameter.spec.is_trained && is_full;
  }
  all.insert(all.end(), factors.begin(), factors.end());
  return all;
}

void require_adaptable(const SequenceModel& model, const TrainConfig& config, const WeightTransfer& transfer) {
  const auto of_model = specified_parameters(model);
  const auto all = with_adapters(of_model, config);
  auto random = transfer.initialised;
  for (const auto& part : transfer.parts) random.push_back(part.substr(0, part.find(' ')));
  std::vector<std::string> names;
  auto full = config.lora.full;
  for (std::size_t i = 0; i < of_model.size(); ++i) {
    const auto& name = all[i].name;
    const bool is_fixed = of_model[i].spec.is_trained && !all[i].spec.is_trained;
    if (!is_fixed || std::find(random.begin(), random.end(), name) == random.end()) continue;
    names.push_back(name);
    const auto layer = name.substr(0, name.rfind('.'));
    if (std::find(full.begin(), full.end(), layer) == full.end()) full.push_back(layer);
  }
  if (!names.empty())
    fail_usage(
        "train.lora: the weights of train.init_from lack {}, wholly or in part, and random values would stay as they "
        "are: train them by train.lora.full=[{}]",
        fmt::join(names, ", "), fmt::join(full, ", "));
}

std::string describe_trained(const ParameterBuffer& parameters) {
  std::int64_t all = 0, trained = 0;
  for (const auto& view : parameters.views()) {
    all += view.count;
    if (view.rate > 0) trained += view.count;
  }
  if (trained == all) return "";
  return fmt::format("{} of {} parameters are trained", human_count(static_cast<double>(trained)),
                     human_count(static_cast<double>(all)));
}

Lora::Lora(ParameterBuffer& parameters, const LoraConfig& config)
    : parameters_(parameters), scale_(config.alpha / static_cast<double>(config.rank)) {
  const auto& views = parameters.views();
  const auto find = [&](const std::string& name) {
    return std::find_if(views.begin(), views.end(), [&](const auto& view) { return view.name == name; });
  };
  const auto gradient_of = [&](const auto& view) {
    return as_matrix(ParameterBuffer::part(parameters.gradients(), view));
  };
  const auto factor_of = [&](const std::string& name) -> Factor {
    const auto view = find(name);
    return {view->name, view->rate > 0, view->parameter.detach(), gradient_of(*view)};
  };
  for (const auto& view : views) {
    const auto name = without_weight(view.name);
    if (find(name + std::string(name_of_a)) == views.end()) continue;
    auto weight_oi = as_matrix(view.parameter.detach());
    adapters_.push_back({.name = view.name,
                         .weight_oi = weight_oi,
                         .gradient_oi = gradient_of(view),
                         .base_oi = weight_oi.clone(),
                         .a = factor_of(name + std::string(name_of_a)),
                         .b = factor_of(name + std::string(name_of_b))});
    // Its rate is 0, so that the optimiser leaves it as it is; the factors need its gradient.
    torch::Tensor(view.parameter).set_requires_grad(adapters_.back().a.is_trained || adapters_.back().b.is_trained);
  }
}

template <class Use>
void Lora::for_each_part(std::int64_t parts, const Use& use) {
  const auto use_range = [&](std::int64_t begin, std::int64_t end) {
    const torch::NoGradGuard no_grad;
    for (auto i = begin; i < end; ++i) use(adapters_[static_cast<std::size_t>(i / parts)], i % parts);
  };
  const auto count = parts * std::ssize(adapters_);
  parameters_.values().is_cpu() ? at::parallel_for(0, count, 1, use_range) : use_range(0, count);
}

void Lora::take_base() {
  for_each_part(1, [](Adapter& adapter, std::int64_t) { adapter.base_oi.copy_(adapter.weight_oi); });
}

void Lora::merge() {
  for_each_part(1, [this](Adapter& adapter, std::int64_t) {
    at::addmm_out(adapter.weight_oi, adapter.base_oi, adapter.b.value, adapter.a.value, /*beta=*/1, scale_);
  });
}

void Lora::project_gradients() {
  const auto set = [this](Factor& factor, const torch::Tensor& left, const torch::Tensor& right) {
    if (factor.is_trained) at::addmm_out(factor.gradient, factor.gradient, left, right, /*beta=*/0, scale_);
  };
  for_each_part(2, [&](Adapter& adapter, std::int64_t part) {
    part == 0 ? set(adapter.a, adapter.b.value.t(), adapter.gradient_oi)
              : set(adapter.b, adapter.gradient_oi, adapter.a.value.t());
  });
  for_each_part(1, [](Adapter& adapter, std::int64_t) { adapter.gradient_oi.zero_(); });
}

NamedTensors Lora::state() const {
  NamedTensors state;
  for (const auto& adapter : adapters_) {
    state.emplace_back(std::string(base_prefix) + adapter.name, adapter.base_oi);
    for (const auto* factor : {&adapter.a, &adapter.b})
      state.emplace_back(std::string(factor_prefix) + factor->name, factor->value);
  }
  return state;
}

NamedTensors adapters_in(const NamedTensors& state) {
  NamedTensors factors;
  for (const auto& [name, tensor] : state)
    if (name.starts_with(factor_prefix)) factors.emplace_back(name.substr(factor_prefix.size()), tensor);
  return factors;
}

}  // namespace metaformer
