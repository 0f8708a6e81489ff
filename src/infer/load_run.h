#pragma once
// A run that was trained, to sample from, to predict with or to evaluate.

#include <string>

#include "config_reader/loader.h"
#include "infer/model_changes.h"
#include "model/sequence_model.h"
#include "run/checkpoint.h"
#include "tasks/predictor.h"
#include "tasks/task.h"

namespace metaformer {

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
