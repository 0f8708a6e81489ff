#include "text/byte_level_bpe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/signals.h"
#include "base/utf8.h"

namespace metaformer {

static constexpr std::size_t most_words = 1 << 19;  // of a memo: about 80 MB

ByteLevelBpeTokenizer::ByteLevelBpeTokenizer(std::string file, std::int64_t vocabulary, const std::string& source)
    : file_(std::move(file)),
      bpe_(read_tokenizer_json(file_, source)),
      vocabulary_(std::max(vocabulary, std::ssize(bpe_.tokens))),
      memos_(most_words) {}

std::vector<std::int32_t> ByteLevelBpeTokenizer::encode(std::string_view text) const {
  require_utf8(text);
  Ids ids;
  memos_.borrow([&](WordMemo<Ids>& memo) {
    const auto add = [&](std::int32_t id) { ids.push_back(id); };
    bpe_.added[0].split(
        text,
        [&](std::string_view rest) {
          bpe_.added[1].split(
              rest, [&](std::string_view plain) { encode_text(plain, memo, ids); }, add);
        },
        add);
  });
  return ids;
}

void ByteLevelBpeTokenizer::encode_text(std::string_view text, WordMemo<Ids>& memo, Ids& ids) const {
  constexpr int words_between_looks = 1 << 16;
  int words = 0;
  cut(text, 0, [&](std::string_view word) {
    if (++words % words_between_looks == 0) throw_if_stopped();
    const auto& found = memo.get(word, [&] { return ids_of_word(word); });
    ids.insert(ids.end(), found.begin(), found.end());
  });
}

void ByteLevelBpeTokenizer::cut(std::string_view text, std::size_t pattern,
                                const std::function<void(std::string_view)>& use_word) const {
  if (pattern == bpe_.patterns.size()) return use_word(text);
  const bool is_last = pattern + 1 == bpe_.patterns.size();
  if (is_last) return bpe_.patterns[pattern].split(text, use_word);
  bpe_.patterns[pattern].split(text, [&](std::string_view part) { cut(part, pattern + 1, use_word); });
}

std::vector<std::int32_t> ByteLevelBpeTokenizer::ids_of_word(std::string_view word) const {
  if (!bpe_.whole_words.empty())
    if (const auto whole = bpe_.whole_words.find(std::string(word)); whole != bpe_.whole_words.end())
      return {whole->second};
  Ids bytes;
  for (const char byte : word) bytes.push_back(bpe_.byte_ids[static_cast<unsigned char>(byte)]);
  return bpe_.merges.merge(bytes);
}

std::string_view ByteLevelBpeTokenizer::bytes_of(std::int32_t id) const {
  const auto place = static_cast<std::size_t>(id);
  return place < bpe_.tokens.size() ? std::string_view(bpe_.tokens[place]) : std::string_view();
}

bool ByteLevelBpeTokenizer::begins_word(std::int32_t id, std::int32_t before) const {
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  const auto token = bytes_of(id), last = bytes_of(before);
  return (!token.empty() && is_space(token.front())) || (!last.empty() && is_space(last.back()));
}

std::string ByteLevelBpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const auto id : ids) text += bytes_of(id);
  return text;
}

nlohmann::ordered_json ByteLevelBpeTokenizer::to_json() const {
  return with_special_tokens(
      {{"kind", PretrainedTokenizerOptions::kind}, {"vocabulary", vocabulary_}, {"file", file_}});
}

std::string ByteLevelBpeTokenizer::token_name(std::int32_t id) const {
  const auto place = static_cast<std::size_t>(id);
  return place < bpe_.names.size() ? bpe_.names[place] : "";
}

}  // namespace metaformer
