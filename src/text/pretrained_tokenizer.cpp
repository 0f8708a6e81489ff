#include "text/pretrained_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "text/byte_level_bpe.h"
#include "text/load_tokenizer.h"
#include "text/sentencepiece_model.h"
#include "text/special_tokens.h"

namespace metaformer {

// The two files in which GPT-2's tokenizer was published: vocab.json, tokens with their ids, and merges.txt, pairs of
// tokens, the first to be merged first.

// The tokenizer.json that means the same (text/byte_level_bpe.h), in which <|endoftext|> is an added token. Errors
// (exit code 3) name the file, and the line of merges.txt.
std::string tokenizer_json_of(const std::string& vocab_json, const std::string& vocab_source,
                              const std::string& merges_txt, const std::string& merges_source);

using Json = nlohmann::json;

static Json read_merges(std::string_view rest, const std::string& source) {
  auto merges = Json::array();
  rest = without_byte_order_mark(rest);
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) continue;
    if (std::count(line.begin(), line.end(), ' ') != 1)
      throw Error(ExitCode::data, fmt::format("{}:{}: {} is not two tokens with a space between them", source, number,
                                              in_quotes(line)));
    merges.push_back(line);
  }
  return merges;
}

std::string tokenizer_json_of(const std::string& vocab_json, const std::string& vocab_source,
                              const std::string& merges_txt, const std::string& merges_source) {
  const std::string end_of_text = "<|endoftext|>";
  auto vocabulary = parse_json(vocab_json);
  if (!vocabulary.is_object()) throw Error(ExitCode::data, vocab_source + ": not an object of tokens with their ids");
  auto added = Json::array();
  if (vocabulary.contains(end_of_text))
    added.push_back({{"id", vocabulary[end_of_text]},
                     {"content", end_of_text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", ""},
                      {"end_of_word_suffix", ""},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", false},
                      {"vocab", std::move(vocabulary)},
                      {"merges", read_merges(merges_txt, merges_source)}};
  return json_text(Json{{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", added},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", byte_level},
                        {"post_processor", byte_level},
                        {"decoder", byte_level},
                        {"model", model}});
}

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
