#pragma once
// Exchange of models with other programs: reads GPT-2 or LLaMA as saved by the library `transformers` (config.json and
// safetensors), and exports trained models.

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
  NamedTensors tensors;                  // with this program's parameter names, float32
  std::unique_ptr<Tokenizer> tokenizer;  // null if the folder has none
};

// For errors about a folder that does not exist.
constexpr const char* download_advice =
    "Nothing is downloaded: fetch it first, for instance with `hf download openai-community/gpt2 --local-dir gpt2`";

// Whether a folder has a config.json with a model_type.
bool is_huggingface_folder(const std::filesystem::path& folder);

// Reads a GPT-2, a LLaMA, or a transformer that export_model wrote; with_tensors = false skips the weight files. Errors
// (exit code 3): a file is missing or damaged, a key of config.json has a value that this program does not support, a
// tensor is missing, left over or of another shape.
PretrainedModel read_huggingface(const std::filesystem::path& folder, bool with_tensors = true);

enum class ExportFormat { huggingface, safetensors, peft, gguf };
constexpr std::array<std::string_view, 4> enum_names(ExportFormat) {
  return {"huggingface", "safetensors", "peft", "gguf"};
}

struct ExportedModel {
  const ExperimentConfig& config;
  const NamedTensors& tensors;  // with this program's parameter names
  const Codec& codec;
  std::int64_t step = 0;       // step of the weights
  NamedTensors adapters = {};  // for peft: the factors of train.lora (adapters_in of train/lora.h)
};

// Writes the files into `folder`, which must not exist, and returns their names:
//   huggingface   config.json, generation_config.json, model.safetensors and tokenizer for the library `transformers`:
//                 of a GPT-2 or LLaMA, or of another language model with the Python files that compute it
//   safetensors   model.safetensors with the config and the step as metadata; config.yaml, tokenizer.json and
//                 labels.json as in a run and its checkpoints
//   peft          adapter_config.json and adapter_model.safetensors, which the package `peft` adds to the GPT-2 or
//                 LLaMA of the initial weights
//   gguf          model.gguf of a LLaMA for llama.cpp (llama_cpp.h)
// Errors: exit code 2 when the folder exists, when the model is no language model (for peft: no GPT-2 or LLaMA, for
// gguf: no LLaMA, with the keys that differ), when it has no adapters, or a tokenizer that llama.cpp lacks; 1 when it
// cannot be written, and then there is no folder. A tokenizer that the library does not support causes a warning.
std::vector<std::string> export_model(const ExportedModel& model, ExportFormat format,
                                      const std::filesystem::path& folder);

}  // namespace metaformer
