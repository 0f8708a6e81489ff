#include "text/pretrained_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "text/byte_level_bpe.h"
#include "text/gpt2_tokenizer_files.h"
#include "text/load_tokenizer.h"
#include "text/sentencepiece_file.h"
#include "text/special_tokens.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t largest_file = 1 << 28;
constexpr const char* json_file = "tokenizer.json";
constexpr const char* vocabulary_file = "vocab.json";
constexpr const char* merges_file = "merges.txt";
constexpr const char* sentencepiece_file = "tokenizer.model";

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored);
}

std::string content_of(const fs::path& file) { return read_file(file, largest_file, ExitCode::data); }

// vocab_size of the model that lies in the folder; 0: nothing says.
std::int64_t vocabulary_of(const fs::path& folder) {
  const auto file = folder / "config.json";
  if (!is_there(file)) return 0;
  const auto json = parse_json(content_of(file));
  const auto size = json.is_object() ? json.value("vocab_size", nlohmann::json()) : nlohmann::json();
  return size.is_number_unsigned() && size <= ByteLevelBpeTokenizer::largest_vocabulary ? size.get<std::int64_t>() : 0;
}

// Whether a tokenizer.json repeats a tokenizer.model, as LLaMA 2's does.
bool is_of_sentencepiece(const fs::path& file) {
  const auto json = parse_json(content_of(file));
  const auto model = json.is_object() ? json.value("model", nlohmann::json()) : nlohmann::json();
  return model.is_object() && model.value("byte_fallback", nlohmann::json()) == true;
}

std::unique_ptr<Tokenizer> read_file_of(const fs::path& file, std::int64_t vocabulary) {
  const auto name = file.filename();
  if (name == own_tokenizer_file) return load_tokenizer(content_of(file), file.string());
  if (name == sentencepiece_file || file.extension() == ".model")
    return read_sentencepiece(content_of(file), file.string());
  if (name != vocabulary_file && name != merges_file)
    return std::make_unique<ByteLevelBpeTokenizer>(content_of(file), vocabulary, file.string());
  const auto vocab = file.parent_path() / vocabulary_file, merges = file.parent_path() / merges_file;
  auto json = tokenizer_json_of(content_of(vocab), vocab.string(), content_of(merges), merges.string());
  return std::make_unique<ByteLevelBpeTokenizer>(std::move(json), vocabulary, vocab.string());
}

}  // namespace

std::optional<fs::path> find_pretrained_tokenizer(const fs::path& folder) {
  const auto json = folder / json_file, model = folder / sentencepiece_file;
  if (!is_there(folder / own_tokenizer_file) && is_there(json) && is_there(model) && is_of_sentencepiece(json))
    return model;
  for (const auto* name : {own_tokenizer_file, json_file, vocabulary_file, merges_file, sentencepiece_file})
    if (is_there(folder / name)) return folder / name;
  return std::nullopt;
}

std::unique_ptr<Tokenizer> read_pretrained_tokenizer(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return read_file_of(path, 0);
  if (const auto file = find_pretrained_tokenizer(path)) {
    auto tokenizer = read_file_of(*file, vocabulary_of(path));
    if (auto* subwords = dynamic_cast<SubwordTokenizer*>(tokenizer.get()))
      subwords->set_special_tokens(read_special_tokens(path, *subwords));
    return tokenizer;
  }
  throw Error(ExitCode::data, fmt::format("{}: holds no tokenizer: neither {} nor {} nor {}", path.string(), json_file,
                                          vocabulary_file, sentencepiece_file));
}

}  // namespace metaformer
