#pragma once
// Models of other programs: reads GPT-2 or LLaMA as the library `transformers` has saved them, config.json and
// safetensors; writes a trained model for others.

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "config/model_config.h"
#include "ops/named_tensors.h"
#include "text/tokenizer.h"

namespace metaformer {

struct PretrainedModel {
  TransformerConfig config;
  std::int64_t vocabulary = 0;
  NamedTensors tensors;                  // by the names of this program's parameters, float32
  std::unique_ptr<Tokenizer> tokenizer;  // null where the folder has none
};

// Whether a folder has a config.json that names a kind of model.
bool is_huggingface_folder(const std::filesystem::path& folder);

// Without tensors their files are not read. Errors (exit code 3): a file is missing or damaged, a key of config.json
// says what this program's models are not, a tensor is missing, left over or of another shape.
PretrainedModel read_huggingface(const std::filesystem::path& folder, bool with_tensors = true);

enum class ExportFormat { huggingface, safetensors };
constexpr std::array<std::string_view, 2> enum_names(ExportFormat) { return {"huggingface", "safetensors"}; }

struct ExportedModel {
  const ExperimentConfig& config;
  const NamedTensors& tensors;  // by the names of this program
  const Codec& codec;
  std::int64_t step = 0;  // that the weights are from
};

// Writes the files into `folder`, which must not exist, and returns their names:
//   huggingface   config.json, generation_config.json, model.safetensors and tokenizer of a GPT-2 or LLaMA of the
//                 library `transformers`
//   safetensors   model.safetensors with the config and the step as metadata; config.yaml, tokenizer.json and
//                 labels.json as in a run and its checkpoints
// Errors: exit code 2 when the folder exists, or when the model is no GPT-2 or LLaMA, with the keys that differ; 1 when
// it cannot be written, and then there is no folder. A tokenizer that the library cannot have is a warning.
std::vector<std::string> export_model(const ExportedModel& model, ExportFormat format,
                                      const std::filesystem::path& folder);

}  // namespace metaformer
