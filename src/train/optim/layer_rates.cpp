#include "train/optim/layer_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "config/train_config.h"
#include "model/parameters.h"

namespace metaformer {

namespace {

using View = ParameterBuffer::View;

// What tokens and positions become before the first block.
bool is_input(std::string_view name) {
  constexpr std::array<std::string_view, 3> parts = {"embedding", "score_bias", "distance_biases"};
  return std::any_of(parts.begin(), parts.end(), [&](auto part) { return name.find(part) != std::string_view::npos; });
}

std::int64_t distance_from_head(std::string_view name, std::int64_t blocks) {
  if (const auto block = block_number(name)) return blocks - *block;
  return is_input(name) ? blocks + 1 : 0;
}

std::int64_t count_blocks(const std::vector<View>& views) {
  std::int64_t count = 0;
  for (const auto& view : views) count = std::max(count, block_number(view.name).value_or(-1) + 1);
  return count;
}

bool names_any(const std::vector<View>& views, const std::string& beginning) {
  return std::any_of(views.begin(), views.end(), [&](const View& view) { return is_below(view.name, beginning); });
}

// What a name in train.freeze can be, in the order of the parameters: "transformer.blocks.0", "head".
std::vector<std::string> frozen_candidates(const std::vector<View>& views) {
  std::vector<std::string> names;
  for (const auto& view : views) {
    const auto blocks = view.name.find("blocks.");
    const auto end = blocks == std::string::npos ? view.name.rfind('.') : view.name.find('.', blocks + 7);
    auto name = view.name.substr(0, end);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

void require_known(const std::vector<View>& views, const std::vector<std::string>& frozen) {
  for (const auto& name : frozen)
    if (!names_any(views, name)) {
      const auto candidates = frozen_candidates(views);
      throw Error(ExitCode::usage,
                  fmt::format("train.freeze: {}: no parameter has this name or begins with it; there are "
                              "{}{}",
                              in_quotes(name), fmt::join(candidates, ", "), did_you_mean(name, candidates)));
    }
}

// What a name in train.rate_factors can be, in the order of the parameters: "transformer.token_embedding",
// "mixer.projection" of every block.
std::vector<std::string> factor_candidates(const std::vector<View>& views) {
  std::vector<std::string> names;
  for (const auto& view : views) {
    auto name = view.name;
    if (const auto blocks = name.find("blocks."); blocks != std::string::npos)
      name = name.substr(name.find('.', blocks + 7) + 1);
    if (name.ends_with(".weight") || name.ends_with(".bias")) name.resize(name.rfind('.'));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

std::vector<RateFactor> rate_factors(const std::vector<View>& views, const TrainConfig& config) {
  std::vector<RateFactor> factors;
  for (const auto& entry : config.rate_factors) {
    factors.push_back(parse_rate_factor(entry).value());  // as the config's check has made sure
    const auto& name = factors.back().name;
    if (std::any_of(views.begin(), views.end(), [&](const View& view) { return has_part(view.name, name); })) continue;
    const auto candidates = factor_candidates(views);
    throw Error(ExitCode::usage,
                fmt::format("train.rate_factors: {}: no parameter has this name or part of a name; there are {}{}",
                            in_quotes(name), fmt::join(candidates, ", "), did_you_mean(name, candidates)));
  }
  return factors;
}

double factor_of(const View& view, const std::vector<RateFactor>& factors) {
  const RateFactor* found = nullptr;
  for (const auto& factor : factors) {
    if (!has_part(view.name, factor.name)) continue;
    if (found != nullptr)
      throw Error(ExitCode::usage,
                  fmt::format("train.rate_factors: {} and {} are both names of the parameter {}: leave one of them out",
                              in_quotes(found->name), in_quotes(factor.name), view.name));
    found = &factor;
  }
  return found == nullptr ? 1 : found->factor;
}

}  // namespace

void set_layer_rates(ParameterBuffer& parameters, const TrainConfig& config) {
  const auto& views = parameters.views();
  require_known(views, config.freeze);
  const auto factors = rate_factors(views, config);
  const auto blocks = count_blocks(views);
  parameters.set_rates([&](const View& view) {
    const double factor = factor_of(view, factors);
    const auto freezes = [&](const std::string& name) { return is_below(view.name, name); };
    if (std::any_of(config.freeze.begin(), config.freeze.end(), freezes)) return 0.0;
    return factor * std::pow(config.layer_rate_decay, static_cast<double>(distance_from_head(view.name, blocks)));
  });
  if (!views.empty() && std::all_of(views.begin(), views.end(), [](const View& view) { return view.rate == 0; }))
    throw Error(ExitCode::usage, "train.freeze: all parameters are frozen, so that there is nothing to train");
}

}  // namespace metaformer
