#include "text/make_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/digest.h"
#include "base/download.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "text/byte_level_bpe.h"
#include "text/library_tokenizer.h"
#include "text/sentencepiece.h"
#include "text/special_tokens.h"
#include "text/symbol_tokenizers.h"
#include "text/word_tokenizer.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t largest_file = 1 << 28;

std::string content_of(const fs::path& file) { return read_file(file, largest_file, ExitCode::data); }

// The tokenizer.json that this program has saved, field by field.
struct TokenizerFile {
  nlohmann::json json;
  std::string source;

  void require(bool valid, const std::string& name, const std::string& expected) const {
    if (!valid) fail_data("{}: {} is not {}", source, name, expected);
  }
  const nlohmann::json& field(const std::string& name) const { return json_member(json, name); }
  bool flag(const std::string& name) const {
    require(field(name).is_boolean(), name, "true or false");
    return field(name).get<bool>();
  }
  std::string text(const std::string& name) const {
    require(field(name).is_string(), name, "a string");
    return field(name).get<std::string>();
  }
  std::vector<std::string> strings(const std::string& name) const {
    const auto& list = field(name);
    require(list.is_array() && std::ranges::all_of(list, [](const auto& entry) { return entry.is_string(); }), name,
            "a list of strings");
    return list.get<std::vector<std::string>>();
  }
  std::int64_t number(const std::string& name, std::int64_t least, std::int64_t most) const {
    const auto& value = field(name);  // the parser makes every integer unsigned that is not below 0
    require(value.is_number_unsigned() && value >= least && value <= most, name,
            fmt::format("a whole number in {} ... {}", least, most));
    return value.get<std::int64_t>();
  }
  Whitespace whitespace() const {
    const auto names = names_of<Whitespace>();
    const auto found = std::ranges::find(names, text("whitespace"));
    require(found != names.end(), "whitespace", join_alternatives(names));
    return static_cast<Whitespace>(found - names.begin());
  }
  std::unique_ptr<Tokenizer> with_special_tokens(std::unique_ptr<SubwordTokenizer> tokenizer) const {
    if (!json.contains("special_tokens")) return tokenizer;
    auto tokens = special_tokens_from_json(field("special_tokens"), tokenizer->vocabulary_size());
    require(tokens.has_value(), "special_tokens", "ids and names of tokens");
    tokenizer->set_special_tokens(std::move(*tokens));
    return tokenizer;
  }
};

std::unique_ptr<Tokenizer> load_words(const TokenizerFile& file) {
  file.require(file.field("letters") == "unicode", "letters", "unicode");
  WordRules rules{.lowercase = file.flag("lowercase")};
  if (file.json.contains("joiners")) rules.joiners = file.text("joiners");
  file.require(std::ranges::all_of(rules.joiners, is_joiner), "joiners", "a list of ASCII marks");
  if (file.json.contains("whitespace")) rules.whitespace = file.whitespace();
  return std::make_unique<WordTokenizer>(file.strings("words"), std::move(rules), file.source);
}

std::unique_ptr<Tokenizer> load_sentencepiece(const TokenizerFile& file) {
  auto model = from_base64(file.text("model"));
  file.require(model && sha256(*model) == file.text("sha256"), "model", "the one that its sha256 names");
  return file.with_special_tokens(
      std::make_unique<SentencePieceTokenizer>(file.text("kind"), file.whitespace(), std::move(*model), file.source));
}

constexpr const char* json_file = "tokenizer.json";
constexpr const char* vocabulary_file = "vocab.json";
constexpr const char* merges_file = "merges.txt";
constexpr const char* sentencepiece_file = "tokenizer.model";

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored);
}

// vocab_size of the model in the folder; 0 if it is not given.
std::int64_t vocabulary_of(const fs::path& folder) {
  const auto size = json_member(read_json_file(folder / "config.json"), "vocab_size");
  return size.is_number_unsigned() && size <= ByteLevelBpeTokenizer::largest_vocabulary ? size.get<std::int64_t>() : 0;
}

