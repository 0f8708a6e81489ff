#include <filesystem>
#include <numbers>

#include "base/file_lock.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "infer/answers.h"
#include "infer/scoring.h"
#include "tasks/calibration.h"
#include "tasks/class_tables.h"
#include "tasks/evaluation.h"
#include "train/linear_baseline.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* fit_flag = "--fit-temperature";

struct EvaluateArguments {
  RunChoice choice;
  ProcessChoice processes;
  Split split = Split::validation;
  std::vector<std::string> others;
  std::vector<std::string> files;
  std::optional<std::string> targets;
  bool per_line = false;
  std::int64_t random_batches = 0, tokens = 0;  // 0: the whole split
  BeamOptions beam;
  std::vector<std::string> beam_flags;  // those on the command line
  bool fit_temperature = false, json = false, offline = false;
};

void print_measures(const Json& measures, const std::string& indent) {
  std::size_t width = 20;
  for (const auto& [name, value] : measures.items()) width = std::max(width, name.size());
  for (const auto& [name, value] : measures.items()) {
    if (value.is_object()) {
      print_lines("{}{}\n", indent, name);
      print_measures(value, indent + "  ");
      continue;
    }
    const auto shown = value.is_string()           ? value.get<std::string>()
                       : value.is_number_integer() ? fmt::format("{}", value.get<std::int64_t>())
                                                   : fmt::format("{:.5f}", value.get<double>());
    print_lines("{}{:<{}} {}\n", indent, name, width, shown);
  }
}

// The scores, then a classifier's tables.
void print_evaluation(const Evaluation& evaluation) {
  auto scores = evaluation;
  scores.classes.clear();
  scores.confusion.clear();
  print_measures(json_of(scores), "  ");
  const auto classes = evaluation.classes.size();
  if (classes > most_reported_classes) print_lines("  {:<20} {} classes: see --json\n", "classes", classes);
  for (const auto& line : class_tables(evaluation)) print_lines("  " + line + "\n");
}

// `source`: the members of JSON that name the evaluated checkpoints. `members`: lines of text about these.
void print_result(const EvaluateArguments& arguments, Json source, const std::string& title,
                  const Evaluation& evaluation, const std::string& members, const BaselineComparison& comparison) {
  if (arguments.json) {
    source["split"] = to_string(arguments.split);
    source.update(json_of(evaluation));
    if (!comparison.accuracies.empty()) source["baselines"] = json_of(comparison.accuracies);
    return print_json(source);
  }
  print_lines("{}, {} split\n", title, to_string(arguments.split));
  print_evaluation(evaluation);
  print_lines(members);
  for (const auto& line : comparison.table) print_lines("  " + line + "\n");
}

BaselineComparison compare(const EvaluateArguments& arguments, const ExperimentConfig& config, const Task& task,
                           const Evaluation& evaluation) {
  Scores accuracies;
  if (const auto accuracy = evaluation.find("accuracy")) accuracies.emplace_back(to_string(arguments.split), *accuracy);
  return compare_with_baselines(config, task.description, accuracies, arguments.offline,
                                arguments.others.empty() ? "this network" : "the ensemble");
}

void require_split(const Task& task, Split split, const LoadedRun& run) {
  const bool has_lists = list_task(run.experiment.config.task).has_value();  // the same for validation and test
  if (has_lists || task.batches->has(split)) return;
  const bool is_table = task.classes != nullptr || task.pairs != nullptr;
  fail_usage("--split {}: {} has no such split{}; expected train or validation", to_string(split),
             run.directory.path().string(), is_table ? ": its data.test_path is not set" : "");
}

