#include <fmt/format.h>

#include "cli/command_line.h"
#include "core/log.h"
#include "train/baselines.h"
#include "train/evaluation.h"
#include "train/run.h"

namespace metaformer {

namespace {

struct EvaluateArguments {
  RunChoice choice;
  std::string split = "validation";
  std::int64_t random_batches = 0;
  bool json = false;
  bool offline = false;
};

Split parse_split(const std::string& name) {
  return choose<Split>("--split", name,
                       {{"train", Split::train}, {"validation", Split::validation}, {"test", Split::test}});
}

void print_metrics(const nlohmann::ordered_json& metrics, const std::string& indent) {
  for (const auto& [name, value] : metrics.items()) {
    if (value.is_object()) {
      print(fmt::format("{}{}\n", indent, name));
      print_metrics(value, indent + "  ");
    } else {
      print(value.is_number_integer() ? fmt::format("{}{:<20} {}\n", indent, name, value.get<std::int64_t>())
                                      : fmt::format("{}{:<20} {:.5f}\n", indent, name, value.get<double>()));
    }
  }
}

void run_evaluate(const EvaluateArguments& arguments) {
  const auto split = parse_split(arguments.split);
  auto run = load_run(arguments.choice.run, arguments.choice.checkpoint, arguments.choice.device);
  const auto& config = run.experiment.config;
  const auto task = make_task(config, arguments.offline, std::move(run.codec));
  if (!has_same_data(run.directory, *task))
    log::warning("the data are not what this run was trained on; its environment.json names those");
  if (config.train.overfit_batch)
    log::warning("this run trained on its first batch alone (train.overfit_batch), and is evaluated on that");
  const auto metrics =
      arguments.random_batches > 0
          ? estimate_split(*run.model, *task, split, arguments.random_batches, config.train.precision, run.device)
          : evaluate_split(*run.model, *task, split, config.train.precision, run.device);
  const auto baselines = find_baselines(config, task->data_description(), arguments.offline);
  if (arguments.json) {
    nlohmann::ordered_json result = {
        {"checkpoint", run.checkpoint.string()}, {"step", run.progress.step}, {"split", arguments.split}};
    result.update(metrics);
    if (!baselines.is_null()) result["baselines"] = baselines;
    return print_json(result);
  }
  print(fmt::format("{} (step {}), {} split\n", run.checkpoint.string(), run.progress.step, arguments.split));
  print_metrics(metrics, "  ");
  if (baselines.is_null()) return;
  const auto held_out = split == Split::train ? nlohmann::ordered_json() : metrics;
  for (const auto& line : compare_with_baselines(baselines, {{arguments.split, held_out}})) print("  " + line + "\n");
}

}  // namespace

void add_evaluate_command(CLI::App& app) {
  auto& command = *app.add_subcommand("evaluate", "metrics of a checkpoint on a split");
  auto arguments = std::make_shared<EvaluateArguments>();
  arguments->choice.add_to(command);
  command.add_option("--split", arguments->split, "train, validation or test")->capture_default_str();
  command
      .add_option("--random-batches", arguments->random_batches,
                  "estimate on so many random batches (as nanoGPT) instead of the whole split")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command.add_flag("--offline", arguments->offline, "never download a corpus");
  command.add_flag("--json", arguments->json, "one line of JSON on stdout");
  command.footer(
      "Examples:\n  metaformer evaluate\n  metaformer evaluate --run runs/x --checkpoint last --split train --json");
  command.callback([arguments] { run_evaluate(*arguments); });
}

}  // namespace metaformer
