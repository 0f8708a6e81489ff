#include "text/make_tokenizer.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/download.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "text/load_tokenizer.h"
#include "text/pretrained_tokenizer.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/symbol_tokenizers.h"
#include "text/word_tokenizer.h"

namespace metaformer {

namespace {

struct Maker {
  std::string_view text;
  Unknown unknown;
  std::unique_ptr<Tokenizer> operator()(const CharacterTokenizerOptions&) const {
    return std::make_unique<CharacterTokenizer>(CharacterTokenizer::from_text(text, unknown));
  }
  std::unique_ptr<Tokenizer> operator()(const ByteTokenizerOptions&) const { return std::make_unique<ByteTokenizer>(); }
  template <class Subword>
  std::unique_ptr<Tokenizer> operator()(const Subword& options) const {
    return std::make_unique<SentencePieceTokenizer>(std::string(Subword::kind), options.whitespace,
                                                    train_sentencepiece(options, text), "the trained model");
  }
  std::unique_ptr<Tokenizer> operator()(const WordTokenizerOptions& options) const {
    return std::make_unique<WordTokenizer>(WordTokenizer::from_text(options, text));
  }
  std::unique_ptr<Tokenizer> operator()(const PretrainedTokenizerOptions& options) const {
    return read_pretrained_tokenizer(options.path);
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options, std::string_view text, Unknown unknown) {
  return std::visit(Maker{text, unknown}, options);
}

namespace fs = std::filesystem;

namespace {

constexpr int format_version = 2;  // raise it when the same options and text give another tokenizer
constexpr std::uintmax_t largest_file = 1 << 28;

// The options that a tokenizer depends on; "" for tokenizers that are not cached. Sampling changes no tokenizer.
struct Recipe {
  template <class Options>
  std::string operator()(const Options& o) const {
    if constexpr (requires { o.character_coverage; })
      return fmt::format("metaformer tokenizer {}: {} vocabulary {} character_coverage {} lowercase {} whitespace {}",
                         format_version, o.kind, o.vocabulary, o.character_coverage, o.lowercase,
                         to_string(o.whitespace));
    return "";
  }
};

std::string digest_of(const fs::path& path, const nlohmann::ordered_json& tokenizer) {
  return sha256(path.stem().string() + tokenizer.dump());
}

// Returns nothing, after a warning, if the file exists but cannot be used.
std::unique_ptr<Tokenizer> read(const fs::path& path) {
  try {
    const auto json = parse_json<nlohmann::ordered_json>(read_file(path, largest_file, ExitCode::data));
    const bool intact = json.is_object() && json.contains("tokenizer") &&
                        json.value("sha256", nlohmann::ordered_json()) == digest_of(path, json["tokenizer"]);
    if (!intact) throw Error(ExitCode::data, path.string() + ": damaged");
    return load_tokenizer(json["tokenizer"].dump(), path.string());
  } catch (const Error& error) {
    log::warning("{}; learning the tokenizer again", error.what());
    return nullptr;
  }
}

void write(const fs::path& path, const Tokenizer& tokenizer) {
  const auto json = tokenizer.to_json();
  std::error_code ignored;  // the failing write is reported
  fs::create_directories(path.parent_path(), ignored);
  try {
    write_file_atomically(path,
                          nlohmann::ordered_json{{"sha256", digest_of(path, json)}, {"tokenizer", json}}.dump() + "\n");
  } catch (const Error& error) {
    log::warning("the tokenizer is not kept for the next run: {}", error.what());
  }
}

}  // namespace

fs::path cached_tokenizer_path(const TokenizerOptions& options, std::string_view training_text) {
  const auto recipe = std::visit(Recipe(), options);
  const auto cache = recipe.empty() ? std::nullopt : cache_folder();
  if (!cache) return {};
  return *cache / "tokenizers" / (sha256(recipe + "\n" + sha256(training_text)) + ".json");
}

std::unique_ptr<Tokenizer> obtain_tokenizer(const DataConfig& config, std::string_view training_text, Unknown unknown) {
  if (std::visit(Recipe(), config.tokenizer).empty()) return make_tokenizer(config.tokenizer, training_text, unknown);
  const auto path = config.cache ? cached_tokenizer_path(config.tokenizer, training_text) : fs::path();
  std::error_code ignored;
  if (!path.empty() && fs::exists(path, ignored))
    if (auto tokenizer = read(path)) return tokenizer;
  const auto start = std::chrono::steady_clock::now();
  log::info("learning a {} tokenizer from {} of text", kind_of(config.tokenizer), human_bytes(training_text.size()));
  auto tokenizer = make_tokenizer(config.tokenizer, training_text, unknown);
  log::info("learned {} pieces in {}", tokenizer->vocabulary_size(),
            human_duration(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  if (!path.empty()) write(path, *tokenizer);
  return tokenizer;
}

}  // namespace metaformer
