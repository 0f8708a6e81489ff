#include <algorithm>

#include "base/log.h"
#include "bench/attention_bench.h"
#include "bench/kernel_bench.h"
#include "bench/step_bench.h"
#include "cli/command_line.h"
#include "ops/device.h"
#include "ops/fused_metric.h"
#include "ops/library_metric.h"
#include "tasks/make_task.h"
#include "train/run.h"

namespace metaformer {

enum class BenchBackend { composed, reference, fused, library, fused_short };
constexpr std::array<std::string_view, 5> enum_names(BenchBackend) {
  return {"composed", "reference", "fused", "library", "fused_short"};
}

// Kinds of positions that change a layer's scores.
enum class LayerPositions { none, rotary, alibi, t5, shaw, transformer_xl };
constexpr std::array<std::string_view, 6> enum_names(LayerPositions) {
  return {"none", "rotary", "alibi", "t5", "shaw", "transformer_xl"};
}

enum class KernelPrecision { fp32, bf16 };
constexpr std::array<std::string_view, 2> enum_names(KernelPrecision) { return {"fp32", "bf16"}; }

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t most = 1 << 20;

void add_count(CLI::App& command, const std::string& name, std::int64_t& value, const std::string& help) {
  add_whole_number(command, name, value, 1, most, help);
}

void add_shape(CLI::App& command, AttentionShape& shape) {
  add_count(command, "--batch", shape.batch, "sequences");
  add_count(command, "--heads", shape.heads, "heads");
  add_count(command, "--head-width", shape.head_width, "width of a head");
}

std::string threads_of_process() {
  return fmt::format("{} thread{}", at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s");
}

std::string bytes_text(std::int64_t bytes) { return human_bytes(static_cast<std::uint64_t>(bytes)); }

struct AttentionArguments {
  AttentionRequest request;
  AttentionShape shape;
  std::vector<std::int64_t> contexts = {256};
  std::vector<std::string> mixers, backends;
  Precision precision = Precision::fp32;
  LayerPositions positions = LayerPositions::none;
  std::string device = "auto";
  bool all_pairs = false, own_values = false, json = false;
};

MixerConfig parse_mixer(const std::string& name) {
  if (auto made = make_kind<MixerConfig>(name)) return *made;
  const auto kinds = kinds_of<MixerConfig>();
  fail_usage("--mixer {}: expected {}{}", name, join_alternatives(kinds), did_you_mean(name, kinds));
}

// The positions to measure; each layer has its own parameters of them.
PositionsConfig positions_of(const AttentionArguments& arguments) {
  const auto name = to_string(arguments.positions);
  const auto& request = arguments.request;
  if (arguments.positions != LayerPositions::none && (request.core || request.pair_table))
    fail_usage("--positions {} is measured in layers: leave out {}", name, request.core ? "--core" : "--pair-table");
  auto positions = *make_kind<PositionsConfig>(name);
  if (auto* relative = std::get_if<TransformerXlPositionsConfig>(&positions)) relative->shared_biases = false;
  return positions;
}

bool has_backend(const MixerConfig& mixer, Backend backend) {
  const auto known = backends_of(mixer);
  return std::ranges::find(known, backend) != known.end();
}

// The mixer with its own values, if it can have them.
MixerConfig with_own_values(MixerConfig mixer) {
  const auto set = []<class Options>(Options& options) {
    if constexpr (requires { options.values; }) options.values = MixerValues::own;
  };
  std::visit(set, mixer);
  return mixer;
}

// Whether the device has the kernels for such heads.
bool has_kernels(const AttentionRequest& request, bool own_values) {
  const auto options = torch::TensorOptions().dtype(request.type).device(request.device);
  const auto probe_bnck = torch::empty({1, 1, 1, request.shapes.front().head_width}, options);
  return fused_metric_obstacle({probe_bnck, probe_bnck, own_values ? probe_bnck : torch::Tensor()}, {}).empty();
}

// The backends that exist on the device.
std::vector<std::string> default_backends(const AttentionRequest& request, bool own_values) {
  std::vector<std::string> backends = {"composed", "reference"};
  if (has_kernels(request, own_values)) backends.emplace_back("fused");
  if (request.core) backends.emplace_back("library");
  return backends;
}

void add_mixers(AttentionRequest& request, const std::vector<std::string>& mixers,
                const std::vector<std::string>& backends, bool own_values) {
  for (const auto& name : mixers) {
    for (const auto& backend : backends) {
      const auto mixer = own_values ? with_own_values(parse_mixer(name)) : parse_mixer(name);
      const auto chosen_for_bench = choose<BenchBackend>("--backend", backend);
      if (chosen_for_bench == BenchBackend::library) {
        if (!request.core) fail_usage("--backend library has no projections: it needs --core");
        request.library = request.library || name == ScaledDotProductOptions::kind;
        const bool around_library =
            has_kernels(request, own_values) && library_metric_obstacle(request.type, request.device).empty();
        if (around_library && has_backend(mixer, Backend::fused)) request.around_library.push_back(mixer);
      } else if (chosen_for_bench == BenchBackend::fused_short) {
        if (!request.core) fail_usage("--backend fused_short has no projections: it needs --core");
        if (has_kernels(request, own_values) && has_backend(mixer, Backend::fused))
          request.short_backward.push_back(mixer);
      } else if (const auto chosen = choose<Backend>("--backend", backend); has_backend(mixer, chosen)) {
        request.mixers.push_back(with_backend(mixer, chosen));
      }
    }
  }
  if (!request.mixers.empty() || request.library || !request.around_library.empty() ||
      !request.short_backward.empty() || request.pair_table)
    return;
  auto kinds = kinds_of<MixerConfig>();
  std::erase_if(kinds, [](const auto& kind) { return !has_backend(parse_mixer(kind), Backend::fused); });
  fail_usage(
      "none of these mixers has one of these backends; only {0} have fused and fused_short; {1} has library, and so "
      "have {0} in "
      "bf16 and fp16 on a GPU",
      fmt::join(kinds, " and "), ScaledDotProductOptions::kind);
}

AttentionRequest request_of(const AttentionArguments& arguments) {
  auto request = arguments.request;
  request.device = select_device(arguments.device);
  const auto precision = arguments.precision;
  request.type = precision == Precision::bf16   ? torch::kBFloat16
                 : precision == Precision::fp16 ? torch::kHalf
                                                : torch::kFloat;
  request.tf32 = precision == Precision::tf32;
  request.causal = !arguments.all_pairs;
  for (const auto context : arguments.contexts) {
    auto shape = arguments.shape;
    shape.context = context;
    shape.positions = positions_of(arguments);
    request.shapes.push_back(shape);
  }
  add_mixers(request, arguments.mixers.empty() ? kinds_of<MixerConfig>() : arguments.mixers,
             arguments.backends.empty() ? default_backends(request, arguments.own_values) : arguments.backends,
             arguments.own_values);
  return request;
}

Json to_json(const AttentionResult& result) {
  Json json = {{"mixer", result.mixer},           {"backend", result.backend},
               {"batch", result.shape.batch},     {"heads", result.shape.heads},
               {"context", result.shape.context}, {"head_width", result.shape.head_width}};
  if (!result.skipped.empty())
    json.update({{"skipped", result.skipped}, {"predicted_bytes", result.predicted_bytes}});
  else
    json.update({{"ms", result.ms},
                 {"timed_by", to_string(result.timed_by)},
                 {"teraflops", result.teraflops},
                 {"peak_bytes", result.peak_bytes},
                 {"kept_bytes", result.kept_bytes},
                 {"error", result.error ? Json(*result.error) : Json()}});
  return json;
}

void print_table(const std::vector<AttentionResult>& results) {
  print("{:<22} {:<24} {:>5} {:>5} {:>7} {:>5} {:>10} {:>9} {:>10} {:>10} {:>9}  {}\n", "mixer", "backend", "batch",
        "heads", "context", "k", "ms", "TFLOP/s", "peak", "kept", "error", "timed by");
  for (const auto& result : results) {
    const auto& shape = result.shape;
    print("{:<22} {:<24} {:>5} {:>5} {:>7} {:>5} ", result.mixer, result.backend, shape.batch, shape.heads,
          shape.context, shape.head_width);
    if (!result.skipped.empty()) {
      print("left out: {}{}\n", result.skipped, result.predicted_bytes > 0 ? " do not fit" : "");
      continue;
    }
    print("{:>10.3f} {:>9} {:>10} {:>10} {:>9}  {}\n", result.ms,
          result.teraflops > 0 ? fmt::format("{:.3f}", result.teraflops) : "-", bytes_text(result.peak_bytes),
          bytes_text(result.kept_bytes), result.error ? fmt::format("{:.1e}", *result.error) : "-",
          to_string(result.timed_by));
  }
}

void run_attention(const AttentionArguments& arguments) {
  const auto request = request_of(arguments);
  log::info("{}, {}, {}, {}; {}, medians of {} interleaved rounds", device_description(request.device),
            threads_of_process(), to_string(arguments.precision),
            request.direction == Direction::both ? "forward and backward" : to_string(request.direction),
            request.core ? "without projections" : "a layer with its projections", request.rounds);
  const auto results = bench_attention(request, [](const std::string& done) { log::info("{}", done); });
  if (!arguments.json) return print_table(results);
  auto list = Json::array();
  for (const auto& result : results) list.push_back(to_json(result));
  print_json({{"device", device_description(request.device)},
              {"threads", at::get_num_threads()},
              {"precision", to_string(arguments.precision)},
              {"direction", to_string(request.direction)},
              {"core", request.core},
              {"positions", to_string(arguments.positions)},
              {"causal", request.causal},
              {"rounds", request.rounds},
              {"results", list}});
}

// Adds the options of the measurement, except rounds and device.
void add_request_options(CLI::App& command, AttentionArguments& arguments) {
  add_repeatable(command, "--mixer", arguments.mixers, fmt::format("{}", fmt::join(kinds_of<MixerConfig>(), "|")),
                 "mixer to measure; default: all");
  add_repeatable(command, "--backend", arguments.backends, fmt::format("{}", fmt::join(names_of<BenchBackend>(), "|")),
                 "backend to measure; library, with --core: each backend of LibTorch's attention, or for metric and "
                 "quadratic LibTorch's attention with kernels around it; fused_short, with --core: fused with its "
                 "backward pass for short contexts; default: all that the device has, without fused_short");
  command.add_flag("--core", arguments.request.core,
                   "measure without projections: attention from queries, keys and values, or from p and its form");
  add_shape(command, arguments.shape);
  add_whole_number(command, "--context", arguments.contexts, 1, most,
                   "tokens in a sequence; several values are measured one after another");
  add_choice(command, "--positions", arguments.positions, "positions that act on scores, in layers with projections");
  add_choice(command, "--precision", arguments.precision,
             "precision of the inputs; tf32: fp32 whose products may be tf32 on a GPU");
  add_choice(command, "--direction", arguments.request.direction,
             "passes to measure; backward: both passes minus the forward pass of training, in each round");
  command.add_flag("--own-values", arguments.own_values, "separate values for metric and quadratic attention");
  command.add_flag("--all-pairs", arguments.all_pairs, "let every token see every token: no causal mask");
  command.add_flag("--pair-table", arguments.request.pair_table, "measure the published metric algorithm too");
}

void add_bench_attention_command(CLI::App& bench) {
  auto& command = *bench.add_subcommand("attention", "measure time, memory and accuracy of mixers and backends");
  auto arguments = std::make_shared<AttentionArguments>();
  add_request_options(command, *arguments);
  add_count(command, "--rounds", arguments->request.rounds, "timed measurements of each combination");
  add_device(command, arguments->device);
  add_json(command, arguments->json);
  command.footer(
      "peak: memory beyond inputs and parameters. kept: memory that the forward pass keeps for the backward pass.\n"
      "error: relative error of the output against float64, for contexts up to 1024.\n"
      "timed by: replays of a recorded graph or calls between two events of the GPU, or the clock on the CPU.\n"
      "Examples:\n"
      "  metaformer bench attention --mixer metric --mixer scaled_dot_product\n"
      "  metaformer bench attention --mixer metric --context 256 512 1024 2048 4096 --batch 1 --rounds 3\n"
      "  metaformer bench attention --mixer scaled_dot_product --positions transformer_xl --context 512 4096\n"
      "  metaformer bench attention --core --precision bf16 --head-width 64 --context 512 2048\n"
      "  metaformer bench attention --mixer metric --pair-table --batch 1 --context 32 64 128 256 --json");
  command.callback([arguments] { run_attention(*arguments); });
}

struct KernelArguments {
  KernelRequest request;
  KernelPrecision precision = KernelPrecision::fp32;
  std::string device = "cpu";
  bool json = false;
};

void run_kernels(KernelArguments& arguments) {
  auto& request = arguments.request;
  request.device = select_device(arguments.device);
  request.type = arguments.precision == KernelPrecision::bf16 ? torch::kBFloat16 : torch::kFloat;
  log::info("{}, {}, {}; forward and backward, medians of {} rounds in turn", device_description(request.device),
            threads_of_process(), to_string(arguments.precision), request.rounds);
  const auto results = request.device.is_cuda() ? bench_step_kernels(request) : bench_kernels(request);
  if (arguments.json) {
    auto list = Json::array();
    for (const auto& result : results)
      list.push_back({{"kernel", result.kernel},
                      {"ms", result.ms},
                      {"library_ms", result.library_ms},
                      {"share_of_library_time", result.ratio}});
    return print_json({{"device", device_description(request.device)},
                       {"threads", at::get_num_threads()},
                       {"precision", to_string(arguments.precision)},
                       {"rounds", request.rounds},
                       {"results", list}});
  }
  print("{:<20} {:>10} {:>14} {:>8}\n", "kernel", "ms", "library's ms", "share");
  for (const auto& result : results)
    print("{:<20} {:>10.4f} {:>14.4f} {:>8.2f}\n", result.kernel, result.ms, result.library_ms, result.ratio);
}

void add_bench_kernels_command(CLI::App& bench) {
  auto& command = *bench.add_subcommand("kernels", "measure the program's kernels beside LibTorch's operators");
  auto arguments = std::make_shared<KernelArguments>();
  auto& shape = arguments->request.shape;
  shape = {.batch = 12, .heads = 4, .context = 64, .head_width = 32};  // nanoGPT's CPU recipe
  add_shape(command, shape);
  add_count(command, "--context", shape.context, "tokens in a sequence");
  add_count(command, "--rounds", arguments->request.rounds, "timed rounds; results are their medians");
  add_choice(command, "--precision", arguments->precision, "precision of inputs and products");
  add_device(command, arguments->device);
  add_json(command, arguments->json);
  command.footer(
      "share: fraction of the library's time, the median of the rounds; below 1 the program's kernel is faster.\n"
      "On a GPU: residual sums with the next norm, the loss, and the norm and update of all weights.\n"
      "Examples:\n"
      "  metaformer bench kernels\n"
      "  metaformer bench kernels --batch 8 --heads 6 --head-width 64 --context 256 --precision bf16");
  command.callback([arguments] { run_kernels(*arguments); });
}

struct StepArguments {
  ConfigChoice choice;
  std::string device = "auto";
  StepBenchRequest request;
  ProcessChoice processes;
  bool offline = false, json = false;
};

Json to_json(const StepBenchResult& result) {
  Json json = {{"ms_per_step", result.ms_per_step}};
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
  print("{:.2f} ms a step, {} tokens/s, loss {:.4f} after the last\n", result.ms_per_step,
        human_count(result.tokens_per_second), result.loss);
  for (const auto& [phase, ms] : result.phases)
    print("  {:<9} {:>8.2f} ms  {:>3.0f}%\n", phase, ms, 100 * ms / result.ms_per_step);
  print("{:.0f} GFLOP/s of matrix products, {:.0f}% of the {:.0f} GFLOP/s of one large product\n", result.gflops,
        100 * result.gflops / result.peak_gflops, result.peak_gflops);
  if (result.all_reduce_ms > 0)
    print("sum of {} of gradients over all processes, by itself: {:.2f} ms\n", bytes_text(result.gradient_bytes),
          result.all_reduce_ms);
  for (const auto& [part, why_not] : result.fast_paths)
    print("fast path of {}: {}\n", part, why_not.empty() ? "taken" : fmt::format("not taken, since {}", why_not));
  print("peak memory of the process {}\n", bytes_text(result.peak_memory_bytes));
}

void run_step(const StepArguments& arguments, const Experiment& experiment, ProcessGroup& group) {
  const auto device = prepare_device(experiment.config, device_for(group, arguments.device));
  const auto task = make_task(experiment.config, arguments.offline);
  const auto& request = arguments.request;
  const auto& train = experiment.config.train;
  log::info("{}: {}, {}{}, {}{}; median of {} rounds of {} steps after {} to warm up", experiment.name,
            device_description(device), group.size() == 1 ? "" : fmt::format("{} processes of ", group.size()),
            threads_of_process(), to_string(train.precision),
            device.is_cpu() && train.cpu_slices > 1 ? fmt::format(", {} slices", train.cpu_slices) : "", request.rounds,
            request.steps, request.warmup);
  const auto result = bench_step(experiment.config, task, device, request, group);
  if (!group.is_first()) return;
  if (!arguments.json) return print_table(result);
  Json json = {{"config", experiment.name},
               {"device", device_description(device)},
               {"processes", group.size()},
               {"threads", at::get_num_threads()},
               {"precision", to_string(train.precision)},
               {"slices", device.is_cpu() ? train.cpu_slices : 1}};
  json.update(to_json(result));
  print_json(json);
}

void add_bench_step_command(CLI::App& bench) {
  auto& command = *bench.add_subcommand("step", "measure the time of a config's training step by phase");
  auto arguments = std::make_shared<StepArguments>();
  auto& request = arguments->request;
  arguments->choice.add_to(command);
  add_count(command, "--steps", request.steps, "steps in a round");
  add_count(command, "--rounds", request.rounds, "timed rounds; the result is their median");
  add_whole_number(command, "--warmup", request.warmup, 0, most, "steps before the first round");
  add_device(command, arguments->device);
  arguments->processes.add_to(command);
  add_offline(command, arguments->offline);
  add_json(command, arguments->json);
  command.footer(
      "Trains while it measures, and saves nothing. scripts/bench_against_pytorch.sh compares with PyTorch.\n"
      "Examples:\n"
      "  metaformer bench step --config shakespeare_metric.yaml\n"
      "  metaformer bench step --config shakespeare_metric.yaml --set train.precision=bf16 --json\n"
      "  metaformer bench step --config shakespeare_metric.yaml --processes 2");
  command.callback([arguments] {
    const auto experiment = arguments->choice.load();
    arguments->processes.run([&](ProcessGroup& group) { run_step(*arguments, experiment, group); });
  });
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto& bench = *app.add_subcommand("bench", "measure speed, memory and accuracy");
  bench.require_subcommand(1);
  add_bench_step_command(bench);
  add_bench_attention_command(bench);
  add_bench_kernels_command(bench);
  bench.footer(
      "Examples:\n"
      "  metaformer bench step --config shakespeare_metric.yaml\n"
      "  metaformer bench attention --mixer metric --mixer scaled_dot_product");
}

}  // namespace metaformer
