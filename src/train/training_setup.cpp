#include "train/training_setup.h"

#include "model/initialise.h"
#include "model/make_model.h"
#include "ops/named_tensors.h"

namespace metaformer {

TrainingSetup::TrainingSetup(const ExperimentConfig& config, const Task& task, torch::Device device)
    : model(make_model(config, sizes_of(task.data->codec()))), schedule(make_schedule(config.train)) {
  initialise(*model, static_cast<std::uint64_t>(config.train.seed));
  model->to(device);
  parameters = std::make_unique<ParameterBuffer>(*model);
  optimizer = make_optimizer(*parameters, config.train);
  step = make_training_step({config, task, *model, *parameters, *optimizer, device});
}

void TrainingSetup::restore(const Checkpoint& checkpoint) {
  copy_by_name(checkpoint.model, named_state(*model), (checkpoint.folder / "model.safetensors").string());
  optimizer->load_state(checkpoint.optimizer, (checkpoint.folder / "state.safetensors").string());
}

}  // namespace metaformer
