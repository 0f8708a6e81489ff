#pragma once
// Trains a run: starts it, or continues it, and finishes it.

#include "config/loader.h"
#include "distributed/process_group.h"
#include "run/run_summary.h"

namespace metaformer {

// The device of that name, after a check that the config can be trained there; `force` skips the check of the memory.
// Errors: exit codes 2 and 5.
torch::Device prepare_device(const ExperimentConfig& config, const std::string& name, bool force = false);

// A checkpoint of a run, by the name that load_checkpoint takes.
struct NamedCheckpoint {
  std::filesystem::path run;
  std::string name;
};

struct TrainRequest {
  Experiment experiment;
  std::filesystem::path out;  // empty: runs/<config>-<time>
  bool resume = false;
  std::optional<NamedCheckpoint> from = std::nullopt;  // a new run continues from it; its own run stays as it is
  bool offline = false;
  bool profile = false;  // time by operator
  bool force = false;    // train even if the memory will clearly not suffice
  std::string device = "auto";
  std::vector<std::string> command_line;
  std::string resume_options = {};  // of the command that continues the run after a stop: " --processes 2"
  ProcessGroup* group = &one_process();
};

// Trains a new run, or resumes one, and returns the summary. A finished run is not trained again. All processes of a
// group must call it and see the run's folder; the first one writes there. Errors: see the exit codes in
// docs/commands.md.
RunSummary train(TrainRequest request);

}  // namespace metaformer