std::unique_ptr<Tokenizer> read_file_of(const fs::path& file, std::int64_t vocabulary) {
  const auto name = file.filename();
  if (name == own_tokenizer_file) return load_tokenizer(content_of(file), file.string());
  if (name == sentencepiece_file || file.extension() == ".model")
    return read_sentencepiece(content_of(file), file.string());
  if (name != vocabulary_file && name != merges_file)
    return std::make_unique<ByteLevelBpeTokenizer>(content_of(file), vocabulary, file.string());
  const auto vocab = file.parent_path() / vocabulary_file, merges = file.parent_path() / merges_file;
  auto json = gpt2_tokenizer_json(content_of(vocab), vocab.string(), content_of(merges), merges.string());
  return std::make_unique<ByteLevelBpeTokenizer>(std::move(json), vocabulary, vocab.string());
}

constexpr int format_version = 2;  // raise it when the same options and text give another tokenizer

// The options that a tokenizer depends on; "" for tokenizers that are not cached. Sampling changes no tokenizer.
std::string recipe_of(const TokenizerOptions& options) {
  const auto of_kind = [](const auto& o) -> std::string {
    if constexpr (requires { o.character_coverage; })
      return fmt::format("metaformer tokenizer {}: {} vocabulary {} character_coverage {} lowercase {} whitespace {}",
                         format_version, o.kind, o.vocabulary, o.character_coverage, o.lowercase,
                         to_string(o.whitespace));
    return "";
  };
  return std::visit(of_kind, options);
}

std::string digest_of(const fs::path& path, const nlohmann::ordered_json& tokenizer) {
  return sha256(path.stem().string() + tokenizer.dump());
}

// Returns nothing, after a warning, if the file exists but cannot be used.
std::unique_ptr<Tokenizer> read_cached(const fs::path& path) try {
  const auto json = parse_json<nlohmann::ordered_json>(content_of(path));
  const bool intact = json.is_object() && json.contains("tokenizer") &&
                      json.value("sha256", nlohmann::ordered_json()) == digest_of(path, json["tokenizer"]);
  if (!intact) fail_data("{}: damaged", path.string());
  return load_tokenizer(json["tokenizer"].dump(), path.string());
} catch (const Error& error) {
  log::warning("{}; learning the tokenizer again", error.what());
  return nullptr;
}

void write_cached(const fs::path& path, const Tokenizer& tokenizer) try {
  const auto json = tokenizer.to_json();
  std::error_code ignored;  // the write reports the error
  fs::create_directories(path.parent_path(), ignored);
  write_file_atomically(path,
                        nlohmann::ordered_json{{"sha256", digest_of(path, json)}, {"tokenizer", json}}.dump() + "\n");
} catch (const Error& error) {
  log::warning("the tokenizer is not kept for the next run: {}", error.what());
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& json_text, const std::string& source) {
  const TokenizerFile file{parse_json(json_text), source};
  const auto& kind = file.field("kind");
  if (kind == CharacterTokenizerOptions::kind) {
    const bool maps_unknown = file.json.contains("unknown") && file.flag("unknown");
    return std::make_unique<CharacterTokenizer>(file.strings("characters"), source,
                                                maps_unknown ? Unknown::map : Unknown::refuse);
  }
  if (kind == ByteTokenizerOptions::kind) return std::make_unique<ByteTokenizer>();
  if (kind == WordTokenizerOptions::kind) return load_words(file);
  if (kind == UnigramTokenizerOptions::kind || kind == BpeTokenizerOptions::kind) return load_sentencepiece(file);
  if (kind == NumberTokenizer::kind)
    return std::make_unique<NumberTokenizer>(file.number("count", 1, NumberTokenizer::largest_count));
  if (kind == PretrainedTokenizerOptions::kind)
    return file.with_special_tokens(std::make_unique<ByteLevelBpeTokenizer>(
        file.text("file"), file.number("vocabulary", 0, ByteLevelBpeTokenizer::largest_vocabulary), source + ": file"));
  fail_data("{}: not a tokenizer file: expected kind character, byte, word, unigram, bpe, number or pretrained",
            source);
}

