#include "data/tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/byte_tokenizer.h"
#include "data/character_tokenizer.h"

namespace metaformer {

namespace {

struct Maker {
  std::string_view text;
  std::unique_ptr<Tokenizer> operator()(const CharacterTokenizerOptions&) const {
    return std::make_unique<CharacterTokenizer>(CharacterTokenizer::from_text(text));
  }
  std::unique_ptr<Tokenizer> operator()(const ByteTokenizerOptions&) const { return std::make_unique<ByteTokenizer>(); }
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options, std::string_view text) {
  return std::visit(Maker{text}, options);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& json_text, const std::string& source) {
  const auto json = nlohmann::json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  const auto kind = json.is_object() ? json.value("kind", nlohmann::json()) : nlohmann::json();
  if (kind == ByteTokenizerOptions::kind) return std::make_unique<ByteTokenizer>();
  if (kind == CharacterTokenizerOptions::kind) {
    const auto characters = json.value("characters", nlohmann::json());
    const bool texts = characters.is_array() && std::all_of(characters.begin(), characters.end(),
                                                            [](const auto& entry) { return entry.is_string(); });
    if (texts) return std::make_unique<CharacterTokenizer>(characters.get<std::vector<std::string>>(), source);
  }
  throw Error(ExitCode::data,
              fmt::format("{}: not a tokenizer file: expected an object with kind character or byte", source));
}

}  // namespace metaformer
