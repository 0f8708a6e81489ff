#pragma once
// A config to begin with, chosen by the user's data and by the device. Sizes and recipes are those of the shipped
// configs: shakespeare_good.yaml for texts, imdb_scaled_dot_product.yaml for tables, multi30k_base.yaml for pairs.

#include <c10/core/Device.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cuda/devices.h"
#include "data/first_look.h"

namespace metaformer {

// The processor or the GPU that trains.
struct Machine {
  std::string gpu = {};              // its name; "": the processor
  int threads = 1;                   // of the processor
  std::uint64_t memory = 0;          // bytes
  double operations_per_second = 0;  // of the products in training, by all threads; a rough estimate
  bool has_half_products = false;    // bf16 products are faster than fp32 products

  bool is_gpu() const { return !gpu.empty(); }
  const char* kind() const { return is_gpu() ? "GPU" : "CPU"; }
};

Machine machine_of(const cuda::Device& gpu);
Machine machine_of(c10::Device device);

struct ChosenKey {
  std::string key;  // "model.width"
  nlohmann::ordered_json value;
  std::string reason;          // "": the usual value
  bool is_suggestion = false;  // written as a comment
};

struct StartingConfig {
  std::vector<ChosenKey> keys;  // section by section
  std::int64_t parameters = 0;
  std::uint64_t memory = 0;  // bytes, an estimate
  double step_seconds = 0;   // an estimate
  std::int64_t steps = 0;

  double seconds() const { return step_seconds * static_cast<double>(steps); }
};

// The result is a valid config whose training fits into half of the machine's memory, and takes about five minutes or
// less. The model is the largest of a few sizes for which there are enough data and time; a GPU has larger batches.
// Errors (exit code 3): a text that is too short for training and validation.
StartingConfig choose_config(const TextLook& look, const Machine& machine);
StartingConfig choose_config(const TableLook& look, const Machine& machine);
StartingConfig choose_config(const PairsLook& look, const Machine& machine);

// The parameters, the memory and the time, for people.
std::string describe(const StartingConfig& config, const Machine& machine);

// The config as YAML with comments. `head`: the lines of the comment at its beginning.
std::string to_yaml(const StartingConfig& config, const std::vector<std::string>& head);

}  // namespace metaformer
