// Trains a model as `metaformer train` does and writes what the training started from, saw and came to: for comparison
// with independent code.
//
//   dump_training FOLDER [KEY=VALUE ...]     overrides of the default config
//
// FOLDER gets config.json, model.safetensors (initial weights) and training.safetensors (ids and targets [steps, b, c],
// losses [steps], final.NAME).

#include <iostream>

#include "base/files.h"
#include "config/loader.h"
#include "config/writer.h"
#include "model/parameters.h"
#include "ops/named_tensors.h"
#include "run/safetensors.h"
#include "tasks/make_task.h"
#include "train/optim/learning_rate.h"
#include "train/step.h"

int main(int argc, char** argv) {
  using namespace metaformer;
  if (argc < 2) {
    std::cerr << "usage: dump_training FOLDER [KEY=VALUE ...]\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const auto config = default_experiment({argv + 2, argv + argc}).config;
  const auto task = make_task(config, /*offline=*/true);
  Step trained(config, task, torch::kCPU);
  const auto& model = *trained.model;
  write_file_synced(folder / "config.json", config_to_json(config).dump(2));
  write_file_synced(folder / "model.safetensors", to_safetensors(named_state(model)));

  std::vector<torch::Tensor> ids, targets, losses;
  for (std::int64_t step = 0; step < config.train.steps; ++step) {
    const auto batch =
        task.batches->training_batch(step, 0, torch::kCPU);  // a function of (seed, step): what the step sees
    ids.push_back(batch.ids_bc);
    targets.push_back(batch.targets_bc);
    losses.push_back(
        trained.run(step, scheduled_rate(config.train, width_of(config.model), step)).loss.to(torch::kDouble));
  }
  NamedTensors training = {
      {"ids", torch::stack(ids)}, {"targets", torch::stack(targets)}, {"losses", torch::stack(losses)}};
  for (const auto& [name, value] : named_state(model)) training.emplace_back("final." + name, value);
  write_file_synced(folder / "training.safetensors", to_safetensors(training));
}
