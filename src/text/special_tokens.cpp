#include "text/special_tokens.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"

namespace metaformer {

void AddedTokens::add(const std::string& content, std::int32_t id) {
  auto& alike = by_first_byte_[static_cast<unsigned char>(content.front())];
  const auto is_shorter = [&](const Token& token) { return token.content.size() < content.size(); };
  alike.insert(std::find_if(alike.begin(), alike.end(), is_shorter), {content, id});
}

const AddedTokens::Token* AddedTokens::find_at(std::string_view text) const {
  for (const auto& token : by_first_byte_[static_cast<unsigned char>(text.front())])
    if (text.starts_with(token.content)) return &token;
  return nullptr;
}

void AddedTokens::split(std::string_view text, const std::function<void(std::string_view)>& use_text,
                        const std::function<void(std::int32_t)>& use_token) const {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto* token = begins_one(text[at]) ? find_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    if (at > begin) use_text(text.substr(begin, at - begin));
    use_token(token->id);
    begin = at += token->content.size();
  }
  if (begin < text.size()) use_text(text.substr(begin));
}

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr std::uintmax_t largest_file = 1 << 28;
constexpr auto name_keys = std::to_array<const char*>({"bos_token", "eos_token", "pad_token", "unk_token"});

const Json& member(const Json& object, const std::string& name) {
  static const Json none;
  return object.is_object() && object.contains(name) ? object[name] : none;
}

// null without the file.
Json read_json(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return nullptr;
  return parse_json(read_file(file, largest_file, ExitCode::data));
}

Json read_object(const fs::path& file) {
  auto json = read_json(file);
  if (!json.is_null() && !json.is_object()) throw Error(ExitCode::data, file.string() + ": not a JSON object");
  return json;
}

class FolderReader {
 public:
  FolderReader(const fs::path& folder, const SubwordTokenizer& tokenizer)
      : folder_(folder.string()),
        tokenizer_(tokenizer),
        config_(read_json(folder / "config.json")),
        generation_(read_object(folder / "generation_config.json")),
        tokenizer_config_(read_object(folder / "tokenizer_config.json")),
        token_map_(read_object(folder / "special_tokens_map.json")) {
    for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
      if (auto name = tokenizer.token_name(id); !name.empty()) ids_.emplace(std::move(name), id);
  }

  SpecialTokens read() const {
    SpecialTokens tokens;
    for (const auto* key : name_keys)
      if (const auto name = name_of(key); ids_.contains(name)) tokens.names[key] = name;
    if (member(config_, "model_type").is_string()) {
      tokens.bos = first(ids_of("bos_token_id"));
      tokens.eos = ids_of("eos_token_id");
      tokens.pad = first(ids_of("pad_token_id"));
    } else {
      tokens.bos = id_of(tokens, "bos_token");
      if (const auto eos = id_of(tokens, "eos_token")) tokens.eos = {*eos};
      tokens.pad = id_of(tokens, "pad_token");
    }
    add_name(tokens, "bos_token", tokens.bos);
    add_name(tokens, "eos_token", first(tokens.eos));
    add_name(tokens, "pad_token", tokens.pad);
    return tokens;
  }

 private:
  static std::optional<std::int32_t> first(const std::vector<std::int32_t>& ids) {
    return ids.empty() ? std::nullopt : std::optional(ids.front());
  }

  // A token is written as its text, or as an object with its text.
  std::string name_of(const char* key) const {
    for (const auto* file : {&tokenizer_config_, &token_map_}) {
      const auto& given = member(*file, key);
      const auto& name = given.is_object() ? member(given, "content") : given;
      if (name.is_string()) return name.get<std::string>();
    }
    return "";
  }

  std::optional<std::int32_t> id_of(const SpecialTokens& tokens, const char* key) const {
    const auto name = tokens.names.find(key);
    return name == tokens.names.end() ? std::nullopt : std::optional(ids_.at(name->second));
  }

  void add_name(SpecialTokens& tokens, const char* key, std::optional<std::int32_t> id) const {
    if (id && !tokens.names.contains(key)) tokens.names[key] = tokenizer_.token_name(*id);
  }

  // The library leaves a key out where it has the default of the model type.
  Json default_of(const std::string& key) const {
    const auto& type = member(config_, "model_type");
    if (key == "pad_token_id") return nullptr;
    if (type == "gpt2") return 50256U;
    if (type == "llama") return key == "bos_token_id" ? 1U : 2U;
    return nullptr;
  }

  // One id or a list of them.
  std::vector<std::int32_t> ids_of(const std::string& key) const {
    auto given = member(generation_, key);
    if (given.is_null()) given = config_.contains(key) ? config_[key] : default_of(key);
    const bool is_default = member(generation_, key).is_null() && !config_.contains(key);
    const auto list = given.is_array() ? given : Json::array({given});
    std::vector<std::int32_t> ids;
    for (const auto& id : list) {
      const bool is_known = id.is_number_unsigned() &&
                            id.get<std::uint64_t>() < static_cast<std::uint64_t>(tokenizer_.vocabulary_size()) &&
                            !tokenizer_.token_name(id.get<std::int32_t>()).empty();
      if (is_known)
        ids.push_back(id.get<std::int32_t>());
      else if (!is_default && !id.is_null() && id != -1 && id != default_of(key))  // -1: none, in some models
        log::warning("{}: {} {} is no token of the tokenizer, and left out", folder_, key, json_text(id));
    }
    return ids;
  }

  std::string folder_;
  const SubwordTokenizer& tokenizer_;
  Json config_, generation_, tokenizer_config_, token_map_;
  std::map<std::string, std::int32_t> ids_;  // by name
};

}  // namespace

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
  return FolderReader(folder, tokenizer).read();
}

nlohmann::ordered_json to_json(const SpecialTokens& tokens) {
  const auto value = [](std::optional<std::int32_t> id) {
    return id ? nlohmann::ordered_json(*id) : nlohmann::ordered_json(nullptr);
  };
  return {{"bos_token_id", value(tokens.bos)},
          {"eos_token_id", tokens.eos},
          {"pad_token_id", value(tokens.pad)},
          {"names", tokens.names}};
}

std::optional<SpecialTokens> special_tokens_from_json(const Json& json, std::int64_t vocabulary) {
  const auto is_id = [&](const Json& id) {
    return id.is_number_unsigned() && id.get<std::uint64_t>() < static_cast<std::uint64_t>(vocabulary);
  };
  SpecialTokens tokens;
  for (const auto& [key, id] : {std::pair("bos_token_id", &tokens.bos), std::pair("pad_token_id", &tokens.pad)}) {
    const auto& given = member(json, key);
    if (!given.is_null() && !is_id(given)) return std::nullopt;
    if (!given.is_null()) *id = given.get<std::int32_t>();
  }
  const auto& eos = member(json, "eos_token_id");
  const auto& names = member(json, "names");
  if (!eos.is_array() || !std::all_of(eos.begin(), eos.end(), is_id) || !names.is_object()) return std::nullopt;
  tokens.eos = eos.get<std::vector<std::int32_t>>();
  for (const auto& [key, name] : names.items()) {
    if (!name.is_string() || std::find(name_keys.begin(), name_keys.end(), key) == name_keys.end()) return std::nullopt;
    tokens.names[key] = name.get<std::string>();
  }
  return tokens;
}

}  // namespace metaformer
