#include "train/training_setup.h"

#include "model/initialise.h"
#include "model/make_model.h"
#include "ops/named_tensors.h"
#include "optim/layer_rates.h"
#include "optim/make_optimizer.h"
#include "optim/make_schedule.h"
#include "step/gradients.h"
#include "step/make_training_step.h"

namespace metaformer {

TrainingSetup::TrainingSetup(const ExperimentConfig& config, const Task& task, torch::Device device,
                             const InitialWeights* initial, ProcessGroup& group)
    : model(make_model(config, sizes_of(task.data->codec()))),
      schedule(make_schedule(config.train, width_of(config.model))),
      rows_(config.train.batch_size * config.train.accumulate) {
  initialise(*model, static_cast<std::uint64_t>(config.train.seed));
  if (initial != nullptr) taken = take_weights(*initial, config, task.data->codec(), *model);
  model->to(device);
  parameters = std::make_unique<ParameterBuffer>(*model);
  set_layer_rates(*parameters, config.train);
  if (config.train.precision == Precision::fp16) loss_scale = std::make_unique<LossScale>(device);
  const auto scale = loss_scale ? loss_scale->of_gradients() : GradientScale{};
  auto sharded = config.train.shard_optimizer && group.size() > 1
                     ? std::make_unique<ShardedOptimizer>(*parameters, config.train, scale, group)
                     : nullptr;
  const auto* shards = sharded ? &sharded->shards() : nullptr;
  optimizer = sharded ? std::move(sharded) : make_optimizer(*parameters, config.train, scale);
  average = std::make_unique<WeightAverage>(*parameters, config.train.weight_average.decay);
  StepParts parts{config, task, *model, *parameters, *optimizer, device, loss_scale.get()};
  parts.group = &group;
  parts.shards = shards;
  if (group.size() > 1) gradient_sum = std::make_unique<GradientSum>(group, *parameters, shards);
  parts.gradient_sum = gradient_sum.get();
  memory = std::make_unique<StepMemory>(*model, batches_of_step(parts), slices_of_batch(parts), group);
  parts.memory = memory.get();
  step = make_training_step(parts);
}

NamedTensors TrainingSetup::state() const {
  auto all = optimizer->state();
  const auto add = [&](NamedTensors more) { all.insert(all.end(), more.begin(), more.end()); };
  if (loss_scale) add(loss_scale->state());
  add(average->state());
  add(memory->tensors());
  return all;
}

void TrainingSetup::restore(const Checkpoint& checkpoint) {
  const WeightAverage::Use use(*average);
  copy_by_name(checkpoint.model, named_state(*model), (checkpoint.folder / "model.safetensors").string());
  const auto file = (checkpoint.folder / "state.safetensors").string();
  auto saved = checkpoint.optimizer;
  memory->reset();
  const auto targets = state();
  memory->take(saved, rows_, file);
  copy_by_name(saved, targets, file);
  optimizer->load(targets);
}

void TrainingSetup::restart(const torch::Tensor& values) {
  const torch::NoGradGuard no_grad;
  parameters->values().copy_(values);
  optimizer->reset();
  if (loss_scale) loss_scale->reset();
  average->reset();
  memory->reset();
}

}  // namespace metaformer
