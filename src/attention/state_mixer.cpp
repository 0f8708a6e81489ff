#include "attention/state_mixer.h"

#include <cmath>

#include "ops/attention.h"
#include "ops/functional.h"

namespace metaformer {

CarriedState::Window CarriedState::with_tokens_before(const torch::Tensor& x_bcd, std::int64_t count) {
  const auto b = x_bcd.size(0), d = x_bcd.size(2);
  const auto slot = slot_++, segment_slot = slot_++;
  if (state_ == nullptr) return {x_bcd, segment_bc_};
  auto before_bjd = state_->kept(slot, {b, count, d}), before_bj = state_->kept(segment_slot, {b, count});
  if (!before_bjd.defined()) before_bjd = torch::zeros({b, count, d}, x_bcd.options());
  Window window{.x_bed = torch::cat({before_bjd.to(x_bcd.scalar_type()), x_bcd}, 1)};
  const auto newest = [&](const torch::Tensor& x) { return x.narrow(1, x.size(1) - count, count).clone(); };
  state_->keep(slot, newest(window.x_bed));
  if (!segment_bc_.defined()) return window;
  if (!before_bj.defined()) before_bj = torch::full({b, count}, -1, segment_bc_.options());
  window.segment_be = torch::cat({before_bj, segment_bc_}, 1);
  state_->keep(segment_slot, newest(window.segment_be));
  return window;
}

torch::Tensor CarriedState::previous(const torch::Tensor& x_bcd) {
  auto first = torch::zeros(2, x_bcd.options().dtype(in_wide(x_bcd).scalar_type()));
  first.select(0, 0).fill_(1);  // on the device, without a copy from the host
  return convolve(x_bcd, {.filter_dj = first.expand({x_bcd.size(2), 2})});
}

torch::Tensor CarriedState::convolve(const torch::Tensor& x_bcd, const CausalConvolution& convolution) {
  const auto& filter_dj = convolution.filter_dj;
  if (!filter_dj.defined()) return convolution.silu ? torch::silu(x_bcd) : x_bcd;
  const auto window = with_tokens_before(x_bcd, filter_dj.size(1) - 1);
  return causal_convolution(convolution, window.x_bed, window.segment_be, x_bcd.size(1));
}

torch::Tensor CarriedState::places(const torch::Tensor& x_bcd) {
  const auto slot = slot_++;
  const auto b = x_bcd.size(0), c = x_bcd.size(1);
  auto place_c = torch::arange(c, torch::TensorOptions().dtype(torch::kLong).device(x_bcd.device()));
  if (state_ != nullptr) {
    const auto begun_b1 = state_->kept(slot, {b, 1});  // all sequences have read the same number of tokens
    if (begun_b1.defined()) place_c = place_c + begun_b1[0];
    state_->keep(slot, (place_c.narrow(0, c - 1, 1) + 1).expand({b, 1}).clone());
  }
  return place_c.to(torch::kDouble);
}

torch::Tensor CarriedState::mix(StateSteps steps) {
  const auto b = steps.k_bnck.size(0);
  const auto slot = slot_++, segment_slot = slot_++;
  steps.segment_bc = segment_bc_;
  StateMemory memory;
  if (state_ != nullptr) {
    memory.state_bnvk = state_->kept(slot, {b, steps.k_bnck.size(1), steps.value_bncv.size(3), steps.k_bnck.size(3)});
    if (const auto segment_b1 = state_->kept(segment_slot, {b, 1}); segment_b1.defined())
      memory.segment_b = segment_b1.squeeze(1);
  }
  const auto o_bncv = mix_states(steps, memory);
  if (state_ != nullptr) {
    state_->keep(slot, memory.state_bnvk);
    if (memory.segment_b.defined()) state_->keep(segment_slot, memory.segment_b.unsqueeze(1));
  }
  return o_bncv;
}

torch::Tensor add_filter(Layer& owner, const std::string& name, std::int64_t features, std::int64_t size) {
  if (size == 0) return {};
  return owner.add_parameter(
      name, {features, size},
      {.init = Init::uniform(1 / std::sqrt(static_cast<double>(size))), .decay = Decay::matrices});
}

torch::Tensor ResidualConvolutionImpl::forward(const torch::Tensor& x_bed, const Visibility& visibility,
                                               MixerState* state) {
  constexpr std::size_t slot_behind_mixers = 14;
  // With a state x is the newest tokens, otherwise all tokens that are seen.
  const auto& segment_be = state != nullptr ? visibility.query_segment_bc : visibility.key_segment_be;
  CarriedState carried(segment_be, state, slot_behind_mixers);
  auto y_bed = x_bed + carried.convolve(x_bed, {.filter_dj = filter_dj_});
  if (visibility.causal) return y_bed;
  CarriedState backwards(segment_be.defined() ? segment_be.flip(1) : segment_be, nullptr);
  return y_bed + backwards.convolve(x_bed.flip(1), {.filter_dj = filter_dj_}).flip(1);
}

StateMixer::StateMixer(const StateMixerOptions& options, const MixerShape& shape, std::int64_t values,
                       std::int64_t state, bool delta_rule)
    : direction_(options.direction),
      shape_(shape),
      products_(static_cast<double>(state) * (delta_rule ? 4 : 2)),
      output_(register_module("output", Linear(values, shape.width, shape.bias, Init::normal(shape.output_std)))) {}

torch::Tensor StateMixer::forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                                  const Visibility& visibility, MixerState* state, Pass& pass) {
  TORCH_CHECK(context_bed.is_same(x_bcd), "a mixer with a state mixes a sequence with itself");
  const auto& segment_bc = visibility.query_segment_bc;
  CarriedState carried(segment_bc, state);
  auto y_bcv = read(x_bcd, carried, 0, pass);
  if (!visibility.causal && direction_ == StateDirection::both) {
    CarriedState backwards(segment_bc.defined() ? segment_bc.flip(1) : segment_bc, nullptr);
    y_bcv = y_bcv + read(x_bcd.flip(1), backwards, 1, pass).flip(1);
  }
  return without_padding(output_(y_bcv), visibility);
}

// Counts the recurrence, whichever implementation computes it. Everything but the output projection is computed once
// for each direction.
MixerCost StateMixer::cost(const MixerLoad& load) const {
  double weights = 0;
  std::int64_t activations = 0;
  for (const auto& parameter : parameters()) {
    if (parameter.dim() != 2) continue;
    weights += static_cast<double>(parameter.numel());
    activations += 2 * parameter.size(0);
  }
  const bool reads_twice = !load.causal && direction_ == StateDirection::both;
  const auto of_output = static_cast<double>(output_->weight().numel());
  const double of_reading = weights - of_output + products_;
  return {.operations = 2 * load.tokens * (of_output + (reads_twice ? 2 : 1) * of_reading),
          .activations = (reads_twice ? 2 : 1) * activations + shape_.heads * tokens_of_chunk(load.context)};
}

torch::Tensor with_length(double length, const torch::Tensor& x_bnck) {
  const auto wide = in_wide(x_bnck);
  const auto k = static_cast<double>(wide.size(3));
  const auto gain_k = torch::full(wide.size(3), length / std::sqrt(k), wide.options());
  return rms_norm(wide.transpose(1, 2), gain_k, /*epsilon=*/1e-6 / k).transpose(1, 2);
}

torch::Tensor in_wide(const torch::Tensor& x) { return x.to(torch::promote_types(x.scalar_type(), torch::kFloat)); }

}  // namespace metaformer
