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

// Changes of a run's model compared with training.
struct ModelChanges {
  std::optional<std::int64_t> context;  // tokens that it sees at once, instead of model.context
  std::vector<std::string> options;     // on which no weight depends: "model.mixer.rounds=8", "data.path=b.txt"
};

// A trained run, for sampling, prediction or evaluation.
struct LoadedRun {
  Experiment experiment;
  RunDirectory directory;
  std::filesystem::path checkpoint;
  Progress progress;
  std::vector<std::string> moved_data;   // keys of data whose path has changed since training: "data.path"
  std::shared_ptr<SequenceModel> model;  // on `device`, in evaluation mode; null for model.kind: linear
  std::shared_ptr<const Predictor> predictor;
  Codec codec;
  torch::Device device;
};

// Loads one of a run's checkpoints (best, last, step-N or a folder). Errors: as load_checkpoint; exit code 2 for
// another context when positions are learned, and for options that do not fit the weights; 4 when a weight is not
// finite.
LoadedRun load_run(const std::filesystem::path& folder, const std::string& checkpoint, const std::string& device,
                   const ModelChanges& changes = {});

// The task of a run, with the tokenizer and labels of its checkpoint. Warns if the data are not those that it was
// trained on. Errors: exit codes 2 and 3, also for data at a new path with another SHA-256.
Task task_of(const LoadedRun& run, bool offline);

}  // namespace metaformer
