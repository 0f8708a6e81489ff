#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/beam_flags.h"
#include "cli/command_line.h"
#include "cli/process_choice.h"
#include "infer/answers.h"
#include "infer/target_scores.h"
#include "run/load_run.h"
#include "tasks/evaluation.h"
#include "train/linear_baseline.h"

namespace metaformer {

namespace {

struct EvaluateArguments {
  RunChoice choice;
  ProcessChoice processes;
  std::string split = "validation";
  std::vector<std::string> others;
  std::int64_t random_batches = 0, tokens = 0;  // 0: the whole split
  BeamOptions beam;
  std::vector<std::string> beam_flags;  // that are given
  bool json = false;
  bool offline = false;
};

Split parse_split(const std::string& name) {
  return choose<Split>("--split", name,
                       {{"train", Split::train}, {"validation", Split::validation}, {"test", Split::test}});
}

void print_metrics(const nlohmann::ordered_json& metrics, const std::string& indent) {
  for (const auto& [name, value] : metrics.items()) {
    if (value.is_object() && value.size() > most_reported_classes) {
      print_lines(fmt::format("{}{:<20} {} classes: see --json\n", indent, name, value.size()));
    } else if (value.is_object()) {
      print_lines(fmt::format("{}{}\n", indent, name));
      print_metrics(value, indent + "  ");
    } else if (value.is_string()) {
      print_lines(fmt::format("{}{:<20} {}\n", indent, name, value.get<std::string>()));
    } else {
      print_lines(value.is_number_integer() ? fmt::format("{}{:<20} {}\n", indent, name, value.get<std::int64_t>())
                                            : fmt::format("{}{:<20} {:.5f}\n", indent, name, value.get<double>()));
    }
  }
}

void print_table(const BaselineComparison& comparison) {
  for (const auto& line : comparison.table) print_lines("  " + line + "\n");
}

// Of a run that can be a member of an ensemble.
const ClassificationMetrics& member_metrics(const std::string& name, const LoadedRun& run, const Task& task) {
  if (task.classes == nullptr || run.experiment.config.train.overfit_batch)
    throw Error(ExitCode::usage, name + ": --with takes classifiers that were trained on a whole corpus");
  return *task.classes;
}

void require_split(const Task& task, Split split, const ExperimentConfig& config) {
  const bool has_lists = list_task(config.task).has_value();  // for validation those of the test
  if (has_lists || task.batches->has(split)) return;
  const bool is_table = task.classes != nullptr || task.pairs != nullptr;
  throw Error(ExitCode::usage, fmt::format("--split {}: this run has no such split{}; expected train or validation",
                                           to_string(split), is_table ? ": its data.test_path is not set" : ""));
}

struct EnsembleEvaluation {
  nlohmann::ordered_json members = nlohmann::ordered_json::array();
  nlohmann::ordered_json metrics;
  BaselineComparison comparison;
};

EnsembleEvaluation evaluate_members(const EvaluateArguments& arguments, Split split, ProcessGroup& group) {
  auto names = arguments.others;
  names.insert(names.begin(), arguments.choice.run);
  EnsembleEvaluation evaluation;
  Ensemble ensemble;
  for (const auto& name : names) {
    const auto run = load_run(name, arguments.choice.checkpoint, device_for(group, arguments.choice.device),
                              arguments.choice.changes);
    const auto task = task_of(run, arguments.offline);
    const auto& metrics = member_metrics(name, run, task);
    const auto& config = run.experiment.config;
    require_split(task, split, config);
    const auto sums = score_split({*run.predictor, task, config.train.precision, run.device, group}, split);
    ensemble.add(name, metrics, sums, split);
    evaluation.members.push_back({{"checkpoint", run.checkpoint.string()},
                                  {"step", run.progress.step},
                                  {"accuracy", metrics.report(sums, split).at("accuracy")}});
    if (evaluation.members.size() < names.size()) continue;
    const auto mean = ensemble.mean();
    evaluation.metrics = metrics.report_of(mean, log_loss(mean));
    evaluation.metrics.update(metrics.tables_of(mean));
    if (!group.is_first()) break;
    evaluation.comparison = compare_with_baselines(config, task.description,
                                                   {{arguments.split, evaluation.metrics}}, arguments.offline);
  }
  return evaluation;
}

void evaluate_together(const EvaluateArguments& arguments, Split split, ProcessGroup& group) {
  const auto [members, metrics, comparison] = evaluate_members(arguments, split, group);
  if (!group.is_first()) return;
  if (arguments.json) {
    nlohmann::ordered_json result = {{"members", members}, {"split", arguments.split}};
    result.update(metrics);
    if (!comparison.accuracies.is_null()) result["baselines"] = comparison.accuracies;
    return print_json(result);
  }
  print_lines(fmt::format("mean of {} classifiers, {} split\n", members.size(), arguments.split));
  print_metrics(metrics, "  ");
  for (const auto& member : members)
    print_lines(fmt::format("  {:<20} {:.5f}  {}\n", "accuracy of", member["accuracy"].get<double>(),
                            member["checkpoint"].get<std::string>()));
  print_table(comparison);
}

// Targets are written of whole splits only.
bool sees_whole_split(const EvaluateArguments& arguments) {
  return arguments.random_batches == 0 && arguments.tokens == 0;
}

void check_beam_flags(const EvaluateArguments& arguments, const LoadedRun& run) {
  const auto& config = run.experiment.config;
  if (!is<SequenceToSequenceConfig>(config.task)) return require_no_flags(arguments.beam_flags, run);
  if (arguments.beam_flags.empty()) return;
  if (!sees_whole_split(arguments))
    throw Error(ExitCode::usage,
                fmt::format("{}: has no effect with {}, of which no targets are written", arguments.beam_flags.front(),
                            arguments.random_batches > 0 ? "--random-batches" : "--tokens"));
  if (config.train.overfit_batch)
    throw Error(ExitCode::usage,
                arguments.beam_flags.front() +
                    ": has no effect on a run with train.overfit_batch, of which no targets are written");
}

nlohmann::ordered_json evaluate_as_asked(const EvaluateArguments& arguments, const LoadedRun& run, const Task& task,
                                         Split split, ProcessGroup& group) {
  const Scoring scoring{*run.predictor, task, run.experiment.config.train.precision, run.device, group};
  const auto with_tables = [&](const ScoreSums& sums) {
    auto metrics = report_of(task, split, sums);
    metrics.update(task.metrics->tables(sums));
    return metrics;
  };
  if (arguments.random_batches > 0) return with_tables(score_random_batches(scoring, split, arguments.random_batches));
  if (arguments.tokens == 0) return with_tables(score_split(scoring, split));
  const auto part = part_of_split(*task.batches, split, arguments.tokens, run.predictor->remembers());
  auto metrics = with_tables(score_part(scoring, split, part));
  metrics.update({{"evaluated_tokens", part.tokens}, {"split_tokens", part.split_tokens}});
  return metrics;
}

void run_evaluate(const EvaluateArguments& arguments, Split split, ProcessGroup& group) {
  if (!arguments.others.empty()) return evaluate_together(arguments, split, group);
  const auto run = load_run(arguments.choice.run, arguments.choice.checkpoint,
                            device_for(group, arguments.choice.device), arguments.choice.changes);
  const auto& config = run.experiment.config;
  const auto task = task_of(run, arguments.offline);
  require_split(task, split, config);
  check_beam_flags(arguments, run);
  if (config.train.overfit_batch)
    log::warning("this run trained only on its first batch (train.overfit_batch), and is evaluated on it");
  auto metrics = evaluate_as_asked(arguments, run, task, split, group);
  if (task.pairs != nullptr && sees_whole_split(arguments) && !config.train.overfit_batch)
    metrics["written"] =
        score_written_targets(*run.model, config, run.device, *task.pairs, split, arguments.beam, group);
  if (!group.is_first()) return;
  const auto comparison =
      compare_with_baselines(config, task.description, {{arguments.split, metrics}}, arguments.offline);
  if (arguments.json) {
    nlohmann::ordered_json result = {
        {"checkpoint", run.checkpoint.string()}, {"step", run.progress.step}, {"split", arguments.split}};
    result.update(metrics);
    if (!comparison.accuracies.is_null()) result["baselines"] = comparison.accuracies;
    return print_json(result);
  }
  print_lines(fmt::format("{} (step {}), {} split\n", run.checkpoint.string(), run.progress.step, arguments.split));
  print_metrics(metrics, "  ");
  print_table(comparison);
}

}  // namespace

void add_evaluate_command(CLI::App& app) {
  auto& command = *app.add_subcommand("evaluate", "compute the metrics of a checkpoint on a split");
  auto arguments = std::make_shared<EvaluateArguments>();
  arguments->choice.add_to(command);
  arguments->choice.add_context_to(command);
  arguments->choice.add_options_to(command);
  command.add_option("--split", arguments->split, "split to evaluate")
      ->type_name("train|validation|test")
      ->capture_default_str();
  auto* with = command
                   .add_option("--with", arguments->others,
                               "more classifiers of the same data; averages the probabilities of all runs")
                   ->type_name("RUN...");
  auto* random = command
                     .add_option("--random-batches", arguments->random_batches,
                                 "estimate on this many random batches, as nanoGPT does, instead of the whole split")
                     ->transform(whole_number(1, std::int64_t{1} << 20))
                     ->excludes(with);
  command
      .add_option("--tokens", arguments->tokens,
                  "evaluate at most this many tokens, evenly spread over the split, as training does with "
                  "train.evaluation limited; default: the whole split")
      ->transform(whole_number(1, std::int64_t{1} << 40))
      ->excludes(with)
      ->excludes(random);
  add_beam_to(command, arguments->beam);
  arguments->processes.add_to(command);
  command.add_flag("--offline", arguments->offline, "never download a corpus");
  command.add_flag("--json", arguments->json, "one line of JSON on stdout");
  command.footer(
      "Of a sequence_to_sequence run also scores the targets that it writes: BLEU, chrF, ROUGE, exact match.\n"
      "Examples:\n  metaformer evaluate\n  metaformer evaluate --run runs/x --checkpoint last --split train --json\n"
      "  metaformer evaluate --run runs/a --with runs/b runs/c --split test");
  command.callback([arguments, &command] {
    arguments->beam_flags = given_beam_flags(command);
    const auto split = parse_split(arguments->split);
    arguments->processes.run([&](ProcessGroup& group) { run_evaluate(*arguments, split, group); });
  });
}

}  // namespace metaformer
