#include "train/optim/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

namespace {

// Progress of a decay, from 0 to 1: the rate has its peak until the step `first`, and its floor at the step `last`.
double progress_at(std::int64_t step, std::int64_t first, std::int64_t last) {
  const auto steps = std::max<std::int64_t>(1, last - first);
  return std::clamp(static_cast<double>(step - first) / static_cast<double>(steps), 0.0, 1.0);
}

using View = ParameterBuffer::View;

double factor_of(const View& view, const std::vector<NamedNumber>& factors) {
  const NamedNumber* found = nullptr;
  for (const auto& factor : factors) {
    if (!has_part(view.name, factor.name)) continue;
    if (found != nullptr)
      throw Error(ExitCode::usage,
                  fmt::format("train.rate_factors: {} and {} are both names of the parameter {}: leave one of them out",
                              in_quotes(found->name), in_quotes(factor.name), view.name));
    found = &factor;
  }
  return found == nullptr ? 1 : found->number;
}

}  // namespace

double scheduled_rate(const TrainConfig& config, std::int64_t width, std::int64_t step) {
  static_assert(std::variant_size_v<ScheduleConfig> == 6, "a formula for each schedule");
  const auto warmup = warmup_steps(config.schedule);
  if (!is<NoamScheduleConfig>(config.schedule) && step < warmup)
    return config.learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  const double peak = config.learning_rate;
  const auto above = [&](double floor, double height) { return floor + height * (peak - floor); };
  if (const auto* cosine = std::get_if<CosineScheduleConfig>(&config.schedule)) {
    const double progress = progress_at(step, warmup, config.steps);
    return above(cosine->floor, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
  }
  if (const auto* linear = std::get_if<LinearScheduleConfig>(&config.schedule))
    return above(linear->floor, 1 - progress_at(step, warmup, config.steps));
  if (const auto* trapezoid = std::get_if<TrapezoidScheduleConfig>(&config.schedule)) {
    const auto last = config.steps - 1, first = std::max(warmup, last - trapezoid->decay_steps);
    return above(trapezoid->floor, 1 - progress_at(step, first, last));
  }
  if (is<InverseSqrtScheduleConfig>(config.schedule))
    return peak * std::sqrt(static_cast<double>(warmup) / static_cast<double>(step));
  if (is<ConstantScheduleConfig>(config.schedule)) return peak;
  // Noam: steps count from 1, as in the paper.
  const double s = static_cast<double>(step + 1), scale = peak / std::sqrt(static_cast<double>(width));
  return scale * std::min(1 / std::sqrt(s), s / std::pow(static_cast<double>(warmup), 1.5));
}

void set_layer_rates(ParameterBuffer& parameters, const TrainConfig& config) {
  const auto& views = parameters.views();
  const bool has_adapters = config.lora.rank > 0;
  std::vector<std::string> names;
  for (const auto& view : views)
    if (view.is_trained || !has_adapters) names.push_back(view.name);
  const auto* what = has_adapters ? "trained parameter" : "parameter";
  for (const auto& name : config.freeze) require_named("train.freeze", name, names, name_by_beginning, what);
  std::vector<NamedNumber> factors;
  for (const auto& entry : config.rate_factors) {
    factors.push_back(parse_named_number(entry).value());  // check_config has checked it
    require_named("train.rate_factors", factors.back().name, names, name_by_part, what);
  }
  std::int64_t blocks = 0;
  for (const auto& view : views) blocks = std::max(blocks, block_number(view.name).value_or(-1) + 1);
  parameters.set_rates([&](const View& view) {
    const double factor = factor_of(view, factors);
    const auto freezes = [&](const std::string& name) { return is_below(view.name, name); };
    if (std::any_of(config.freeze.begin(), config.freeze.end(), freezes)) return 0.0;
    // Parameters that embed tokens and positions, before the first block.
    constexpr std::array<std::string_view, 3> inputs = {"embedding", "score_bias", "distance_biases"};
    const bool is_input = std::any_of(inputs.begin(), inputs.end(),
                                      [&](auto input) { return view.name.find(input) != std::string::npos; });
    const auto block = block_number(view.name);
    const auto distance = block ? blocks - *block : is_input ? blocks + 1 : 0;  // from the head
    return factor * std::pow(config.layer_rate_decay, static_cast<double>(distance));
  });
  if (!views.empty() && std::all_of(views.begin(), views.end(), [](const View& view) { return view.rate == 0; }))
    throw Error(ExitCode::usage, "train.freeze: all parameters are frozen, so that there is nothing to train");
}

}  // namespace metaformer
