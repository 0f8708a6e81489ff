#include "run/huggingface/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/text.h"
#include "config/loader.h"
#include "config/writer.h"
#include "model/make_model.h"
#include "ops/device.h"
#include "run/huggingface/architecture.h"
#include "run/huggingface/custom_code.h"
#include "run/huggingface/llama_cpp.h"
#include "run/safetensors.h"
#include "text/byte_level_bpe.h"
#include "text/library_tokenizer.h"
#include "text/make_tokenizer.h"
#include "text/sentencepiece.h"
#include "text/special_tokens.h"

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

// Turns every Error into one of exit code 3 (data), because another program wrote the files.
template <class Read>
auto with_data_errors(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(ExitCode::data, error.what());
  }
}

NamedTensors read_tensors(const fs::path& file) {
  const auto bytes = read_file(file, largest_weights, ExitCode::data);
  return with_data_errors([&] { return from_safetensors(bytes, file.string()); });
}

// The weight files of a model that is stored in several files.
std::set<std::string> files_of_index(const fs::path& path) {
  const auto json = parse_json(read_file(path, largest_json, ExitCode::data));
  const auto map = json.is_object() ? json.value("weight_map", nlohmann::json()) : nlohmann::json();
  std::set<std::string> files;
  for (const auto& entry : map) {
    const auto file = entry.is_string() ? entry.get<std::string>() : "";
    if (file.empty() || fs::path(file).filename() != file)
      fail_data("{}: weight_map: {} is no file of this folder", path.string(), printable(json_text(entry)));
    files.insert(file);
  }
  if (files.empty()) fail_data("{}: weight_map names no files", path.string());
  return files;
}

NamedTensors read_all_tensors(const fs::path& folder) {
  if (has_file(folder, weights_file)) return read_tensors(folder / weights_file);
  if (!has_file(folder, index_file))
    fail_data("{}: has neither {} nor {}; weights in other formats are not read", folder.string(), weights_file,
              index_file);
  NamedTensors all;
  std::set<std::string> names;
  for (const auto& file : files_of_index(folder / index_file))
    for (auto& [name, tensor] : read_tensors(folder / file)) {
      if (!names.insert(name).second)
        fail_data("{}: the tensor {} is in another file, too", (folder / file).string(), in_quotes(name));
      all.emplace_back(name, std::move(tensor));
    }
  return all;
}

// Throws if a number is outside the range of its config key, which the error names.
void require_valid(const TransformerConfig& config, const fs::path& folder) {
  const ExperimentConfig experiment{.model = config};
  Provenance provenance;
  for (const auto& [key, value] : flattened(config_to_json(experiment)))
    if (key.starts_with("model.")) provenance[key] = {.source = (folder / config_file).string()};
  with_data_errors([&] { check_config(experiment, provenance); });
}

using Json = nlohmann::ordered_json;

struct File {
  std::string name, content;
};

using Architectures = std::vector<const Architecture*>;

// The architecture that is nearest to a model, and the keys that differ: none if it has this model.
struct NearestArchitecture {
  const Architecture* architecture = nullptr;  // nullptr: no architecture is near
  std::vector<std::string> differences;
};

NearestArchitecture nearest_architecture(const ExperimentConfig& config, const Architectures& known = architectures()) {
  if (!is<TransformerConfig>(config.model))
    return {.differences = {fmt::format("model.kind is {} and must be transformer", kind_of(config.model))}};
  if (!continues_text(config.task))
    return {.differences = {fmt::format("task.kind is {} and must be language_model", kind_of(config.task))}};
  const auto& model = std::get<TransformerConfig>(config.model);
  NearestArchitecture nearest;
  for (const auto* architecture : known) {
    auto differences = config_differences(model, architecture->closest(model));
    if (model.memory > 0) differences.push_back(fmt::format("model.memory is {} and must be 0", model.memory));
    if (nearest.architecture == nullptr || differences.size() < nearest.differences.size())
      nearest = {architecture, std::move(differences)};
  }
  return nearest;
}

// The architecture that has this model. Throws Error (exit code 2) with the keys that differ from the nearest one.
const Architecture& architecture_of(const ExperimentConfig& config, ExportFormat format,
                                    const Architectures& known = architectures()) {
  const auto [architecture, differences] = nearest_architecture(config, known);
  if (differences.empty()) return *architecture;
  fail_usage("--format {}: not for this model{}: {}; --format safetensors takes any model", to_string(format),
             architecture == nullptr ? "" : fmt::format(", the nearest is {}", architecture->model_type),
             fmt::join(differences, "; "));
}

