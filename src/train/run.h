#pragma once
// Starting, continuing and reading runs: what the subcommands share.

#include "config/loader.h"
#include "run/checkpoint.h"
#include "tasks/task.h"

namespace metaformer {

// The device of that name, once the config can be trained there; with `force` however much memory it takes. Errors:
// exit codes 2 and 5.
torch::Device prepare_device(const ExperimentConfig& config, const std::string& name, bool force = false);

struct TrainRequest {
  Experiment experiment;
  std::filesystem::path out;  // empty: runs/<config>-<time>
  bool resume = false;
  bool offline = false;
  bool profile = false;  // time by operator
  bool force = false;    // train even where the memory will clearly not suffice
  std::string device = "auto";
  std::vector<std::string> command_line;
};

// Trains, or continues. Returns the summary. A finished run is not trained again. Errors: see the exit codes in
// README.md.
nlohmann::ordered_json train(TrainRequest request);

// Whether the data of a task are those that the run was trained on, wherever they lie now. True when the run does not
// say.
bool has_same_data(const RunDirectory& run, const Task& task);

struct LoadedRun {
  Experiment experiment;
  RunDirectory directory;
  std::filesystem::path checkpoint;
  Progress progress;
  std::shared_ptr<SequenceModel> model;  // on `device`, in evaluation mode
  Codec codec;
  torch::Device device;
};

// A run's model from one of its checkpoints (best, last, step-N or a folder). Errors: as load_checkpoint, and exit code
// 4 when a weight is not finite.
LoadedRun load_run(const std::filesystem::path& folder, const std::string& checkpoint, const std::string& device);

}  // namespace metaformer
