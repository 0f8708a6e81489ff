#include "huggingface/export_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/build_info.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "config/writer.h"
#include "huggingface/architecture.h"
#include "huggingface/config_differences.h"
#include "huggingface/numpy_archive.h"
#include "run/safetensors.h"
#include "text/byte_level_bpe.h"
#include "text/sentencepiece_tokenizer.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* npz_file = "model.npz";

struct File {
  std::string name, content;
};

std::vector<std::string> differences_from(const Architecture& architecture, const ExperimentConfig& config) {
  const auto& model = std::get<TransformerConfig>(config.model);
  auto differences = config_differences(model, architecture.closest(model));
  if (model.memory > 0) differences.push_back(fmt::format("model.memory is {} and must be 0", model.memory));
  return differences;
}

// Throws Error (exit code 2) with the keys that differ from the architecture that is nearest.
const Architecture& architecture_of(const ExperimentConfig& config) {
  std::vector<std::string> differences;
  const Architecture* nearest = nullptr;
  if (!is<TransformerConfig>(config.model)) {
    differences.push_back(fmt::format("model.kind is {} and must be transformer", kind_of(config.model)));
  } else if (!is_causal(config.task)) {
    differences.push_back(fmt::format("task.kind is {} and must be language_model", kind_of(config.task)));
  } else {
    for (const auto* architecture : architectures()) {
      auto found = differences_from(*architecture, config);
      if (found.empty()) return *architecture;
      if (nearest != nullptr && found.size() >= differences.size()) continue;
      nearest = architecture;
      differences = std::move(found);
    }
  }
  throw Error(
      ExitCode::usage,
      fmt::format("--format huggingface: the library has no such model{}: {}; safetensors and numpy take any model",
                  nearest == nullptr ? "" : fmt::format(", the nearest is {}", nearest->model_type()),
                  fmt::join(differences, "; ")));
}

std::vector<File> tokenizer_files(const Tokenizer& tokenizer, std::int64_t context) {
  if (const auto* bpe = dynamic_cast<const ByteLevelBpeTokenizer*>(&tokenizer)) {
    const Json settings = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                           {"clean_up_tokenization_spaces", false},
                           {"model_max_length", context}};
    return {{"tokenizer.json", bpe->file()}, {"tokenizer_config.json", settings.dump(2) + "\n"}};
  }
  const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer);
  if (pieces != nullptr && pieces->whitespace() == Whitespace::kept) return {{"tokenizer.model", pieces->model()}};
  constexpr const char* own_file = "metaformer_tokenizer.json";
  const auto json = tokenizer.to_json();
  log::warning("the library has no tokenizer of kind {}: it is in {}, which only this program reads",
               json.at("kind").get<std::string>(), own_file);
  return {{own_file, json.dump(1) + "\n"}};
}

std::vector<File> huggingface_files(const ExportedModel& model) {
  const auto& architecture = architecture_of(model.config);
  const auto& config = std::get<TransformerConfig>(model.config.model);
  const DescribedModel described{
      .config = config, .vocabulary = model.codec.tokenizer->vocabulary_size(), .key_value_heads = config.heads};
  auto files = tokenizer_files(*model.codec.tokenizer, config.context);
  files.push_back({"config.json", architecture.write_config(described).dump(2) + "\n"});
  files.push_back(
      {"model.safetensors", to_safetensors(export_tensors(architecture, described, model.tensors, "the checkpoint"))});
  return files;
}

std::vector<File> own_files(const ExportedModel& model) {
  std::vector<File> files = {{"config.yaml", config_to_yaml(model.config)},
                             {"tokenizer.json", model.codec.tokenizer->to_json().dump(1) + "\n"}};
  if (!model.codec.labels.empty()) files.push_back({"labels.json", Json(model.codec.labels).dump(1) + "\n"});
  return files;
}

std::vector<File> files_of(const ExportedModel& model, ExportFormat format) {
  if (format == ExportFormat::huggingface) return huggingface_files(model);
  auto files = own_files(model);
  if (format == ExportFormat::safetensors)
    files.push_back({"model.safetensors",
                     to_safetensors(model.tensors, {{"producer", fmt::format("metaformer {}", build_info().version)},
                                                    {"step", std::to_string(model.step)},
                                                    {"config", json_text(config_to_json(model.config))}})});
  return files;
}

// Writes all of them into a folder that gets its name at the end.
void write_folder(const fs::path& folder, const std::vector<File>& files, const NamedTensors* npz) {
  const auto temporary = temporary_name(folder);
  try {
    fs::create_directories(temporary);
    for (const auto& [name, content] : files) write_file_synced(temporary / name, content);
    if (npz != nullptr) {
      write_npz(temporary / npz_file, *npz);
      sync_file(temporary / npz_file);
    }
    sync_folder(temporary);
    fs::rename(temporary, folder);
    sync_folder(folder.parent_path());
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw Error(ExitCode::failure, fmt::format("{}: could not be written: {}", folder.string(), error.what()));
  }
}

}  // namespace

std::vector<std::string> export_model(const ExportedModel& model, ExportFormat format, const fs::path& given) {
  auto folder = fs::absolute(given).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "out/"
  if (fs::exists(fs::symlink_status(folder)))
    throw Error(ExitCode::usage, fmt::format("{}: exists already, and is not overwritten", given.string()));
  const auto files = files_of(model, format);
  const bool has_npz = format == ExportFormat::numpy;
  write_folder(folder, files, has_npz ? &model.tensors : nullptr);
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.name);
  if (has_npz) names.emplace_back(npz_file);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace metaformer