// Only names that the written tokenizer contains: the library would add others after its last token, where the model
// has no row.
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
  const auto own = [&] { return File{own_tokenizer_file, tokenizer.to_json().dump(1) + "\n"}; };
  const auto written = to_library_tokenizer(tokenizer);
  if (written.file.empty()) {
    log::warning(
        "transformers will find no tokenizer: it has none like this one ({}): {}; it is in {}, which only this "
        "program reads",
        tokenizer.to_json().at("kind").get<std::string>(), written.problem, own_tokenizer_file);
    return {own()};
  }
  const bool finds_special_tokens = dynamic_cast<const ByteLevelBpeTokenizer*>(&tokenizer) != nullptr;
  const auto names = names_of(special_tokens_of(tokenizer), parse_json(written.file));
  // Names of special tokens in a text are encoded as plain text, unless the tokenizer itself finds special tokens.
  Json settings = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"model_input_names", {"input_ids", "attention_mask"}},
                   {"model_max_length", context},
                   {"clean_up_tokenization_spaces", false},
                   {"split_special_tokens", !finds_special_tokens}};
  for (const auto* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) settings[key] = names.value(key, Json());
  std::vector<File> files = {{"tokenizer.json", written.file},
                             {"tokenizer_config.json", settings.dump(2) + "\n"},
                             {"special_tokens_map.json", names.dump(2) + "\n"}};
  if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer))
    files.push_back({"tokenizer.model", pieces->model()});
  else if (!finds_special_tokens)
    files.push_back(own());
  return files;
}

// config.json, the weights and, for a model that the library lacks, its Python files.
struct LibraryModel {
  Json config;
  std::vector<File> files;
};

LibraryModel native_model(const Architecture& architecture, const ExportedModel& model) {
  const DescribedModel described{.config = std::get<TransformerConfig>(model.config.model),
                                 .vocabulary = model.codec.tokenizer->vocabulary_size()};
  const auto tensors = export_tensors(architecture, described, model.tensors, "the checkpoint");
  return {architecture.write_config(described), {{weights_file, to_safetensors(tensors)}}};
}

LibraryModel custom_model(const ExportedModel& model) {
  LibraryModel custom{write_custom_config(model.config.model, model.codec.tokenizer->vocabulary_size()),
                      {{weights_file, to_safetensors(model.tensors)}}};
  for (auto& [name, content] : custom_code_files()) custom.files.push_back({name, std::move(content)});
  log::info(
      "transformers has no such model, and reads it with the Python files of the folder: from_pretrained(folder, "
      "trust_remote_code=True)");
  return custom;
}

std::vector<File> huggingface_files(const ExportedModel& model) {
  if (!continues_text(model.config.task))
    fail_usage("--format huggingface: task.kind is {} and must be language_model; --format safetensors takes any model",
               kind_of(model.config.task));
  const auto [architecture, differences] = nearest_architecture(model.config);
  const bool is_native = differences.empty();
  auto [description, files] = is_native ? native_model(*architecture, model) : custom_model(model);
  const auto& tokenizer = *model.codec.tokenizer;
  for (auto& file : tokenizer_files(tokenizer, context_of(model.config.model))) files.push_back(std::move(file));
  const auto special_tokens = special_tokens_of(tokenizer);
  // null: there is no such token. If the key were absent, the library would use a default token.
  const auto value = [](const auto& id) { return id ? Json(*id) : Json(); };
  const auto& eos = special_tokens.eos;
  Json generation = {{"bos_token_id", value(special_tokens.bos)},
                     {"eos_token_id", eos.size() > 1 ? Json(eos)
                                      : eos.empty()  ? Json()
                                                     : Json(eos[0])},
                     {"pad_token_id", value(special_tokens.pad)}};
  description.update(generation);
  files.push_back({config_file, description.dump(2) + "\n"});
  if (!is_native) generation["use_cache"] = false;
  files.push_back({"generation_config.json", generation.dump(2) + "\n"});
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

// The folder of the initial weights, from which the library can load the base model; null if it cannot.
Json base_of(const ExperimentConfig& config) {
  if (!config.train.init_from) return {};
  const auto path = with_seed(*config.train.init_from, config.train);
  std::error_code ignored;
  return fs::is_directory(path, ignored) && is_huggingface_folder(path) ? Json(std::string(path)) : Json();
}

std::vector<File> peft_files(const ExportedModel& model) {
  const auto& lora = model.config.train.lora;
  if (lora.rank == 0)
    fail_usage("--format peft: the run has no adapters (train.lora.rank is 0); --format huggingface takes its weights");
  if (!lora.full.empty())
    fail_usage(
        "--format peft: the run has also trained {} (train.lora.full), and an adapter has no such weights; --format "
        "huggingface takes all weights",
        fmt::join(lora.full, ", "));
  const auto& architecture = architecture_of(model.config, ExportFormat::peft);
  const DescribedModel described{.config = std::get<TransformerConfig>(model.config.model),
                                 .vocabulary = model.codec.tokenizer->vocabulary_size()};
  NamedTensors tensors;
  auto layers = Json::array();
  for (const auto& [layer, a_ri, b_or] :
       export_adapters(architecture, described, model.adapters, lora.rank, "the checkpoint")) {
    layers.push_back(layer);
    tensors.emplace_back(fmt::format("base_model.model.{}.lora_A.weight", layer), a_ri);
    tensors.emplace_back(fmt::format("base_model.model.{}.lora_B.weight", layer), b_or);
  }
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", base_of(model.config)},
                       {"r", lora.rank},
                       {"lora_alpha", short_number(lora.alpha)},
                       {"lora_dropout", 0.0},
                       {"target_modules", layers},
                       {"fan_in_fan_out", architecture.transposes},
                       {"bias", "none"},
                       {"inference_mode", true}};
  return {{"adapter_config.json", config.dump(2) + "\n"}, {"adapter_model.safetensors", to_safetensors(tensors)}};
}

