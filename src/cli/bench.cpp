#include "cli/command_line.h"

namespace metaformer {

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
