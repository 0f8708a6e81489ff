#include "base/log.h"
#include "base/signals.h"
#include "cli/command_line.h"
#include "train/run.h"

namespace metaformer {

namespace {

struct TrainArguments {
  ConfigChoice choice;
  TrainRequest request;
  ProcessChoice processes;
  bool overfit_batch = false, json = false, quiet = false;
};

void run_train(TrainArguments& arguments, const std::vector<std::string>& command_line) {
  set_stop_notice("stopping; again to quit");
  ignore_broken_pipes();  // `train 2>&1 | head` must not end a training
  log::set_quiet(arguments.quiet);
  if (arguments.overfit_batch) arguments.choice.overrides.emplace_back("train.overfit_batch=true");
  arguments.request.experiment = arguments.choice.load();
  const auto& experiment = arguments.request.experiment;
  arguments.request.command_line = command_line;
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
  command.add_option("--out", arguments->request.out, "run folder to create; default: runs/<config>-<time>");
  command.add_flag("--resume", arguments->request.resume, "continue the run in --out from its newest checkpoint");
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
      "  metaformer train --config my.yaml --out runs/long --resume\n"
      "  metaformer train --config my.yaml --overfit-batch --set train.steps=500");
  command.callback([arguments] { run_train(*arguments, process_arguments()); });
}

}  // namespace metaformer
