#pragma once
// Checks whether a config can be trained on this machine: device, backend, memory.

#include <torch/types.h>

#include "config/experiment_config.h"
#include "text/tokenizer.h"

namespace metaformer {

// The device of that name, once the config can be trained there; with `force` however much memory it takes. Errors:
// exit codes 2 and 5.
torch::Device prepare_device(const ExperimentConfig& config, const std::string& name, bool force = false);

// The same of memory, when the data are known. Warns where it may not suffice.
void check_memory(const ExperimentConfig& config, const Codec& codec, torch::Device device, bool force);

// "mixer metric, 4 layers, 4 heads, width 128, context 256"; "lstm, 2 layers, width 128, context 64".
std::string describe_model(const ExperimentConfig& config);

}  // namespace metaformer
