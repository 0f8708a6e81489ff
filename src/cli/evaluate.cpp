#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "baselines/baselines.h"
#include "cli/command_line.h"
#include "infer/ensemble.h"
#include "infer/evaluation.h"
#include "tasks/make_task.h"
#include "train/run.h"

namespace metaformer {

namespace {

struct EvaluateArguments {
  RunChoice choice;
  std::string split = "validation";
  std::vector<std::string> others;
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
      print_lines(fmt::format("{}{}\n", indent, name));
      print_metrics(value, indent + "  ");
    } else {
      print_lines(value.is_number_integer() ? fmt::format("{}{:<20} {}\n", indent, name, value.get<std::int64_t>())
                                            : fmt::format("{}{:<20} {:.5f}\n", indent, name, value.get<double>()));
    }
  }
}

std::unique_ptr<Task> task_of(LoadedRun& run, bool offline) {
  auto task = make_task(run.experiment.config, offline, std::move(run.codec));
  if (!has_same_data(run.directory, *task))
    log::warning("{}: the data are not what this run was trained on; its environment.json names those",
                 run.directory.path().string());
  return task;
}

void print_beside_baselines(const nlohmann::ordered_json& baselines, const std::string& split,
                            const nlohmann::ordered_json& metrics) {
  if (baselines.is_null()) return;
  const auto held_out = split == to_string(Split::train) ? nlohmann::ordered_json() : metrics;
  for (const auto& line : compare_with_baselines(baselines, {{split, held_out}})) print_lines("  " + line + "\n");
}

struct EnsembleEvaluation {
  nlohmann::ordered_json members = nlohmann::ordered_json::array();
  nlohmann::ordered_json metrics, baselines;
};

EnsembleEvaluation evaluate_members(const EvaluateArguments& arguments, Split split) {
  auto names = arguments.others;
  names.insert(names.begin(), arguments.choice.run);
  EnsembleEvaluation evaluation;
  Ensemble ensemble;
  for (const auto& name : names) {
    auto run = load_run(name, arguments.choice.checkpoint, arguments.choice.device);
    const auto task = task_of(run, arguments.offline);
    const auto* classification = dynamic_cast<const ClassificationTask*>(task.get());
    if (classification == nullptr)
      throw Error(ExitCode::usage, name + ": an ensemble is of classifiers that were trained on a whole corpus");
    const auto& config = run.experiment.config;
    const auto sums = score_split(*run.model, *task, split, config.train.precision, run.device);
    ensemble.add(name, *classification, sums, split);
    evaluation.members.push_back({{"checkpoint", run.checkpoint.string()},
                                  {"step", run.progress.step},
                                  {"accuracy", task->metrics(sums, split).at("accuracy")}});
    if (evaluation.members.size() < names.size()) continue;
    const auto mean = ensemble.mean();
    evaluation.metrics = classification->metrics_of(mean, log_loss(mean));
    evaluation.baselines = find_baselines(config, task->data_description(), arguments.offline);
  }
  return evaluation;
}

void evaluate_together(const EvaluateArguments& arguments, Split split) {
  const auto [members, metrics, baselines] = evaluate_members(arguments, split);
  if (arguments.json) {
    nlohmann::ordered_json result = {{"members", members}, {"split", arguments.split}};
    result.update(metrics);
    if (!baselines.is_null()) result["baselines"] = baselines;
    return print_json(result);
  }
  print_lines(fmt::format("mean of {} classifiers, {} split\n", members.size(), arguments.split));
  print_metrics(metrics, "  ");
  for (const auto& member : members)
    print_lines(fmt::format("  {:<20} {:.5f}  {}\n", "accuracy alone", member["accuracy"].get<double>(),
                            member["checkpoint"].get<std::string>()));
  print_beside_baselines(baselines, arguments.split, metrics);
}

void run_evaluate(const EvaluateArguments& arguments) {
  const auto split = parse_split(arguments.split);
  if (!arguments.others.empty()) return evaluate_together(arguments, split);
  auto run = load_run(arguments.choice.run, arguments.choice.checkpoint, arguments.choice.device);
  const auto& config = run.experiment.config;
  const auto task = task_of(run, arguments.offline);
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
  print_lines(fmt::format("{} (step {}), {} split\n", run.checkpoint.string(), run.progress.step, arguments.split));
  print_metrics(metrics, "  ");
  print_beside_baselines(baselines, arguments.split, metrics);
}

}  // namespace

void add_evaluate_command(CLI::App& app) {
  auto& command = *app.add_subcommand("evaluate", "metrics of a checkpoint on a split");
  auto arguments = std::make_shared<EvaluateArguments>();
  arguments->choice.add_to(command);
  command.add_option("--split", arguments->split, "train, validation or test")->capture_default_str();
  auto* with = command
                   .add_option("--with", arguments->others,
                               "further runs of the same data: the classifier is then the mean of all probabilities")
                   ->type_name("RUN...");
  command
      .add_option("--random-batches", arguments->random_batches,
                  "estimate on so many random batches (as nanoGPT) instead of the whole split")
      ->transform(whole_number(1, std::int64_t{1} << 20))
      ->excludes(with);
  command.add_flag("--offline", arguments->offline, "never download a corpus");
  command.add_flag("--json", arguments->json, "one line of JSON on stdout");
  command.footer(
      "Examples:\n  metaformer evaluate\n  metaformer evaluate --run runs/x --checkpoint last --split train --json\n"
      "  metaformer evaluate --run runs/a --with runs/b runs/c --split test");
  command.callback([arguments] { run_evaluate(*arguments); });
}

}  // namespace metaformer