// Evaluates the mean of the probabilities of several classifiers.
void evaluate_together(const EvaluateArguments& arguments, ProcessGroup& group) {
  auto names = arguments.others;
  names.insert(names.begin(), arguments.choice.run);
  const auto split = arguments.split;
  auto members = Json::array();
  std::string lines;
  Ensemble ensemble, scaled;  // scaled: each member with its own temperature
  bool all_fitted = true;
  for (const auto& name : names) {
    auto choice = arguments.choice;
    choice.run = name;
    const auto run = choice.load(device_for(group, choice.device));
    const auto& config = run.experiment.config;
    const auto task = task_of(run, arguments.offline);
    if (task.classes == nullptr || config.train.overfit_batch)
      fail_usage("{}: --with takes classifiers that were trained on a whole corpus", name);
    require_split(task, split, run);
    const auto sums = score_split({*run.predictor, task, config.train.precision, run.device, group}, split);
    const auto& temperature = run.progress.temperature;
    ensemble.add(name, *task.classes, sums, split);
    scaled.add(name, *task.classes, sums, split, temperature.value_or(1));
    all_fitted = all_fitted && temperature;
    const auto accuracy = task.classes->report(sums, split).at("accuracy");
    members.push_back({{"checkpoint", run.checkpoint.string()}, {"step", run.progress.step}, {"accuracy", accuracy}});
    lines += fmt::format("  {:<20} {:.5f}  {}\n", "accuracy of", accuracy, run.checkpoint.string());
    if (members.size() < names.size()) continue;
    const auto mean = ensemble.mean();
    auto evaluation = task.classes->report_of(mean, log_loss(mean), Tables::all);
    if (all_fitted) {
      const auto scaled_mean = scaled.mean();
      evaluation.scores.emplace_back("scaled_loss", log_loss(scaled_mean));
      evaluation.scores.emplace_back("scaled_calibration_error", calibration_error(scaled_mean));
    }
    if (!group.is_first()) return;
    print_result(arguments, {{"members", members}}, fmt::format("mean of {} classifiers", members.size()), evaluation,
                 lines, compare(arguments, config, task, evaluation));
  }
}

// Targets are generated for whole splits only.
bool sees_whole_split(const EvaluateArguments& arguments) {
  return arguments.random_batches == 0 && arguments.tokens == 0;
}

void check_beam_flags(const EvaluateArguments& arguments, const LoadedRun& run) {
  const auto& config = run.experiment.config;
  if (!is<SequenceToSequenceConfig>(config.task)) return require_no_flags(arguments.beam_flags, run);
  if (arguments.beam_flags.empty()) return;
  const auto& flag = arguments.beam_flags.front();
  if (!sees_whole_split(arguments))
    fail_usage("{}: has no effect with {}, which writes no targets", flag,
               arguments.random_batches > 0 ? "--random-batches" : "--tokens");
  if (config.train.overfit_batch)
    fail_usage("{}: has no effect on a run with train.overfit_batch, which writes no targets", flag);
}

Evaluation evaluate_as_asked(const EvaluateArguments& arguments, const LoadedRun& run, const Task& task,
                             ProcessGroup& group) {
  const auto split = arguments.split;
  const Scoring scoring{*run.predictor, task, run.experiment.config.train.precision, run.device, group};
  const auto with_tables = [&](const ScoreSums& sums) {
    auto evaluation = report_of(task, split, sums, Tables::all);
    add_scaled_scores(evaluation, task, sums, run.progress.temperature);
    return evaluation;
  };
  if (arguments.random_batches > 0) return with_tables(score_random_batches(scoring, split, arguments.random_batches));
  if (arguments.tokens == 0) return with_tables(score_split(scoring, split));
  const auto part = part_of_split(*task.batches, split, arguments.tokens, run.predictor->remembers());
  auto evaluation = with_tables(score_part(scoring, split, part));
  evaluation.evaluated_tokens = part.tokens;
  evaluation.split_tokens = part.split_tokens;
  return evaluation;
}

