#pragma once
// --resume: finds the run to continue, and checks that it may continue.

#include <memory>
#include <optional>

#include "base/file_lock.h"
#include "config/experiment_config.h"
#include "run/checkpoint.h"
#include "tasks/task.h"

namespace metaformer {

struct EarlierRun {
  RunDirectory run;
  ExperimentConfig config;  // as it was trained last
  std::unique_ptr<FileLock> lock;
  std::optional<Checkpoint> checkpoint;  // nothing: it goes on from the start
};

// The run in `out`, locked and mended, with its newest checkpoint; nothing for a new run. Errors (exit code 2): it
// cannot go on with this config, which may change only steps, intervals, patience, retention and where data and
// tokenizer lie; those of load_newest_checkpoint.
std::optional<EarlierRun> find_earlier_run(const ExperimentConfig& config, const std::filesystem::path& out,
                                           bool resume);

// Errors: the data are not those that the run was trained on (exit code 2; 3 at another path than before).
void require_same_data(const EarlierRun& earlier, const ExperimentConfig& config, const Task& task);

// Logs how the learning rate goes on where the number of steps has changed: another number stretches the schedule, so
// that the rate jumps where training continues.
void describe_schedule(const ExperimentConfig& before, const ExperimentConfig& now, const Progress& progress);

}  // namespace metaformer
