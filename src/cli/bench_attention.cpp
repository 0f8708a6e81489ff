#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "bench/attention_bench.h"
#include "cli/command_line.h"
#include "ops/device.h"

namespace metaformer {

namespace {

struct AttentionArguments {
  AttentionShape shape;
  std::vector<std::int64_t> contexts = {256};
  std::vector<std::string> mixers, backends;
  std::string precision = "fp32", direction = "both", device = "auto";
  std::int64_t rounds = 5;
  bool all_pairs = false, pair_table = false, json = false;
};

torch::ScalarType parse_precision(const std::string& name) {
  return choose<torch::ScalarType>("--precision", name,
                                   {{"fp32", torch::kFloat}, {"bf16", torch::kBFloat16}, {"fp16", torch::kHalf}});
}

MixerConfig parse_mixer(const std::string& name) {
  if (auto made = make_kind<MixerConfig>(name)) return *made;
  const auto kinds = kinds_of<MixerConfig>();
  throw Error(ExitCode::usage,
              fmt::format("--mixer {}: expected {}{}", name, join_alternatives(kinds), did_you_mean(name, kinds)));
}

Backend parse_backend(const std::string& name) {
  return choose<Backend>(
      "--backend", name,
      {{"composed", Backend::composed}, {"reference", Backend::reference}, {"fused", Backend::fused}});
}

bool has_backend(const MixerConfig& mixer, Backend backend) {
  const auto known = mixer->backends();
  return std::find(known.begin(), known.end(), backend) != known.end();
}

std::vector<std::string> kinds_with(Backend backend) {
  std::vector<std::string> kinds;
  for (const auto& kind : kinds_of<MixerConfig>())
    if (has_backend(parse_mixer(kind), backend)) kinds.push_back(kind);
  return kinds;
}

AttentionRequest request_of(const AttentionArguments& arguments) {
  AttentionRequest request;
  request.device = select_device(arguments.device);
  request.type = parse_precision(arguments.precision);
  request.backward = choose<bool>("--direction", arguments.direction, {{"both", true}, {"forward", false}});
  request.causal = !arguments.all_pairs;
  request.rounds = arguments.rounds;
  request.pair_table = arguments.pair_table;
  for (const auto context : arguments.contexts) {
    auto shape = arguments.shape;
    shape.context = context;
    request.shapes.push_back(shape);
  }
  const auto mixers = arguments.mixers.empty() ? kinds_of<MixerConfig>() : arguments.mixers;
  const auto backends =
      arguments.backends.empty() ? std::vector<std::string>{"composed", "reference"} : arguments.backends;
  for (const auto& name : mixers) {
    for (const auto& backend : backends) {
      const auto mixer = parse_mixer(name);
      const auto chosen = parse_backend(backend);
      if (has_backend(mixer, chosen)) request.mixers.push_back(with_backend(mixer, chosen));
    }
  }
  if (request.mixers.empty() && !request.pair_table)
    throw Error(ExitCode::usage, fmt::format("none of these mixers has one of these backends; only {} have fused",
                                             fmt::join(kinds_with(Backend::fused), " and ")));
  return request;
}

nlohmann::ordered_json to_json(const AttentionResult& result) {
  nlohmann::ordered_json json = {{"mixer", result.mixer},           {"backend", result.backend},
                                 {"batch", result.shape.batch},     {"heads", result.shape.heads},
                                 {"context", result.shape.context}, {"head_width", result.shape.head_width}};
  if (!result.skipped.empty()) {
    json["skipped"] = result.skipped;
    json["predicted_bytes"] = result.predicted_bytes;
    return json;
  }
  json["ms"] = result.ms;
  json["teraflops"] = result.teraflops;
  json["peak_bytes"] = result.peak_bytes;
  json["kept_bytes"] = result.kept_bytes;
  json["error"] = result.error ? nlohmann::ordered_json(*result.error) : nlohmann::ordered_json(nullptr);
  return json;
}

void print_table(const std::vector<AttentionResult>& results) {
  print(fmt::format("{:<20} {:<10} {:>5} {:>5} {:>7} {:>5} {:>10} {:>9} {:>10} {:>10} {:>9}\n", "mixer", "backend",
                    "batch", "heads", "context", "k", "ms", "TFLOP/s", "peak", "kept", "error"));
  for (const auto& result : results) {
    const auto& shape = result.shape;
    print(fmt::format("{:<20} {:<10} {:>5} {:>5} {:>7} {:>5} ", result.mixer, result.backend, shape.batch, shape.heads,
                      shape.context, shape.head_width));
    if (!result.skipped.empty()) {
      print(fmt::format("left out: {} do not fit\n", result.skipped));
      continue;
    }
    print(fmt::format("{:>10.3f} {:>9} {:>10} {:>10} {:>9}\n", result.ms,
                      result.teraflops > 0 ? fmt::format("{:.3f}", result.teraflops) : "-",
                      human_bytes(static_cast<std::uint64_t>(result.peak_bytes)),
                      human_bytes(static_cast<std::uint64_t>(result.kept_bytes)),
                      result.error ? fmt::format("{:.1e}", *result.error) : "-"));
  }
}

void run_attention(const AttentionArguments& arguments) {
  const auto request = request_of(arguments);
  log::info("{}, {} thread{}, {}, {}; a layer with its projections, medians of {} interleaved rounds",
            device_description(request.device), at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s",
            arguments.precision, request.backward ? "forward and backward" : "forward", request.rounds);
  const auto results = bench_attention(request, [](const std::string& done) { log::info("{}", done); });
  if (!arguments.json) return print_table(results);
  auto list = nlohmann::ordered_json::array();
  for (const auto& result : results) list.push_back(to_json(result));
  print_json({{"device", device_description(request.device)},
              {"threads", at::get_num_threads()},
              {"precision", arguments.precision},
              {"direction", arguments.direction},
              {"causal", request.causal},
              {"rounds", request.rounds},
              {"results", list}});
}

std::string kinds_as_type() { return fmt::format("{}", fmt::join(kinds_of<MixerConfig>(), "|")); }

}  // namespace

void add_bench_attention_command(CLI::App& bench) {
  auto& command = *bench.add_subcommand("attention", "measure time, memory and accuracy of mixers and backends");
  auto arguments = std::make_shared<AttentionArguments>();
  const auto count = whole_number(1, std::int64_t{1} << 20);
  add_repeatable(command, "--mixer", arguments->mixers, kinds_as_type(), "mixer to measure; default: all");
  add_repeatable(command, "--backend", arguments->backends, "composed|reference|fused",
                 "backend to measure; default: composed and reference");
  command.add_option("--batch", arguments->shape.batch, "sequences")->capture_default_str()->transform(count);
  command.add_option("--heads", arguments->shape.heads, "heads")->capture_default_str()->transform(count);
  command.add_option("--head-width", arguments->shape.head_width, "width of a head")
      ->capture_default_str()
      ->transform(count);
  command
      .add_option("--context", arguments->contexts,
                  "tokens in a sequence; several values are measured one after another")
      ->capture_default_str()
      ->transform(count);
  command.add_option("--precision", arguments->precision, "precision of the inputs")
      ->type_name("fp32|bf16|fp16")
      ->capture_default_str();
  command.add_option("--direction", arguments->direction, "measure both passes, or only the forward pass")
      ->type_name("both|forward")
      ->capture_default_str();
  command.add_option("--rounds", arguments->rounds, "timed calls of each combination")
      ->capture_default_str()
      ->transform(count);
  command.add_option("--device", arguments->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command.add_flag("--all-pairs", arguments->all_pairs, "let every token see every token: no causal mask");
  command.add_flag("--pair-table", arguments->pair_table, "measure the published metric algorithm too");
  command.add_flag("--json", arguments->json, "one line of JSON on stdout");
  command.footer(
      "peak: memory beyond inputs and parameters. kept: memory that the forward pass keeps for the backward pass.\n"
      "error: of the output relative to float64, for contexts up to 1024.\n"
      "Examples:\n"
      "  metaformer bench attention --mixer metric --mixer scaled_dot_product\n"
      "  metaformer bench attention --mixer metric --context 256 512 1024 2048 4096 --batch 1 --rounds 3\n"
      "  metaformer bench attention --mixer metric --pair-table --batch 1 --context 32 64 128 256 --json");
  command.callback([arguments] { run_attention(*arguments); });
}

}  // namespace metaformer
