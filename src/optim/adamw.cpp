#include "optim/adamw.h"

#include "ops/named_tensors.h"

namespace metaformer {

AdamW::AdamW(ParameterBuffer& parameters, const AdamWConfig& config)
    : parameters_(parameters),
      config_(config),
      first_moment_(torch::zeros_like(parameters.values())),
      second_moment_(torch::zeros_like(parameters.values())),
      steps_(torch::zeros({}, parameters.values().options().dtype(torch::kFloat))) {}

template <class Rate>
void AdamW::update(std::int64_t first, std::int64_t count, double weight_decay, const Rate& learning_rate) {
  if (count == 0) return;
  constexpr double epsilon = 1e-8;
  const auto part = [&](const torch::Tensor& buffer) { return std::vector{buffer.narrow(0, first, count)}; };
  const auto values = part(parameters_.values()), gradients = part(parameters_.gradients());
  const auto first_moment = part(first_moment_), second_moment = part(second_moment_);
  at::_fused_adamw_(values, gradients, first_moment, second_moment, {}, std::vector{steps_}, learning_rate,
                    config_.betas[0], config_.betas[1], weight_decay, epsilon, /*amsgrad=*/false, /*maximize=*/false);
}

template <class Rate>
void AdamW::update_all(const Rate& learning_rate) {
  const torch::NoGradGuard no_grad;
  steps_.add_(1);
  const double of_embeddings = config_.embedding_weight_decay.value_or(config_.weight_decay);
  const auto embeddings = of_embeddings == config_.weight_decay ? 0 : parameters_.embeddings();
  const auto decayed = parameters_.decayed(), all = parameters_.values().numel();
  update(0, embeddings, of_embeddings, learning_rate);
  update(embeddings, decayed - embeddings, config_.weight_decay, learning_rate);
  update(decayed, all - decayed, 0, learning_rate);
}

void AdamW::step(double learning_rate) { update_all(learning_rate); }
void AdamW::step(const torch::Tensor& learning_rate) { update_all(learning_rate); }

void AdamW::reset() {
  const torch::NoGradGuard no_grad;
  for (auto* state : {&first_moment_, &second_moment_, &steps_}) state->zero_();
}

std::string AdamW::first_not_finite() const {
  for (const auto& moment : {first_moment_, second_moment_})
    if (const auto* view = parameters_.first_not_finite(moment)) return view->name;
  return "";
}

NamedTensors AdamW::state() const {
  NamedTensors state;
  for (const auto& view : parameters_.views()) {
    state.emplace_back("first_moment." + view.name, ParameterBuffer::part(first_moment_, view));
    state.emplace_back("second_moment." + view.name, ParameterBuffer::part(second_moment_, view));
  }
  state.emplace_back("steps", steps_);
  return state;
}

// state() gives views of the buffers, so copying into it loads them.
void AdamW::load_state(const NamedTensors& saved, const std::string& source) { copy_by_name(saved, state(), source); }

}  // namespace metaformer
