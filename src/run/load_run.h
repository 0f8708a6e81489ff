#pragma once
// A trained run.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/loader.h"
#include "model/sequence_model.h"
#include "run/checkpoint.h"
#include "tasks/task.h"

namespace metaformer {

// How a run's model is to differ from the one that was trained.
struct ModelChanges {
  std::optional<std::int64_t> context;  // tokens that it sees at once, in place of model.context
  std::vector<std::string> options;     // "model.mixer.rounds=8", "data.path=b.txt": what no weight depends on
};

// A run that was trained, to sample from, to predict with or to evaluate.
struct LoadedRun {
  Experiment experiment;
  RunDirectory directory;
  std::filesystem::path checkpoint;
  Progress progress;
  std::vector<std::string> moved_data;   // keys of data that lie elsewhere than in training: "data.path"
  std::shared_ptr<SequenceModel> model;  // on `device`, in evaluation mode; null for model.kind: linear
  std::shared_ptr<const Predictor> predictor;
  Codec codec;
  torch::Device device;
};

// One of a run's checkpoints (best, last, step-N or a folder). Errors: as load_checkpoint; exit code 2 for another
// context where positions are learned and for options that do not fit the weights, 4 when a weight is not finite.
LoadedRun load_run(const std::filesystem::path& folder, const std::string& checkpoint, const std::string& device,
                   const ModelChanges& changes = {});

// The task of a run, with the numbering of its checkpoint; warns where the data are not what it was trained on. Errors:
// exit codes 2 and 3, also for data at another path with another SHA-256.
Task task_of(const LoadedRun& run, bool offline);

}  // namespace metaformer