// "LOG-PROBABILITY tab TOKENS" and, for a classifier, the predicted label.
std::string line_of(const LineScore& score, bool as_json) {
  if (!as_json)
    return fmt::format("{:.6f}\t{}{}", score.log_probability, score.tokens,
                       score.predicted ? "\t" + *score.predicted : "");
  Json json = {{"line", score.line}, {"log_probability", score.log_probability}, {"tokens", score.tokens}};
  if (score.bytes) json["bytes"] = *score.bytes;
  if (score.bytes && *score.bytes > 0)
    json["bits_per_byte"] = -score.log_probability / std::numbers::ln2 / static_cast<double>(*score.bytes);
  if (score.label) json["label"] = *score.label;
  if (score.predicted) json["predicted"] = *score.predicted;
  if (score.is_cut) json["cut"] = true;
  return to_line(json);
}

// Scores files in place of a split.
void evaluate_files(const EvaluateArguments& arguments, ProcessGroup& group) {
  std::ranges::for_each(arguments.files, require_no_run);
  const auto run = arguments.choice.load(device_for(group, arguments.choice.device));
  check_beam_flags(arguments, run);
  if (arguments.per_line && group.size() > 1)
    fail_usage("--per-line: one process scores the lines; leave out --processes");
  for (const auto& name : arguments.files) {
    ScoredFile file{.path = name == "-" ? std::filesystem::path("/dev/stdin") : std::filesystem::absolute(name)};
    if (arguments.targets) file.targets = std::filesystem::absolute(*arguments.targets);
    if (arguments.per_line) {
      score_lines(run, file, [&](const LineScore& score) { print_lines(line_of(score, arguments.json) + "\n"); });
      continue;
    }
    const auto [task, split] = task_of_file(run, file);
    const Scoring scoring{*run.predictor, task, run.experiment.config.train.precision, run.device, group};
    const auto sums = score_split(scoring, split);
    auto evaluation = report_of(task, split, sums, Tables::all);
    add_scaled_scores(evaluation, task, sums, run.progress.temperature);
    if (task.pairs != nullptr)
      evaluation.written = score_written_targets(*run.model, run.experiment.config, run.device, *task.pairs, split,
                                                 arguments.beam, group);
    if (!group.is_first()) continue;
    Json json = {{"checkpoint", run.checkpoint.string()}, {"step", run.progress.step}, {"file", name}};
    json.update(json_of(evaluation));
    if (arguments.json) {
      print_json(json);
      continue;
    }
    print_lines("{} (step {}), {}\n", run.checkpoint.string(), run.progress.step, name);
    print_evaluation(evaluation);
  }
}

// Options of the model or its context would give another temperature than that of the trained model.
void require_temperature(const EvaluateArguments& arguments, const LoadedRun& run) {
  const auto& [context, options] = arguments.choice.changes;
  const auto& config = run.experiment.config;
  if (!is<ClassificationConfig>(config.task)) return require_no_flags({fit_flag}, run);
  if (config.train.overfit_batch)
    fail_usage("{}: has no effect on a run with train.overfit_batch, which has no validation texts", fit_flag);
  const auto changed = std::ranges::find_if_not(
      options, [&](const auto& option) { return is_data_path(config, option.substr(0, option.find('='))); });
  if (context || changed != options.end())
    fail_usage("{}: the temperature is that of the model as it was trained; leave out {}", fit_flag,
               context ? "--context" : "--set " + *changed);
}

// Fits the temperature to the whole validation split, and stores it in the checkpoint.
void fit_and_store(LoadedRun& run, const Task& task, ProcessGroup& group) {
  const auto lock = group.is_first() ? std::make_unique<FileLock>(run.directory.lock_file()) : nullptr;
  const Scoring scoring{*run.predictor, task, run.experiment.config.train.precision, run.device, group};
  const auto temperature = fit_temperature(task, score_split(scoring, Split::validation)).value();
  run.progress.temperature = temperature;
  if (!group.is_first()) return;
  set_temperature(run.checkpoint, temperature);
  log::info("{}: {}", run.checkpoint.string(), describe_temperature(temperature));
}

