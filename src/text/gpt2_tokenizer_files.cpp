#include "text/gpt2_tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

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

}  // namespace metaformer
