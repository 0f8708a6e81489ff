#include "text/special_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr std::uintmax_t largest_json = 1 << 28;
constexpr auto name_keys = std::to_array<const char*>({"bos_token", "eos_token", "pad_token", "unk_token"});

bool is_id(const Json& id, std::int64_t vocabulary) {
  return id.is_number_unsigned() && id.get<std::uint64_t>() < static_cast<std::uint64_t>(vocabulary);
}

Json read_object(const fs::path& file) {
  auto json = read_json_file(file);
  if (!json.is_null() && !json.is_object()) fail_data("{}: not a JSON object", file.string());
  return json;
}

// The library `transformers` omits a key that has the default of the model type.
Json default_id(const Json& config, std::string_view key) {
  const auto& type = json_member(config, "model_type");
  if (key == "pad_token_id") return nullptr;
  if (type == "gpt2") return 50256U;
  if (type == "llama") return key == "bos_token_id" ? 1U : 2U;
  return nullptr;
}

// The ids that a folder's files give: one or a list of them; those that the tokenizer lacks are left out.
std::vector<std::int32_t> read_ids(const fs::path& folder, const SubwordTokenizer& tokenizer, const Json& config,
                                   const Json& generation, const std::string& key) {
  auto given = json_member(generation, key);
  const bool is_default = given.is_null() && !config.contains(key);
  if (given.is_null()) given = is_default ? default_id(config, key) : config[key];
  std::vector<std::int32_t> ids;
  for (const auto& id : given.is_array() ? given : Json::array({given})) {
    const bool is_known =
        is_id(id, tokenizer.vocabulary_size()) && !tokenizer.token_name(id.get<std::int32_t>()).empty();
    if (is_known)
      ids.push_back(id.get<std::int32_t>());
    else if (!is_default && !id.is_null() && id != -1 && id != default_id(config, key))  // -1: none, in some models
      log::warning("{}: {} {} is no token of the tokenizer, and left out", folder.string(), key, json_text(id));
  }
  return ids;
}

// The names of tokens by key, from tokenizer_config.json and special_tokens_map.json. A token is written as its text,
// or as an object with its text.
std::map<std::string, std::string> read_names(const fs::path& folder) {
  std::map<std::string, std::string> names;
  for (const auto* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto json = read_object(folder / file);
    for (const auto* key : name_keys) {
      const auto& given = json_member(json, key);
      const auto& name = given.is_object() ? json_member(given, "content") : given;
      if (name.is_string()) names.emplace(key, name.get<std::string>());
    }
  }
  return names;
}

}  // namespace

Json read_json_file(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored) ? parse_json(read_file(file, largest_json, ExitCode::data)) : Json();
}

nlohmann::ordered_json SubwordTokenizer::with_special_tokens(nlohmann::ordered_json json) const {
  if (special_tokens_ != SpecialTokens()) json["special_tokens"] = metaformer::to_json(special_tokens_);
  return json;
}

SpecialTokens special_tokens_of(const Tokenizer& tokenizer) {
  const auto* subwords = dynamic_cast<const SubwordTokenizer*>(&tokenizer);
  return subwords == nullptr ? SpecialTokens() : subwords->special_tokens();
}

std::vector<std::int32_t> ids_without_token(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  if (const auto* subwords = dynamic_cast<const SubwordTokenizer*>(&tokenizer))
    for (std::int32_t id = 0; id < subwords->vocabulary_size(); ++id)
      if (subwords->token_name(id).empty()) ids.push_back(id);
  return ids;
}

SpecialTokens read_special_tokens(const fs::path& folder, const SubwordTokenizer& tokenizer) {
  const auto config = read_json_file(folder / "config.json");
  const auto generation = read_object(folder / "generation_config.json");
  std::map<std::string, std::int32_t> ids;  // by name
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
    if (auto name = tokenizer.token_name(id); !name.empty()) ids.emplace(std::move(name), id);
  SpecialTokens tokens{.names = read_names(folder)};
  std::erase_if(tokens.names, [&](const auto& entry) { return !ids.contains(entry.second); });
  const bool has_model = json_member(config, "model_type").is_string();
  const auto ids_of = [&](const std::string& token) {
    if (has_model) return read_ids(folder, tokenizer, config, generation, token + "_id");
    const auto name = tokens.names.find(token);
    return name == tokens.names.end() ? std::vector<std::int32_t>() : std::vector{ids.at(name->second)};
  };
  for (const std::string key : {"bos_token", "eos_token", "pad_token"}) {
    const auto own = ids_of(key);
    if (own.empty()) continue;
    if (key == "eos_token") tokens.eos = own;
    if (key == "bos_token") tokens.bos = own.front();
    if (key == "pad_token") tokens.pad = own.front();
    tokens.names.emplace(key, tokenizer.token_name(own.front()));
  }
  return tokens;
}

nlohmann::ordered_json to_json(const SpecialTokens& tokens) {
  nlohmann::ordered_json json = {
      {"bos_token_id", nullptr}, {"eos_token_id", tokens.eos}, {"pad_token_id", nullptr}, {"names", tokens.names}};
  if (tokens.bos) json["bos_token_id"] = *tokens.bos;
  if (tokens.pad) json["pad_token_id"] = *tokens.pad;
  return json;
}

std::optional<SpecialTokens> special_tokens_from_json(const Json& json, std::int64_t vocabulary) {
  const auto is_known = [&](const Json& id) { return is_id(id, vocabulary); };
  SpecialTokens tokens;
  for (const auto& [key, id] : {std::pair("bos_token_id", &tokens.bos), std::pair("pad_token_id", &tokens.pad)}) {
    const auto& given = json_member(json, key);
    if (!given.is_null() && !is_known(given)) return std::nullopt;
    if (!given.is_null()) *id = given.get<std::int32_t>();
  }
  const auto& eos = json_member(json, "eos_token_id");
  const auto& names = json_member(json, "names");
  if (!eos.is_array() || !std::all_of(eos.begin(), eos.end(), is_known) || !names.is_object()) return std::nullopt;
  tokens.eos = eos.get<std::vector<std::int32_t>>();
  for (const auto& [key, name] : names.items()) {
    if (!name.is_string() || std::find(name_keys.begin(), name_keys.end(), key) == name_keys.end()) return std::nullopt;
    tokens.names[key] = name.get<std::string>();
  }
  return tokens;
}

}  // namespace metaformer
