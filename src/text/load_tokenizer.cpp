#include "text/load_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "text/byte_level_bpe.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/special_tokens.h"
#include "text/symbol_tokenizers.h"
#include "text/word_tokenizer.h"

namespace metaformer {

namespace {

// tokenizer.json, field by field.
struct TokenizerFile {
  nlohmann::json json;
  std::string source;

  nlohmann::json field(const std::string& name) const { return json.value(name, nlohmann::json()); }
  void require(bool valid, const std::string& name, const std::string& expected) const {
    if (!valid) throw Error(ExitCode::data, fmt::format("{}: {} is not {}", source, name, expected));
  }
  std::vector<std::string> strings(const std::string& name) const {
    const auto list = field(name);
    const auto is_string = [](const auto& entry) { return entry.is_string(); };
    require(list.is_array() && std::all_of(list.begin(), list.end(), is_string), name, "a list of strings");
    return list.get<std::vector<std::string>>();
  }
  bool flag(const std::string& name) const {
    const auto value = field(name);
    require(value.is_boolean(), name, "true or false");
    return value.get<bool>();
  }
  std::string text(const std::string& name) const {
    const auto value = field(name);
    require(value.is_string(), name, "a string");
    return value.get<std::string>();
  }
  std::string joiners() const {
    const auto marks = text("joiners");
    require(std::all_of(marks.begin(), marks.end(), is_joiner), "joiners", "a list of ASCII marks");
    return marks;
  }
  Whitespace whitespace() const {
    const auto names = names_of<Whitespace>();
    const auto found = std::find(names.begin(), names.end(), text("whitespace"));
    require(found != names.end(), "whitespace", join_alternatives(names));
    return static_cast<Whitespace>(found - names.begin());
  }
  void read_special_tokens(SubwordTokenizer& tokenizer) const {
    if (!json.contains("special_tokens")) return;
    auto tokens = special_tokens_from_json(field("special_tokens"), tokenizer.vocabulary_size());
    require(tokens.has_value(), "special_tokens", "ids and names of tokens");
    tokenizer.set_special_tokens(std::move(*tokens));
  }
};

std::unique_ptr<Tokenizer> load_characters(const TokenizerFile& file) {
  const bool maps_unknown = file.json.contains("unknown") && file.flag("unknown");
  return std::make_unique<CharacterTokenizer>(file.strings("characters"), file.source,
                                              maps_unknown ? Unknown::map : Unknown::refuse);
}

std::unique_ptr<Tokenizer> load_bytes(const TokenizerFile&) { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> load_words(const TokenizerFile& file) {
  file.require(file.field("letters") == "unicode", "letters", "unicode");
  WordRules rules{.lowercase = file.flag("lowercase")};
  if (file.json.contains("joiners")) rules.joiners = file.joiners();
  if (file.json.contains("whitespace")) rules.whitespace = file.whitespace();
  return std::make_unique<WordTokenizer>(file.strings("words"), std::move(rules), file.source);
}

std::unique_ptr<Tokenizer> load_numbers(const TokenizerFile& file) {
  const auto count = file.field("count");
  // Of integers only those below 0 are not unsigned to the parser.
  const bool valid = count.is_number_unsigned() && count >= 1 && count <= NumberTokenizer::largest_count;
  file.require(valid, "count", fmt::format("a whole number in 1 ... {}", NumberTokenizer::largest_count));
  return std::make_unique<NumberTokenizer>(count.get<std::int64_t>());
}

std::unique_ptr<Tokenizer> load_sentencepiece(const TokenizerFile& file) {
  auto model = from_base64(file.text("model"));
  file.require(model && sha256(*model) == file.text("sha256"), "model", "the one that its sha256 names");
  auto tokenizer =
      std::make_unique<SentencePieceTokenizer>(file.text("kind"), file.whitespace(), std::move(*model), file.source);
  file.read_special_tokens(*tokenizer);
  return tokenizer;
}

std::unique_ptr<Tokenizer> load_pretrained(const TokenizerFile& file) {
  constexpr auto most = ByteLevelBpeTokenizer::largest_vocabulary;
  const auto vocabulary = file.field("vocabulary");
  file.require(vocabulary.is_number_unsigned() && vocabulary <= most, "vocabulary",
               fmt::format("a whole number of at most {}", most));
  auto tokenizer = std::make_unique<ByteLevelBpeTokenizer>(file.text("file"), vocabulary.get<std::int64_t>(),
                                                           file.source + ": file");
  file.read_special_tokens(*tokenizer);
  return tokenizer;
}

struct Loader {
  std::string_view kind;
  std::unique_ptr<Tokenizer> (*load)(const TokenizerFile&);
};

constexpr std::array loaders = {
    Loader{CharacterTokenizerOptions::kind, load_characters},
    Loader{ByteTokenizerOptions::kind, load_bytes},
    Loader{WordTokenizerOptions::kind, load_words},
    Loader{UnigramTokenizerOptions::kind, load_sentencepiece},
    Loader{BpeTokenizerOptions::kind, load_sentencepiece},
    Loader{NumberTokenizer::kind, load_numbers},
    Loader{PretrainedTokenizerOptions::kind, load_pretrained},
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& json_text, const std::string& source) {
  const TokenizerFile file{parse_json(json_text), source};
  std::vector<std::string> kinds;
  for (const auto& loader : loaders) {
    if (file.json.is_object() && file.field("kind") == loader.kind) return loader.load(file);
    kinds.emplace_back(loader.kind);
  }
  throw Error(ExitCode::data, fmt::format("{}: not a tokenizer file: expected an object with kind {}", source,
                                          join_alternatives(kinds)));
}

}  // namespace metaformer
