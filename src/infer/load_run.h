#pragma once
// A run that was trained, to sample from, to predict with or to evaluate.

#include "config/loader.h"
#include "model/sequence_model.h"
#include "run/checkpoint.h"
#include "tasks/predictor.h"

namespace metaformer {

struct LoadedRun {
  Experiment experiment;
  RunDirectory directory;
  std::filesystem::path checkpoint;
  Progress progress;
  std::shared_ptr<SequenceModel> model;  // on `device`, in evaluation mode; null for model.kind: linear
  std::shared_ptr<const Predictor> predictor;
  Codec codec;
  torch::Device device;
};

// One of a run's checkpoints (best, last, step-N or a folder). Errors: as load_checkpoint, and exit code 4 when a
// weight is not finite.
LoadedRun load_run(const std::filesystem::path& folder, const std::string& checkpoint, const std::string& device);

}  // namespace metaformer
