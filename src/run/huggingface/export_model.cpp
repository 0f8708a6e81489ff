#include "run/huggingface/export_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/platform.h"
#include "config/writer.h"
#include "ops/device.h"
#include "run/huggingface/architecture.h"
#include "run/safetensors.h"
#include "text/byte_level_bpe.h"
#include "text/library_tokenizer.h"
#include "text/make_tokenizer.h"
#include "text/sentencepiece.h"
#include "text/special_tokens.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

struct File {
  std::string name, content;
};

// Throws Error (exit code 2) with the keys that differ from the architecture that is nearest.
const Architecture& architecture_of(const ExperimentConfig& config) {
  std::vector<std::string> differences;
  const Architecture* nearest = nullptr;
  if (!is<TransformerConfig>(config.model)) {
    differences.push_back(fmt::format("model.kind is {} and must be transformer", kind_of(config.model)));
  } else if (!is_causal(config.task)) {
    differences.push_back(fmt::format("task.kind is {} and must be language_model", kind_of(config.task)));
  } else {
    const auto& model = std::get<TransformerConfig>(config.model);
    for (const auto* architecture : architectures()) {
      auto found = config_differences(model, architecture->closest(model));
      if (model.memory > 0) found.push_back(fmt::format("model.memory is {} and must be 0", model.memory));
      if (found.empty()) return *architecture;
      if (nearest != nullptr && found.size() >= differences.size()) continue;
      nearest = architecture;
      differences = std::move(found);
    }
  }
  throw Error(
      ExitCode::usage,
      fmt::format("--format huggingface: the library has no such model{}: {}; --format safetensors takes any model",
                  nearest == nullptr ? "" : fmt::format(", the nearest is {}", nearest->model_type),
                  fmt::join(differences, "; ")));
}

// Tokens without a name that the written tokenizer has would be added behind its last one, where the model has no row.
Json names_of(const SpecialTokens& tokens, const nlohmann::json& tokenizer_file) {
  std::set<std::string> known;
  const auto& vocabulary = tokenizer_file.at("model").at("vocab");
  if (vocabulary.is_object())
    for (const auto& [name, id] : vocabulary.items()) known.insert(name);
  else
    for (const auto& piece : vocabulary) known.insert(piece.at(0).get<std::string>());
  for (const auto& token : tokenizer_file.at("added_tokens")) known.insert(token.at("content").get<std::string>());
  auto names = Json::object();
  for (const auto& [key, name] : tokens.names)
    if (known.contains(name)) names[key] = name;
  return names;
}

std::vector<File> tokenizer_files(const Tokenizer& tokenizer, std::int64_t context) {
  std::vector<File> files;
  const auto add_own = [&] { files.push_back({own_tokenizer_file, tokenizer.to_json().dump(1) + "\n"}); };
  const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer);
  const auto written = to_library_tokenizer(tokenizer);
  if (written.file.empty()) {
    log::warning(
        "transformers will find no tokenizer: it has none like this one ({}): {}; it is in {}, which only this "
        "program reads",
        tokenizer.to_json().at("kind").get<std::string>(), written.problem, own_tokenizer_file);
    add_own();
    return files;
  }
  const bool finds_special_tokens = dynamic_cast<const ByteLevelBpeTokenizer*>(&tokenizer) != nullptr;
  const auto names = names_of(special_tokens_of(tokenizer), parse_json(written.file));
  files.push_back({"tokenizer.json", written.file});
  // Plain text stays so, whatever special tokens it names, unless the tokenizer itself finds them.
  Json settings = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"model_input_names", {"input_ids", "attention_mask"}},
                   {"model_max_length", context},
                   {"clean_up_tokenization_spaces", false},
                   {"split_special_tokens", !finds_special_tokens}};
  for (const auto* key : {"bos_token", "eos_token", "pad_token", "unk_token"})
    settings[key] = names.contains(key) ? names[key] : Json(nullptr);
  files.push_back({"tokenizer_config.json", settings.dump(2) + "\n"});
  files.push_back({"special_tokens_map.json", names.dump(2) + "\n"});
  if (pieces != nullptr)
    files.push_back({"tokenizer.model", pieces->model()});
  else if (!finds_special_tokens)
    add_own();
  return files;
}

std::vector<File> huggingface_files(const ExportedModel& model) {
  const auto& architecture = architecture_of(model.config);
  const auto& config = std::get<TransformerConfig>(model.config.model);
  const auto& tokenizer = *model.codec.tokenizer;
  const DescribedModel described{
      .config = config, .vocabulary = tokenizer.vocabulary_size(), .key_value_heads = config.heads};
  auto files = tokenizer_files(tokenizer, config.context);
  const auto special_tokens = special_tokens_of(tokenizer);
  auto description = architecture.write_config(described);
  // null says that there is no such token, where the library would put in one of its own.
  const auto value = [](std::optional<std::int32_t> id) { return id ? Json(*id) : Json(nullptr); };
  const auto& eos = special_tokens.eos;
  const Json generation = {{"bos_token_id", value(special_tokens.bos)},
                           {"eos_token_id", eos.empty()       ? Json(nullptr)
                                            : eos.size() == 1 ? Json(eos[0])
                                                              : Json(eos)},
                           {"pad_token_id", value(special_tokens.pad)}};
  description.update(generation);
  files.push_back({"config.json", description.dump(2) + "\n"});
  files.push_back({"generation_config.json", generation.dump(2) + "\n"});
  files.push_back(
      {"model.safetensors", to_safetensors(export_tensors(architecture, described, model.tensors, "the checkpoint"))});
  return files;
}

std::vector<File> own_files(const ExportedModel& model) {
  std::vector<File> files = {
      {"config.yaml", config_to_yaml(model.config)},
      {"tokenizer.json", model.codec.tokenizer->to_json().dump(1) + "\n"},
      {"model.safetensors",
       to_safetensors(model.tensors, {{"producer", fmt::format("metaformer {}", build_info().version)},
                                      {"step", std::to_string(model.step)},
                                      {"config", json_text(config_to_json(model.config))}})}};
  if (!model.codec.labels.empty()) files.push_back({"labels.json", Json(model.codec.labels).dump(1) + "\n"});
  return files;
}

// Writes all of them into a folder that gets its name at the end.
void write_folder(const fs::path& folder, const std::vector<File>& files) {
  const auto temporary = temporary_name(folder);
  try {
    fs::create_directories(temporary);
    for (const auto& [name, content] : files) write_file_synced(temporary / name, content);
    sync_folder(temporary);
    fs::rename(temporary, folder);
    sync_folder(folder.parent_path());
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    if (is_out_of_memory(error)) throw;
    throw Error(ExitCode::failure, fmt::format("{}: could not be written: {}", folder.string(), error.what()));
  }
}

}  // namespace

std::vector<std::string> export_model(const ExportedModel& model, ExportFormat format, const fs::path& given) {
  auto folder = fs::absolute(given).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "out/"
  if (fs::exists(fs::symlink_status(folder)))
    throw Error(ExitCode::usage, fmt::format("{}: exists already, and is not overwritten", given.string()));
  const auto files = format == ExportFormat::huggingface ? huggingface_files(model) : own_files(model);
  write_folder(folder, files);
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace metaformer