std::optional<fs::path> find_pretrained_tokenizer(const fs::path& folder) {
  const auto json = folder / json_file, model = folder / sentencepiece_file;
  if (!is_there(folder / own_tokenizer_file) && is_there(model) &&
      json_member(json_member(read_json_file(json), "model"), "byte_fallback") == true)
    return model;  // which the tokenizer.json repeats, as LLaMA 2's does
  for (const auto* name : {own_tokenizer_file, json_file, vocabulary_file, merges_file, sentencepiece_file})
    if (is_there(folder / name)) return folder / name;
  return std::nullopt;
}

std::unique_ptr<Tokenizer> read_pretrained_tokenizer(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return read_file_of(path, 0);
  const auto file = find_pretrained_tokenizer(path);
  if (!file)
    fail_data("{}: holds no tokenizer: neither {} nor {} nor {}", path.string(), json_file, vocabulary_file,
              sentencepiece_file);
  auto tokenizer = read_file_of(*file, vocabulary_of(path));
  if (auto* subwords = dynamic_cast<SubwordTokenizer*>(tokenizer.get()))
    subwords->set_special_tokens(read_special_tokens(path, *subwords));
  return tokenizer;
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options, std::string_view text, Unknown unknown) {
  const auto make = [&]<class Options>(const Options& own) -> std::unique_ptr<Tokenizer> {
    if constexpr (std::is_same_v<Options, CharacterTokenizerOptions>)
      return std::make_unique<CharacterTokenizer>(CharacterTokenizer::from_text(text, unknown));
    else if constexpr (std::is_same_v<Options, ByteTokenizerOptions>)
      return std::make_unique<ByteTokenizer>();
    else if constexpr (std::is_same_v<Options, WordTokenizerOptions>)
      return std::make_unique<WordTokenizer>(WordTokenizer::from_text(own, text));
    else if constexpr (std::is_same_v<Options, PretrainedTokenizerOptions>)
      return read_pretrained_tokenizer(own.path);
    else
      return std::make_unique<SentencePieceTokenizer>(std::string(Options::kind), own.whitespace,
                                                      train_sentencepiece(own, text), "the trained model");
  };
  return std::visit(make, options);
}

fs::path cached_tokenizer_path(const TokenizerOptions& options, std::string_view training_text) {
  const auto recipe = recipe_of(options);
  const auto cache = recipe.empty() ? std::nullopt : cache_folder();
  if (!cache) return {};
  return *cache / "tokenizers" / (sha256(recipe + "\n" + sha256(training_text)) + ".json");
}

std::unique_ptr<Tokenizer> obtain_tokenizer(const DataConfig& config, std::string_view training_text, Unknown unknown) {
  if (recipe_of(config.tokenizer).empty()) return make_tokenizer(config.tokenizer, training_text, unknown);
  const auto path = config.cache ? cached_tokenizer_path(config.tokenizer, training_text) : fs::path();
  std::error_code ignored;
  if (!path.empty() && fs::exists(path, ignored))
    if (auto tokenizer = read_cached(path)) return tokenizer;
  const auto start = std::chrono::steady_clock::now();
  log::info("learning a {} tokenizer from {} of text", kind_of(config.tokenizer), human_bytes(training_text.size()));
  auto tokenizer = make_tokenizer(config.tokenizer, training_text, unknown);
  log::info("learned {} pieces in {}", tokenizer->vocabulary_size(),
            human_duration(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  if (!path.empty()) write_cached(path, *tokenizer);
  return tokenizer;
}

}  // namespace metaformer