std::vector<File> gguf_files(const ExportedModel& model) {
  const auto& tokenizer = *model.codec.tokenizer;
  const auto& architecture = architecture_of(model.config, ExportFormat::gguf, {&llama()});
  const DescribedModel described{.config = std::get<TransformerConfig>(model.config.model),
                                 .vocabulary = tokenizer.vocabulary_size()};
  const auto tensors = export_tensors(architecture, described, model.tensors, "the checkpoint");
  return {
      {"model.gguf", llama_cpp_file(described, tensors, tokenizer, fmt::format("metaformer, step {}", model.step))}};
}

std::vector<File> files_of(const ExportedModel& model, ExportFormat format) {
  switch (format) {
    case ExportFormat::huggingface:
      return huggingface_files(model);
    case ExportFormat::safetensors:
      return own_files(model);
    case ExportFormat::peft:
      return peft_files(model);
    case ExportFormat::gguf:
      return gguf_files(model);
  }
  throw std::logic_error("unknown format");
}

// Writes all files into a temporary folder, and renames it at the end.
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

bool is_huggingface_folder(const fs::path& folder) {
  if (!has_file(folder, config_file)) return false;
  const auto json = parse_json(read_file(folder / config_file, largest_json, ExitCode::data));
  return json.is_object() && json.contains("model_type");
}

// The config of a model that this program exported with Python files.
static DescribedModel read_custom_config(ConfigFile& file, const std::string& source) {
  const auto options = json_text(file.object("model"));
  const auto config = with_data_errors([&] { return default_experiment({"model=" + options}).config; });
  const auto* model = std::get_if<TransformerConfig>(&config.model);
  if (model == nullptr) fail_data("{}: model.kind is {}; only transformer is read", source, kind_of(config.model));
  return {.config = *model, .vocabulary = file.count("vocab_size", 1)};
}

static NamedTensors read_custom_tensors(const DescribedModel& described, const fs::path& folder) {
  const auto model = make_model({.model = described.config}, {.vocabulary = described.vocabulary});
  auto tensors = named_state(*model);
  with_data_errors([&] { copy_by_name(read_all_tensors(folder), tensors, folder.string()); });
  for (auto& [name, tensor] : tensors) tensor = tensor.detach();
  return tensors;
}

PretrainedModel read_huggingface(const fs::path& folder, bool with_tensors) {
  const auto path = (folder / config_file).string();
  ConfigFile file(read_file(path, largest_json, ExitCode::data), path);
  const auto type = file.text("model_type");
  const Architecture* architecture = nullptr;
  const bool is_custom = type == custom_model_type;
  std::vector<std::string> types;
  for (const auto* known : architectures()) {
    if (known->model_type == type) architecture = known;
    types.emplace_back(known->model_type);
  }
  types.emplace_back(custom_model_type);
  if (architecture == nullptr && !is_custom)
    file.refuse("model_type", fmt::format("only {} is supported", join_alternatives(types)));
  const auto described = is_custom ? read_custom_config(file, path) : architecture->read_config(file);
  file.require("is_encoder_decoder", false);
  file.require("pruned_heads", nlohmann::json::object());
  auto ignored = is_custom ? std::vector<std::string>() : file.unknown_keys();
  for (auto& key : ignored) key = printable(key);
  require_valid(described.config, folder);
  if (!ignored.empty())
    log::info("{}: keys that are no part of a {} are ignored: {}", path, type, fmt::join(ignored, ", "));
  PretrainedModel model{.config = described.config, .vocabulary = described.vocabulary, .tensors = {}, .tokenizer = {}};
  if (find_pretrained_tokenizer(folder)) model.tokenizer = read_pretrained_tokenizer(folder);
  if (model.tokenizer && model.tokenizer->vocabulary_size() > model.vocabulary)
    fail_data("{}: its tokenizer has {} tokens, and vocab_size is {}", path, model.tokenizer->vocabulary_size(),
              model.vocabulary);
  if (with_tensors)
    model.tensors = is_custom ? read_custom_tensors(described, folder)
                              : import_tensors(*architecture, described, read_all_tensors(folder), folder.string());
  return model;
}

std::vector<std::string> export_model(const ExportedModel& model, ExportFormat format, const fs::path& given) {
  auto folder = fs::absolute(given).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "out/"
  if (fs::exists(fs::symlink_status(folder))) fail_usage("{}: exists already, and is not overwritten", given.string());
  const auto files = files_of(model, format);
  write_folder(folder, files);
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace metaformer
