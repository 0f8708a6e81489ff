#include "train/resume.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "config/writer.h"
#include "config_reader/loader.h"
#include "optim/make_schedule.h"
#include "run/environment.h"
#include "train/rollback.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

// The first key whose value differs, but for those that may differ when a run goes on.
std::string first_difference(const Json& before, const Json& now, const std::string& prefix = "") {
  static const std::vector<std::string> free = {
      "train.steps",        "train.eval_interval",        "train.checkpoint_interval",
      "train.log_interval", "train.diagnostics_interval", "train.keep_checkpoints",
      "train.patience"};
  for (const auto& [key, value] : now.items()) {
    const auto path = prefix + key;
    const auto earlier = before.value(key, Json());
    if (value.is_object() && earlier.is_object()) {
      if (auto inner = first_difference(earlier, value, path + "."); !inner.empty()) return inner;
    } else if (value != earlier && std::find(free.begin(), free.end(), path) == free.end()) {
      return fmt::format("{} is {} now and was {}", path, json_text(value), json_text(earlier));
    }
  }
  return "";
}

void require_same_experiment(const RunDirectory& run, const ExperimentConfig& before, const ExperimentConfig& now) {
  const auto difference = first_difference(config_to_json(before), config_to_json(now));
  if (!difference.empty())
    throw Error(ExitCode::usage,
                fmt::format("--resume {}: {}; only steps, intervals, patience and retention may change",
                            run.path().string(), difference));
}

// What is done cannot be undone. A linear model has its one step whatever train.steps says.
void require_reachable(const RunDirectory& run, const ExperimentConfig& config, const Progress& progress) {
  if (config.train.steps < progress.step)
    throw Error(ExitCode::usage, fmt::format("--resume {}: train.steps is {}, and the run has done {} steps; give at "
                                             "least that many",
                                             run.path().string(), config.train.steps, progress.step));
}

}  // namespace

std::optional<EarlierRun> find_earlier_run(const ExperimentConfig& config, const std::filesystem::path& out,
                                           bool resume) {
  if (resume && out.empty()) throw Error(ExitCode::usage, "--resume needs --out: the run to go on with");
  if (!resume || RunDirectory::is_free(out)) return std::nullopt;
  EarlierRun earlier{.run = RunDirectory::open(out, "--out"), .config = {}, .lock = {}, .checkpoint = {}};
  earlier.lock = std::make_unique<FileLock>(earlier.run.lock_file());
  earlier.config = load_run_experiment(earlier.run.config_file()).config;
  require_same_experiment(earlier.run, earlier.config, config);
  earlier.run.remove_left_overs();
  mend_checkpoints(earlier.run);
  earlier.checkpoint = load_newest_checkpoint(earlier.run);
  if (earlier.checkpoint) require_reachable(earlier.run, config, earlier.checkpoint->progress);
  return earlier;
}

void require_same_data(const RunDirectory& run, const Task& task) {
  if (!has_same_data(run, task.data->description()))
    throw Error(ExitCode::usage, fmt::format("--resume {}: the data are not those it was trained on (its "
                                             "environment.json names them)",
                                             run.path().string()));
}

void describe_schedule(const ExperimentConfig& before, const ExperimentConfig& now, const Progress& progress) {
  const auto steps_before = before.train.steps, steps = now.train.steps;
  if (is<LinearConfig>(now.model) || steps_before == steps) return;
  const auto rate = [&](const ExperimentConfig& config, std::int64_t step) {
    return make_schedule(config.train, width_of(config.model))->rate(step) * rollback_factor(config.train, progress);
  };
  const auto next = progress.step;
  const double earlier = rate(before, next), here = rate(now, next);
  const auto course = fmt::format(
      "train.steps was {} and is {}; the {} schedule continues at step {} with learning rate {:.3g}{} and ends at step "
      "{} with {:.3g}",
      steps_before, steps, kind_of(now.train.schedule), next, here,
      here == earlier ? ", as before," : fmt::format(", where it was {:.3g} before,", earlier), steps,
      rate(now, steps - 1));
  here == earlier ? log::write_info(course) : log::write_warning(course);
}

}  // namespace metaformer
