#pragma once
// Reads a model that the library `transformers` has saved: GPT-2 or LLaMA, config.json and safetensors.

#include <filesystem>
#include <memory>

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

// Errors (exit code 3): a file is missing or damaged, a key of config.json says what this program's models are not, a
// tensor is missing, left over or of another shape.
PretrainedModel read_huggingface(const std::filesystem::path& folder);

// The same without tensors, whose files are not read.
PretrainedModel describe_huggingface(const std::filesystem::path& folder);

}  // namespace metaformer
