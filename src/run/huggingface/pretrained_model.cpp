#include "run/huggingface/pretrained_model.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "config/loader.h"
#include "config/writer.h"
#include "run/huggingface/architecture.h"
#include "run/safetensors.h"
#include "text/make_tokenizer.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t largest_json = 1 << 28;
constexpr std::uintmax_t largest_weights = std::uintmax_t{1} << 40;
constexpr const char* config_file = "config.json";
constexpr const char* weights_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";

bool has_file(const fs::path& folder, const char* name) {
  std::error_code ignored;
  return fs::is_regular_file(folder / name, ignored);
}

// Another program has written them: what is wrong with them are wrong data.
NamedTensors read_tensors(const fs::path& file) {
  const auto bytes = read_file(file, largest_weights, ExitCode::data);
  try {
    return from_safetensors(bytes, file.string());
  } catch (const Error& error) {
    throw Error(ExitCode::data, error.what());
  }
}

// The files of a model that was cut into several.
std::set<std::string> files_of_index(const fs::path& path) {
  const auto json = parse_json(read_file(path, largest_json, ExitCode::data));
  const auto map = json.is_object() ? json.value("weight_map", nlohmann::json()) : nlohmann::json();
  std::set<std::string> files;
  for (const auto& entry : map) {
    const auto file = entry.is_string() ? entry.get<std::string>() : "";
    if (file.empty() || fs::path(file).filename() != file)
      throw Error(ExitCode::data, fmt::format("{}: weight_map: {} is no file of this folder", path.string(),
                                              printable(json_text(entry))));
    files.insert(file);
  }
  if (files.empty()) throw Error(ExitCode::data, path.string() + ": weight_map names no files");
  return files;
}

NamedTensors read_all_tensors(const fs::path& folder) {
  if (has_file(folder, weights_file)) return read_tensors(folder / weights_file);
  if (!has_file(folder, index_file))
    throw Error(ExitCode::data, fmt::format("{}: has neither {} nor {}; weights in other formats are not read",
                                            folder.string(), weights_file, index_file));
  NamedTensors all;
  std::set<std::string> names;
  for (const auto& file : files_of_index(folder / index_file))
    for (auto& [name, tensor] : read_tensors(folder / file)) {
      if (!names.insert(name).second)
        throw Error(ExitCode::data, fmt::format("{}: the tensor {} is in another file, too", (folder / file).string(),
                                                in_quotes(name)));
      all.emplace_back(name, std::move(tensor));
    }
  return all;
}

// Its numbers lie in the ranges of a config, by whose keys the errors name them.
void require_valid(const TransformerConfig& config, const fs::path& folder) {
  const ExperimentConfig experiment{.model = config};
  Provenance provenance;
  for (const auto& [key, value] : flattened(config_to_json(experiment)))
    if (key.starts_with("model.")) provenance[key] = {.source = (folder / config_file).string()};
  try {
    check_config(experiment, provenance);
  } catch (const Error& error) {
    throw Error(ExitCode::data, error.what());
  }
}

PretrainedModel read_model(const fs::path& folder, bool with_tensors) {
  const auto path = (folder / config_file).string();
  ConfigFile file(read_file(path, largest_json, ExitCode::data), path);
  const auto type = file.text("model_type");
  const Architecture* architecture = nullptr;
  std::vector<std::string> types;
  for (const auto* known : architectures()) {
    if (known->model_type == type) architecture = known;
    types.emplace_back(known->model_type);
  }
  if (architecture == nullptr) file.refuse("model_type", fmt::format("only {} is supported", join_alternatives(types)));
  const auto described = architecture->read_config(file);
  file.require("is_encoder_decoder", false);
  file.require("pruned_heads", nlohmann::json::object());
  auto ignored = file.unknown_keys();
  for (auto& key : ignored) key = printable(key);
  require_valid(described.config, folder);
  if (!ignored.empty())
    log::info("{}: keys that are no part of a {} are ignored: {}", path, type, fmt::join(ignored, ", "));
  PretrainedModel model{.config = described.config, .vocabulary = described.vocabulary, .tensors = {}, .tokenizer = {}};
  if (find_pretrained_tokenizer(folder)) model.tokenizer = read_pretrained_tokenizer(folder);
  if (model.tokenizer && model.tokenizer->vocabulary_size() > model.vocabulary)
    throw Error(ExitCode::data, fmt::format("{}: its tokenizer has {} tokens, and vocab_size is {}", path,
                                            model.tokenizer->vocabulary_size(), model.vocabulary));
  if (with_tensors) model.tensors = import_tensors(*architecture, described, read_all_tensors(folder), folder.string());
  return model;
}

}  // namespace

bool is_huggingface_folder(const fs::path& folder) {
  if (!has_file(folder, config_file)) return false;
  const auto json = parse_json(read_file(folder / config_file, largest_json, ExitCode::data));
  return json.is_object() && json.contains("model_type");
}

PretrainedModel describe_huggingface(const fs::path& folder) { return read_model(folder, /*with_tensors=*/false); }

PretrainedModel read_huggingface(const fs::path& folder) { return read_model(folder, /*with_tensors=*/true); }

}  // namespace metaformer
