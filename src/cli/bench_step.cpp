#include <fmt/format.h>

#include "base/log.h"
#include "bench/step_bench.h"
#include "cli/command_line.h"
#include "cli/process_choice.h"
#include "config_reader/loader.h"
#include "ops/device.h"
#include "tasks/make_task.h"
#include "train/preparation.h"

namespace metaformer {

namespace {

struct StepArguments {
  ConfigChoice choice;
  std::string device = "auto";
  StepBenchRequest request;
  ProcessChoice processes;
  bool offline = false, json = false;
};

nlohmann::ordered_json to_json(const StepBenchResult& result) {
  nlohmann::ordered_json json = {{"ms_per_step", result.ms_per_step}};
  for (const auto& [phase, ms] : result.phases) json["phases"][phase] = ms;
  json["tokens_per_second"] = result.tokens_per_second;
  json["operations_per_step"] = result.operations;
  json["gflops"] = result.gflops;
  json["product_peak_gflops"] = result.peak_gflops;
  json["share_of_peak"] = result.gflops / result.peak_gflops;
  json["gradient_bytes"] = result.gradient_bytes;
  if (result.all_reduce_ms > 0) json["all_reduce_ms"] = result.all_reduce_ms;
  json["peak_memory_bytes"] = result.peak_memory_bytes;
  json["loss"] = result.loss;
  for (const auto& [part, why_not] : result.fast_paths) {
    auto& path = json["fast_paths"][part] = {{"taken", why_not.empty()}};
    if (!why_not.empty()) path["why_not"] = why_not;
  }
  return json;
}

void print_table(const StepBenchResult& result) {
  print(fmt::format("{:.2f} ms a step, {} tokens/s, loss {:.4f} after the last\n", result.ms_per_step,
                    human_count(result.tokens_per_second), result.loss));
  for (const auto& [phase, ms] : result.phases)
    print(fmt::format("  {:<9} {:>8.2f} ms  {:>3.0f}%\n", phase, ms, 100 * ms / result.ms_per_step));
  print(fmt::format("{:.0f} GFLOP/s of matrix products, {:.0f}% of the {:.0f} GFLOP/s of one large product\n",
                    result.gflops, 100 * result.gflops / result.peak_gflops, result.peak_gflops));
  if (result.all_reduce_ms > 0)
    print(fmt::format("sum of {} of gradients over all processes, by itself: {:.2f} ms\n",
                      human_bytes(static_cast<std::uint64_t>(result.gradient_bytes)), result.all_reduce_ms));
  for (const auto& [part, why_not] : result.fast_paths)
    print(fmt::format("fast path of {}: {}\n", part,
                      why_not.empty() ? "taken" : fmt::format("not taken, since {}", why_not)));
  print(fmt::format("peak memory of the process {}\n",
                    human_bytes(static_cast<std::uint64_t>(result.peak_memory_bytes))));
}

void run_step(const StepArguments& arguments, const Experiment& experiment, ProcessGroup& group) {
  const auto device = prepare_device(experiment.config, device_for(group, arguments.device));
  const auto task = make_task(experiment.config, arguments.offline);
  const auto& request = arguments.request;
  const auto& train = experiment.config.train;
  log::info("{}: {}, {}{} thread{}, {}{}; median of {} rounds of {} steps after {} to warm up", experiment.name,
            device_description(device), group.size() == 1 ? "" : fmt::format("{} processes of ", group.size()),
            at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s", to_string(train.precision),
            device.is_cpu() && train.cpu_slices > 1 ? fmt::format(", {} slices", train.cpu_slices) : "", request.rounds,
            request.steps, request.warmup);
  const auto result = bench_step(experiment.config, task, device, request, group);
  if (!group.is_first()) return;
  if (!arguments.json) return print_table(result);
  nlohmann::ordered_json json = {{"config", experiment.name},
                                 {"device", device_description(device)},
                                 {"processes", group.size()},
                                 {"threads", at::get_num_threads()},
                                 {"precision", to_string(train.precision)},
                                 {"slices", device.is_cpu() ? train.cpu_slices : 1}};
  json.update(to_json(result));
  print_json(json);
}

}  // namespace

void add_bench_step_command(CLI::App& bench) {
  auto& command = *bench.add_subcommand("step", "measure the time of a config's training step by phase");
  auto arguments = std::make_shared<StepArguments>();
  const auto count = whole_number(1, std::int64_t{1} << 20);
  arguments->choice.add_to(command);
  command.add_option("--steps", arguments->request.steps, "steps in a round")->capture_default_str()->transform(count);
  command.add_option("--rounds", arguments->request.rounds, "timed rounds; the result is their median")
      ->capture_default_str()
      ->transform(count);
  command.add_option("--warmup", arguments->request.warmup, "steps before the first round")
      ->capture_default_str()
      ->transform(whole_number(0, std::int64_t{1} << 20));
  command.add_option("--device", arguments->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  arguments->processes.add_to(command);
  command.add_flag("--offline", arguments->offline, "never download a corpus");
  command.add_flag("--json", arguments->json, "one line of JSON on stdout");
  command.footer(
      "Trains while it measures, and saves nothing. scripts/bench_against_pytorch.sh compares with PyTorch.\n"
      "Examples:\n"
      "  metaformer bench step --config shakespeare_metric.yaml\n"
      "  metaformer bench step --config shakespeare_metric.yaml --set train.precision=bf16 --json\n"
      "  metaformer bench step --config shakespeare_metric.yaml --processes 2");
  command.callback([arguments] {
    const auto experiment = load_experiment(arguments->choice.config, arguments->choice.overrides);
    arguments->processes.run([&](ProcessGroup& group) { run_step(*arguments, experiment, group); });
  });
}

}  // namespace metaformer
