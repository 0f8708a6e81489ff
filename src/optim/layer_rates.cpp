#include "optim/layer_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "model/parameter_names.h"

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

}  // namespace

void set_layer_rates(ParameterBuffer& parameters, const TrainConfig& config) {
  const auto& views = parameters.views();
  require_known(views, config.freeze);
  const auto blocks = count_blocks(views);
  parameters.set_rates([&](const View& view) {
    const auto freezes = [&](const std::string& name) { return is_below(view.name, name); };
    if (std::any_of(config.freeze.begin(), config.freeze.end(), freezes)) return 0.0;
    return std::pow(config.layer_rate_decay, static_cast<double>(distance_from_head(view.name, blocks)));
  });
  if (!views.empty() && std::all_of(views.begin(), views.end(), [](const View& view) { return view.rate == 0; }))
    throw Error(ExitCode::usage, "train.freeze: all parameters are frozen, so that there is nothing to train");
}

}  // namespace metaformer
