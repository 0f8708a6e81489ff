#include "bench/fast_paths.h"

#include <fmt/format.h>

#include "attention/score_options.h"
#include "model/block.h"
#include "ops/host_attention_kernel.h"

namespace metaformer {

namespace {

std::string attention_obstacle(const TransformerConfig& config) {
  const auto& mixer = config.mixer;
  if (!mixer->has_scores()) return fmt::format("the mixer {} does not attend to all pairs", kind_of(mixer));
  const auto keys = config.context + config.memory;
  if (keys > longest_host_attention)
    return fmt::format("{} above {}", config.memory > 0 ? "model.context and model.memory are" : "model.context is",
                       longest_host_attention);
  const MixerLoad load{.context = keys};
  if (!mixer->cost(config.mixer_shape(), load).keeps_pairs) return "";
  if (AttentionCost::need_pairs(config.positions, keys))
    return fmt::format("model.positions is {}", kind_of(config.positions));
  return "model.mixer has only the reference backend";
}

std::string mixer_output_obstacle(const TransformerConfig& config) {
  if (config.mixer->cost(config.mixer_shape(), {}).parameters == 0)
    return fmt::format("the mixer {} has no output projection", kind_of(config.mixer));
  return std::string(branch_obstacle(config));
}

std::string obstacle_of_run(const ExperimentConfig& config, torch::Device device) {
  if (!device.is_cpu()) return "the device is not a CPU";
  return config.train.precision == Precision::fp16 ? "train.precision is fp16" : "";
}

// In float32 whatever the precision is.
FastPath recurrence(const RecurrentConfig& config, torch::Device device) {
  FastPath path{.part = "recurrence", .why_not = ""};
  if (config.cell == RecurrentCell::gru) path.why_not = "LibTorch has oneDNN compute LSTMs only";
  if (!device.is_cpu()) path.why_not = "the device is not a CPU";
  return path;
}

}  // namespace

std::vector<FastPath> fast_paths(const ExperimentConfig& config, torch::Device device) {
  if (const auto* options = recurrent(config.model)) return {recurrence(*options, device)};
  const auto* transformer = blocks_of(config.model);
  if (transformer == nullptr) return {};
  const auto& model = *transformer;
  const auto of_run = obstacle_of_run(config, device);
  const auto why_not = [&](std::string of_part) { return of_run.empty() ? std::move(of_part) : of_run; };
  return {{.part = "attention", .why_not = why_not(attention_obstacle(model))},
          {.part = "mixer_output", .why_not = why_not(mixer_output_obstacle(model))},
          {.part = "feed_forward", .why_not = why_not(std::string(feed_forward_obstacle(model)))}};
}

}  // namespace metaformer
