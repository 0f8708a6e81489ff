#pragma once
// Language models that the library `transformers` lacks. It loads them with the Python files of run/huggingface/code,
// which stand beside the weights (trust_remote_code). The weights keep this program's names.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/model_config.h"

namespace metaformer {

inline constexpr std::string_view custom_model_type = "metaformer";  // in config.json

// config.json of a model that predicts a token from those before it. Its key `model` is that section of our config.
nlohmann::ordered_json write_custom_config(const ModelConfig& model, std::int64_t vocabulary);

// Names and contents of the Python files.
std::vector<std::pair<std::string, std::string>> custom_code_files();

// The files, as the build read them (cmake/EmbedFiles.cmake).
namespace embedded {
extern const std::string_view configuration_code, modeling_code, attention_code, mixers_code;
}

}  // namespace metaformer
