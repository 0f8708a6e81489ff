#include <fmt/format.h>

#include "base/log.h"
#include "bench/kernel_bench.h"
#include "cli/command_line.h"
#include "ops/device.h"

namespace metaformer {

namespace {

struct KernelArguments {
  KernelRequest request;
  std::string precision = "fp32";
  bool json = false;
};

void run_kernels(KernelArguments& arguments) {
  auto& request = arguments.request;
  request.type = choose<torch::ScalarType>("--precision", arguments.precision,
                                           {{"fp32", torch::kFloat}, {"bf16", torch::kBFloat16}});
  log::info("{}, {} thread{}, {}; forward and backward, medians of {} rounds in turn", device_description(torch::kCPU),
            at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s", arguments.precision, request.rounds);
  const auto results = bench_kernels(request);
  if (arguments.json) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& result : results)
      list.push_back({{"kernel", result.kernel},
                      {"ms", result.ms},
                      {"library_ms", result.library_ms},
                      {"share_of_library_time", result.share}});
    return print_json({{"device", device_description(torch::kCPU)},
                       {"threads", at::get_num_threads()},
                       {"precision", arguments.precision},
                       {"rounds", request.rounds},
                       {"results", list}});
  }
  print(fmt::format("{:<20} {:>10} {:>14} {:>8}\n", "kernel", "ms", "library's ms", "share"));
  for (const auto& result : results)
    print(fmt::format("{:<20} {:>10.4f} {:>14.4f} {:>8.2f}\n", result.kernel, result.ms, result.library_ms,
                      result.share));
}

}  // namespace

void add_bench_kernels_command(CLI::App& bench) {
  auto& command = *bench.add_subcommand("kernels", "measure the program's CPU kernels beside LibTorch's operators");
  auto arguments = std::make_shared<KernelArguments>();
  auto& shape = arguments->request.shape;
  shape = {.batch = 12, .heads = 4, .context = 64, .head_width = 32};  // nanoGPT's CPU recipe
  const auto count = whole_number(1, std::int64_t{1} << 20);
  const auto add_count = [&](const char* name, std::int64_t& value, const char* help) {
    command.add_option(name, value, help)->capture_default_str()->transform(count);
  };
  add_count("--batch", shape.batch, "sequences");
  add_count("--heads", shape.heads, "heads");
  add_count("--head-width", shape.head_width, "width of a head");
  add_count("--context", shape.context, "tokens in a sequence");
  add_count("--rounds", arguments->request.rounds, "timed rounds; results are their medians");
  command.add_option("--precision", arguments->precision, "precision of inputs and products")
      ->type_name("fp32|bf16")
      ->capture_default_str();
  command.add_flag("--json", arguments->json, "one line of JSON on stdout");
  command.footer(
      "share: of the library's time, the median of the rounds' ratios; below 1 the program's kernel is faster.\n"
      "Examples:\n"
      "  metaformer bench kernels\n"
      "  metaformer bench kernels --batch 8 --heads 6 --head-width 64 --context 256 --precision bf16");
  command.callback([arguments] { run_kernels(*arguments); });
}

}  // namespace metaformer
