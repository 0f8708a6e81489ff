#include "text/word_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

namespace {

constexpr std::int32_t unknown = 0;
constexpr std::string_view unknown_word = "<unk>";  // a text that contains it gets three tokens, so it is never a word
const std::string space = " ";

// Not <cctype>: its functions depend on the locale, and a vocabulary must not.
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || is_upper(c) || (c >= '0' && c <= '9') || static_cast<unsigned char>(c) >= 0x80;
}

// Bytes of the word or mark at the start of `text`, which is not white space.
std::size_t bare_length(std::string_view text, std::string_view joiners) {
  const auto is_word_at = [&](std::size_t i) { return i < text.size() && is_word_character(text[i]); };
  const auto is_joiner_at = [&](std::size_t i) { return i < text.size() && joiners.find(text[i]) != joiners.npos; };
  if (!is_word_at(0)) return 1;
  std::size_t length = 1;
  while (is_word_at(length) || (is_joiner_at(length) && is_word_at(length + 1))) ++length;
  return length;
}

// Bytes of the token at the start of `text` if white space is kept.
std::size_t token_length(std::string_view text, std::string_view joiners) {
  if (!is_space(text[0])) return bare_length(text, joiners);
  const bool leads_token = text[0] == ' ' && text.size() > 1 && !is_space(text[1]);
  return leads_token ? 1 + bare_length(text.substr(1), joiners) : 1;
}

void make_lowercase(std::string& token) {
  for (char& c : token)
    if (is_upper(c)) c = static_cast<char>(c - 'A' + 'a');
}

// Calls `use(token)` in order. Throws Interrupted when a signal asks to stop.
template <class Use>
void for_each_token(std::string_view text, const WordRules& rules, Use use) {
  constexpr int tokens_between_looks = 1 << 16;
  int tokens = 0;
  std::string token;
  for (std::size_t at = 0; at < text.size();) {
    if (rules.whitespace == Whitespace::dropped && is_space(text[at])) {
      ++at;
      continue;
    }
    if (++tokens % tokens_between_looks == 0) throw_if_stopped();
    token = text.substr(at, token_length(text.substr(at), rules.joiners));
    at += token.size();
    if (rules.lowercase) make_lowercase(token);
    use(token);
  }
}

bool is_one_token(const std::string& word, const WordRules& rules) {
  int tokens = 0;
  bool same = false;
  for_each_token(word, rules, [&](const std::string& token) {
    ++tokens;
    same = token == word;
  });
  return tokens == 1 && same;
}

}  // namespace

WordTokenizer WordTokenizer::from_text(const WordTokenizerOptions& options, std::string_view text) {
  require_utf8(text);
  WordRules rules{.lowercase = options.lowercase, .joiners = options.joiners, .whitespace = options.whitespace};
  std::unordered_map<std::string, std::int64_t> counts;
  for_each_token(text, rules, [&](const std::string& token) { ++counts[token]; });
  if (rules.whitespace == Whitespace::kept) counts[space] = std::numeric_limits<std::int64_t>::max();  // never dropped
  std::erase_if(counts, [&](const auto& entry) { return entry.second < options.min_count; });
  std::vector<std::pair<std::int64_t, std::string>> ranking;  // negated counts: the greatest comes first
  ranking.reserve(counts.size());
  for (const auto& [word, count] : counts) ranking.emplace_back(-count, word);
  std::sort(ranking.begin(), ranking.end());
  const auto kept = std::min(ranking.size(), static_cast<std::size_t>(options.vocabulary - 1));
  std::vector<std::string> words;
  for (std::size_t i = 0; i < kept; ++i) words.push_back(std::move(ranking[i].second));
  return {std::move(words), std::move(rules), "text"};
}

WordTokenizer::WordTokenizer(std::vector<std::string> words, WordRules rules, const std::string& source)
    : words_(std::move(words)), rules_(std::move(rules)) {
  for (const auto& word : words_) {
    const auto id = static_cast<std::int32_t>(ids_.size()) + 1;
    if (!is_one_token(word, rules_) || !ids_.try_emplace(word, id).second)
      throw Error(ExitCode::data, fmt::format("{}: {} is not one new word", source, in_quotes(word)));
  }
  if (rules_.whitespace == Whitespace::kept && !ids_.contains(space))
    throw Error(ExitCode::data, fmt::format("{}: white space is kept, and the space is not among the words", source));
}

std::int32_t WordTokenizer::id(const std::string& token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? unknown : found->second;
}

std::vector<std::int32_t> WordTokenizer::encode(std::string_view text) const {
  require_utf8(text);
  std::vector<std::int32_t> ids;
  for_each_token(text, rules_, [&](const std::string& token) {
    auto next = id(token);
    if (next == unknown && token[0] == ' ') {  // only the space is known
      ids.push_back(id(space));
      next = id(token.substr(1));
    }
    ids.push_back(next);
  });
  return ids;
}

std::string WordTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const auto id : ids) {
    if (!text.empty()) text += token_separator();
    text += id == unknown ? unknown_word : words_.at(static_cast<std::size_t>(id - 1));
  }
  return text;
}

nlohmann::ordered_json WordTokenizer::to_json() const {
  nlohmann::ordered_json json = {{"kind", WordTokenizerOptions::kind}, {"lowercase", rules_.lowercase}};
  if (rules_.joiners != WordRules().joiners) json["joiners"] = rules_.joiners;
  if (rules_.whitespace == Whitespace::kept) json["whitespace"] = to_string(rules_.whitespace);
  json["words"] = words_;
  return json;
}

}  // namespace metaformer
