#include "cli/bench_choices.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "attention/kernel_choice.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "bench/attention_bench.h"
#include "bench/choice_grid.h"
#include "cli/output.h"
#include "ops/device.h"
#include "ops/fused_metric.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

// `file` may be where auto looks for it, whose folders are made.
fs::path place_of(const std::string& file, const std::optional<fs::path>& where_auto_looks) {
  if (file != "auto") {
    const auto path = fs::absolute(file_to_write(file));
    if (fs::is_directory(path.parent_path())) return path;
    throw Error(ExitCode::usage, fmt::format("--write-choices {}: no folder {}", file, path.parent_path().string()));
  }
  if (!where_auto_looks)
    throw Error(ExitCode::usage, "--write-choices auto: there is no cache folder; name a file to write");
  std::error_code problem;
  fs::create_directories(where_auto_looks->parent_path(), problem);
  if (problem)
    throw Error(ExitCode::failure, fmt::format("{}: {}", where_auto_looks->parent_path().string(), problem.message()));
  return *where_auto_looks;
}

void require_kernels(torch::Device device) {
  const auto probe = torch::empty({1, 1, 1, 32}, torch::TensorOptions().dtype(torch::kFloat).device(device));
  if (const auto obstacle = fused_metric_obstacle(probe, probe, {}); !obstacle.empty())
    throw Error(ExitCode::usage, "--write-choices compares with the fused kernels, and " + obstacle);
}

void print_summary(const ChoiceTable& table) {
  for (const auto type : {ChoiceType::bf16, ChoiceType::fp16, ChoiceType::tf32, ChoiceType::fp32}) {
    const auto faster = std::count_if(table.cells.begin(), table.cells.end(), [&](const ChoiceCell& cell) {
      return cell.place.type == type && cell.ratio < 1;
    });
    const auto all = std::count_if(table.cells.begin(), table.cells.end(),
                                   [&](const ChoiceCell& cell) { return cell.place.type == type; });
    print(fmt::format("{}: the fused kernels are faster in {} of {} cells\n", to_string(type), faster, all));
  }
}

}  // namespace

void write_choices(const ChoiceArguments& arguments) {
  const auto device = select_device(arguments.device);
  require_kernels(device);
  const auto name = device_name(device);
  const auto where_auto_looks = choice_table_path(name);
  const auto path = place_of(arguments.file, where_auto_looks);
  ChoiceGrid grid;
  grid.rounds = arguments.rounds;
  grid.device = device;
  log::info("{}; attention without its projections, forward and backward, composed and fused", name);
  const auto write = [&](const ChoiceTable& table) {
    write_file_atomically(path, to_json_text(table));
    log::info("{}: {} cells", path.string(), table.cells.size());
  };
  const auto measure = [](const AttentionRequest& request) {
    return bench_attention(request, [](const std::string& done) { log::progress(done); });
  };
  const auto table = measure_choices(grid, name, fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))),
                                     {.measure = measure, .type_done = write});
  if (where_auto_looks && path != *where_auto_looks)
    log::info("backend auto looks for its table in {}", where_auto_looks->string());
  arguments.json ? print_json(nlohmann::ordered_json::parse(to_json_text(table))) : print_summary(table);
}

}  // namespace metaformer
