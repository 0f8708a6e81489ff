#include <utility>

#include "base/log.h"
#include "base/signals.h"
#include "cli/command_line.h"
#include "train/run.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

struct TrainArguments {
  ConfigChoice choice;
  TrainRequest request;
  ProcessChoice processes;
  std::string run, checkpoint;  // of --resume and --from
  bool overfit_batch = false, json = false, quiet = false;
};

// The value of --resume without a run.
constexpr const char* not_named = "the run in --out, or the newest one";

// --from: a checkpoint of the run that --resume names, or the folder of a checkpoint, which lies in its run.
NamedCheckpoint find_checkpoint(const std::string& run, const std::string& checkpoint) {
  if (checkpoint.find('/') == std::string::npos)
    return {RunDirectory::open_to_resume(run.empty() ? latest_run : run).path(), checkpoint};
  auto folder = fs::absolute(checkpoint).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // without the slash behind it
  NamedCheckpoint found{folder.parent_path().parent_path(), folder.filename().string()};
  std::error_code ignored;
  if (!run.empty() && !fs::equivalent(run, found.run, ignored))
    fail_usage("--resume {} and --from {} name two runs: leave one of them out", run, checkpoint);
  return found;
}

// Sets the run to continue by --resume, which is then that of --out, or the checkpoint by --from.
void set_run(TrainArguments& arguments) {
  auto& run = arguments.run;
  auto& config = arguments.choice.config;
  auto& request = arguments.request;
  request.resume = !run.empty() && arguments.checkpoint.empty();
  if (run == not_named) run.clear();
  if (!arguments.checkpoint.empty()) request.from = find_checkpoint(run, arguments.checkpoint);
  if (!request.resume) return;
  if (!run.empty() && !request.out.empty()) {
    std::error_code ignored;
    if (!config.empty() || fs::is_directory(run, ignored))
      fail_usage("--resume {} and --out {} name two runs: leave one of them out, or begin a new run by --from step-N",
                 run, request.out.string());
    config = std::exchange(run, "");  // `--resume CONFIG --out RUN`
  }
  if (!run.empty() || (config.empty() && request.out.empty()))
    request.out = RunDirectory::open_to_resume(run.empty() ? latest_run : run).path();
}

// The config that is named, or that of the run to continue.
Experiment load_config(const TrainArguments& arguments) {
  const auto& request = arguments.request;
  if (!arguments.choice.config.empty()) return arguments.choice.load();
  if (!request.resume && !request.from)
    fail_usage("--config is missing: name a config, or go on with a run by --resume RUN");
  const auto run =
      request.from ? RunDirectory::open(request.from->run, "--from") : RunDirectory::open(request.out, "--out");
  auto experiment = load_run_experiment(run.config_file(), arguments.choice.overrides);
  experiment.name = name_of_run(run);
  return experiment;
}

// The options of this command that a run does not record and its continuation needs.
std::string resume_options(const TrainArguments& arguments) {
  std::string options;
  if (const auto count = arguments.processes.processes; count > 1) options += fmt::format(" --processes {}", count);
  if (const auto& device = arguments.request.device; device != "auto") options += " --device " + device;
  return options;
}

void run_train(TrainArguments& arguments, const std::vector<std::string>& command_line) {
  set_stop_notice("stopping; again to quit");
  ignore_broken_pipes();  // `train 2>&1 | head` must not end a training
  log::set_quiet(arguments.quiet);
  if (arguments.overfit_batch) arguments.choice.overrides.emplace_back("train.overfit_batch=true");
  set_run(arguments);
  arguments.request.experiment = load_config(arguments);
  const auto& experiment = arguments.request.experiment;
  arguments.request.command_line = command_line;
  arguments.request.resume_options = resume_options(arguments);
  arguments.processes.run([&](ProcessGroup& group) {
    for (const auto& warning : config_warnings(experiment.config, experiment.provenance)) log::warning("{}", warning);
    arguments.request.group = &group;
    arguments.request.device = device_for(group, arguments.request.device);
    const auto summary = train(arguments.request);
    if (arguments.json && group.is_first()) print_json(to_json(summary));
  });
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto& command = *app.add_subcommand("train", "train a model from a config");
  auto arguments = std::make_shared<TrainArguments>();
  arguments->choice.add_to(command);
  command.get_option("--config")->required(false);  // --resume takes that of the run
  command.add_option("--out", arguments->request.out, "run folder to create; default: runs/<config>-<time>");
  add_text(command, "--resume", arguments->run, "RUN",
           "continue a run from its newest checkpoint: RUN, else the run in --out, else the newest run of this folder "
           "that has a checkpoint; without --config with the run's own config, in which --set may change the learning "
           "rate, steps, intervals, patience, retention and the paths of the same data")
      ->expected(0, 1)
      ->default_str(not_named)
      ->option_text("[RUN]");
  add_text(command, "--from", arguments->checkpoint, "CHECKPOINT",
           "begin a new run, --out, from a checkpoint of the run of --resume: step-N, best, last, or the folder of a "
           "checkpoint of any run; that run stays as it is");
  add_device(command, arguments->request.device);
  command.add_flag("--overfit-batch", arguments->overfit_batch,
                   "train and evaluate on the first batch only: the loss must fall to nearly 0");
  command.add_flag(
      "--profile", arguments->request.profile,
      "measure the time of each operator, on a GPU also of each kernel, over steps 11 to 30: tables in the log, "
      "profile.json for chrome://tracing");
  command.add_flag("--force", arguments->request.force, "start even if the memory is clearly too small");
  arguments->processes.add_to(command);
  add_offline(command, arguments->request.offline);
  command.add_flag("--json", arguments->json, "end with the summary as one line of JSON on stdout");
  command.add_flag("--quiet", arguments->quiet, "only warnings and errors on stderr");
  command.footer(
      "Examples:\n"
      "  metaformer train --config shakespeare_metric.yaml\n"
      "  metaformer train --config shakespeare_metric.yaml --set train.steps=200 --set train.seed=1 --out runs/short\n"
      "  metaformer train --config my.yaml --set train.epochs=3\n"
      "  metaformer train --config my.yaml --out runs/long --resume            starts the run, or continues it\n"
      "  metaformer train --resume                                             continues the newest run\n"
      "  metaformer train --resume runs/long --set train.steps=5000 --set train.learning_rate=3e-4\n"
      "  metaformer train --resume runs/long --from step-1000 --out runs/branch\n"
      "  metaformer train --config my.yaml --overfit-batch --set train.steps=500");
  command.callback([arguments, &command] {
    if (command.count("--resume") > 0 && arguments->run.empty())  // CLI11 allows it, because the value may be left out
      fail_usage("--resume: is empty, and needs a value; is a variable of the shell not set?");
    run_train(*arguments, process_arguments());
  });
}

}  // namespace metaformer
