#include "bench/step_bench.h"

#include <fmt/format.h>

#include <cmath>

#include "attention/score_attention.h"
#include "base/signals.h"
#include "bench/timing.h"
#include "config/mixer_config.h"
#include "cpu/attention.h"
#include "distributed/process_group.h"
#include "model/model_costs.h"
#include "ops/device.h"
#include "train/optim/learning_rate.h"
#include "train/step.h"

namespace metaformer {

namespace {

std::string attention_obstacle(const TransformerConfig& config, const MixerConfig& mixer) {
  if (!has_scores(mixer)) return fmt::format("the mixer {} does not attend to all pairs", kind_of(mixer));
  const auto keys = config.context + config.memory;
  if (keys > longest_host_attention)
    return fmt::format("{} above {}", config.memory > 0 ? "model.context and model.memory are" : "model.context is",
                       longest_host_attention);
  const MixerLoad load{.context = keys};
  if (!cost_of(mixer, config.mixer_shape(), load).keeps_pairs) return "";
  if (need_pairs(config.positions, keys)) return fmt::format("model.positions is {}", kind_of(config.positions));
  const auto* dot = std::get_if<ScaledDotProductOptions>(&mixer);
  if (dot != nullptr && dot->weights == AttentionWeights::sigmoid) return "model.mixer.weights is sigmoid";
  return "model.mixer has only the reference backend";
}

// The fastest of several products of large square matrices: the machine's peak.
double peak_product_gflops(torch::Device device, Precision precision) {
  const torch::NoGradGuard no_grad;
  const std::int64_t n = device.is_cpu() ? 1024 : 8192;
  const auto type = precision == Precision::bf16   ? torch::kBFloat16
                    : precision == Precision::fp16 ? torch::kHalf
                                                   : torch::kFloat;
  const auto a = torch::ones({n, n}, torch::TensorOptions().dtype(type).device(device));
  double best = 0;
  for (int round = 0; round < 8; ++round) {
    throw_if_stopped();
    const double ms = milliseconds_of(device, [&] { torch::mm(a, a); });
    best = std::max(best, 2.0 * static_cast<double>(n * n * n) / ms * 1e-6);
  }
  return best;
}

}  // namespace

std::vector<FastPath> fast_paths(const ExperimentConfig& config, torch::Device device) {
  std::string why_not = device.is_cpu() ? "" : "the device is not a CPU";
  if (const auto* options = recurrent(config.model)) {  // in float32 for every precision
    if (why_not.empty() && options->cell == RecurrentCell::gru) why_not = "LibTorch has oneDNN compute LSTMs only";
    return {{.part = "recurrence", .why_not = why_not}};
  }
  const auto* transformer = blocks_of(config.model);
  if (transformer == nullptr) return {};
  if (why_not.empty() && config.train.precision == Precision::fp16) why_not = "train.precision is fp16";
  for (const auto& [mixer, blocks] : transformer->blocks_by_mixer())
    if (why_not.empty()) why_not = attention_obstacle(*transformer, *mixer);
  return {{.part = "attention", .why_not = why_not}};
}

StepBenchResult bench_step(const ExperimentConfig& config, const Task& task, torch::Device device,
                           const StepBenchRequest& request, ProcessGroup& group) {
  require_equal_pieces(config, group.size());
  Step step(config, task, device, group);
  torch::Tensor loss;
  std::int64_t done = 0;
  const auto run = [&](std::int64_t steps) {
    for (const auto end = done + steps; done < end; ++done) {
      throw_if_any_stopped(group);
      const auto& train = step.config().train;
      loss = step.run(done, scheduled_rate(train, width_of(config.model), done % train.steps)).loss;
      step.average->update(done + 1);
    }
  };
  const auto median_of_rounds = [&](const auto& work) {
    std::vector<double> times;
    for (std::int64_t round = 0; round < request.rounds; ++round) times.push_back(work());
    return median(times);
  };
  run(request.warmup);
  const auto steps = static_cast<double>(request.steps);
  StepBenchResult result{.fast_paths = fast_paths(config, device)};
  result.ms_per_step = median_of_rounds([&] { return milliseconds_of(device, [&] { run(request.steps); }) / steps; });
  result.loss = loss.item<double>();
  result.peak_memory_bytes = peak_memory_bytes(device);
  const auto& gradients = step.parameters->gradients();
  result.gradient_bytes = static_cast<std::int64_t>(gradients.nbytes());
  const auto all_reduce_ms = [&] {
    const auto zeros = torch::zeros_like(gradients);
    wait_for_all(group);
    return milliseconds_of(device, [&] { group.sum(zeros); });
  };
  if (group.size() > 1) {
    all_reduce_ms();  // the first sum also connects the processes
    result.all_reduce_ms = median_of_rounds(all_reduce_ms);
  }
  StepTimes phases;
  step.time_phases(&phases);
  run(request.steps);
  step.time_phases(nullptr);
  for (std::size_t i = 0; phases.total() > 0 && i < phases.seconds.size(); ++i)
    result.phases.emplace_back(enum_names(StepPhase{})[i], phases.seconds[i] * 1e3 / steps);
  const double tokens = task.batches->tokens_per_step();
  result.tokens_per_second = tokens / result.ms_per_step * 1e3;
  constexpr double passes = 3;  // backward: twice forward
  result.operations = passes * tokens * costs_of(config, task.codec->tokenizer->vocabulary_size()).operations_per_token;
  result.gflops = result.operations / result.ms_per_step * 1e-6;
  result.peak_gflops = peak_product_gflops(device, config.train.precision);
  return result;
}

}  // namespace metaformer