void run_evaluate(const EvaluateArguments& arguments, ProcessGroup& group) {
  if (!arguments.others.empty()) return evaluate_together(arguments, group);
  if (!arguments.files.empty()) return evaluate_files(arguments, group);
  auto run = arguments.choice.load(device_for(group, arguments.choice.device));
  const auto& config = run.experiment.config;
  if (arguments.fit_temperature) require_temperature(arguments, run);
  const auto task = task_of(run, arguments.offline);
  require_split(task, arguments.split, run);
  check_beam_flags(arguments, run);
  if (arguments.fit_temperature) fit_and_store(run, task, group);
  if (config.train.overfit_batch)
    log::warning("this run trained only on its first batch (train.overfit_batch), and is evaluated on it");
  auto evaluation = evaluate_as_asked(arguments, run, task, group);
  if (task.pairs != nullptr && sees_whole_split(arguments) && !config.train.overfit_batch)
    evaluation.written =
        score_written_targets(*run.model, config, run.device, *task.pairs, arguments.split, arguments.beam, group);
  if (!group.is_first()) return;
  const auto checkpoint = run.checkpoint.string();
  print_result(arguments, {{"checkpoint", checkpoint}, {"step", run.progress.step}},
               fmt::format("{} (step {})", checkpoint, run.progress.step), evaluation, "",
               compare(arguments, config, task, evaluation));
}

}  // namespace

void add_evaluate_command(CLI::App& app) {
  auto& command = *app.add_subcommand("evaluate", "compute the scores of a checkpoint on a split, or on files");
  auto arguments = std::make_shared<EvaluateArguments>();
  auto* files = add_text(
      command, "files", arguments->files, "FILE...",
      "texts, labelled tables or pairs that are evaluated in place of a split, each for itself; -: text from standard "
      "input");
  arguments->choice.add_to(command);
  arguments->choice.add_context_to(command);
  arguments->choice.add_options_to(command);
  add_choice(command, "--split", arguments->split, "split to evaluate");
  auto* with = add_text(command, "--with", arguments->others, "RUN...",
                        "more classifiers of the same data; averages the probabilities of all runs");
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
  add_text(command, "--targets", arguments->targets, "FILE",
           "file with the target of every line of FILE, for pairs that are not a table")
      ->needs(files);
  command
      .add_flag("--per-line", arguments->per_line,
                "the logarithm of the probability of every line of FILE, and its tokens")
      ->needs(files);
  command
      .add_flag(fit_flag, arguments->fit_temperature,
                "fit the temperature of a classifier's probabilities to the validation split, as training does at its "
                "evaluations, and store it in the checkpoint; for runs of earlier versions, or with train.evaluation "
                "limited")
      ->excludes(with)
      ->excludes(files);
  for (auto* other : {with, random, command.get_option("--tokens"), command.get_option("--split")})
    files->excludes(other);
  add_beam(command, arguments->beam);
  arguments->processes.add_to(command);
  add_offline(command, arguments->offline);
  add_json(command, arguments->json);
  command.footer(
      "For a sequence_to_sequence run it also scores the generated targets: BLEU, chrF, ROUGE, exact match.\n"
      "For a classifier it also prints the scores of each class and the confusion table, and the loss and calibration\n"
      "error of its probabilities with the fitted temperature.\n"
      "Examples:\n  metaformer evaluate\n  metaformer evaluate --run runs/x --checkpoint last --split train --json\n"
      "  metaformer evaluate --run runs/a --with runs/b runs/c --split test\n"
      "  metaformer evaluate --run runs/reviews --split test --fit-temperature\n"
      "  metaformer evaluate --run runs/x other.txt third.jsonl.gz\n"
      "  metaformer evaluate --run runs/multi30k test.de --targets test.en --per-line");
  command.callback([arguments, &command] {
    arguments->beam_flags = given_flags(command, beam_flags);
    arguments->processes.run([&](ProcessGroup& group) { run_evaluate(*arguments, group); });
  });
}

}  // namespace metaformer
