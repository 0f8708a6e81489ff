#include "text/word_tokenizer.h"

#include <fmt/format.h>
#include <unicode/ucasemap.h>
#include <unicode/uchar.h>

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

struct Character {
  CharacterKind kind;
  std::size_t bytes;
};

// The character at the start of `text`.
Character first_character(std::string_view text) {
  auto at = text.begin();
  const auto point = static_cast<char32_t>(utf8::unchecked::next(at));
  return {character_kind(point), static_cast<std::size_t>(at - text.begin())};
}

// Whether a character may join two parts of a word. The apostrophe stands for the typographic one, too.
bool is_joiner_of(const std::string& joiners, std::string_view character) {
  return joiners.find(character == "\u2019" ? "'" : character) != std::string::npos;
}

// Bytes of the word or mark at the start of `text`, which is not white space.
std::size_t bare_length(std::string_view text, const WordRules& rules) {
  const auto at = [&](std::size_t place) {
    return place < text.size() ? first_character(text.substr(place)) : Character{CharacterKind::space, 0};
  };
  const auto first = at(0);
  const bool is_word = first.kind == CharacterKind::word;
  auto length = first.bytes;
  while (true) {
    const auto next = at(length);
    const bool joins = is_word && next.kind == CharacterKind::mark &&
                       is_joiner_of(rules.joiners, text.substr(length, next.bytes)) &&
                       at(length + next.bytes).kind == CharacterKind::word;
    if (!joins && next.kind != CharacterKind::attached && !(is_word && next.kind == CharacterKind::word)) return length;
    length += next.bytes;
  }
}

// Bytes of the token at the start of `text`, whose first character is `first`, if white space is kept.
std::size_t token_length(std::string_view text, const Character& first, const WordRules& rules) {
  if (first.kind != CharacterKind::space) return bare_length(text, rules);
  const bool leads_token =
      text[0] == ' ' && text.size() > 1 && first_character(text.substr(1)).kind != CharacterKind::space;
  return leads_token ? 1 + bare_length(text.substr(1), rules) : first.bytes;
}

// Calls `use(token, original)` in order, the original as it stands in the text. Throws Interrupted when a signal asks
// to stop.
template <class Use>
void for_each_token(std::string_view text, const WordRules& rules, Use use) {
  constexpr int tokens_between_looks = 1 << 16;
  int tokens = 0;
  std::string token;
  for (std::size_t at = 0; at < text.size();) {
    const auto first = first_character(text.substr(at));
    if (rules.whitespace == Whitespace::dropped && first.kind == CharacterKind::space) {
      at += first.bytes;
      continue;
    }
    if (++tokens % tokens_between_looks == 0) throw_if_stopped();
    const auto original = text.substr(at, token_length(text.substr(at), first, rules));
    at += original.size();
    token = original;
    if (rules.lowercase) make_lowercase(token);
    use(token, original);
  }
}

// Valid UTF-8 in another case, independent of the language. `convert` is a function of ICU.
std::string in_case(std::string_view text, decltype(ucasemap_utf8ToLower) convert) {
  auto error = U_ZERO_ERROR;
  static const UCaseMap* const map = ucasemap_open(/*locale=*/"", /*options=*/0, &error);
  constexpr std::size_t most_growth = 3;  // bytes of a character in another case for each of its bytes
  std::string converted(most_growth * text.size(), '\0');
  const auto size = convert(map, converted.data(), static_cast<std::int32_t>(converted.size()), text.data(),
                            static_cast<std::int32_t>(text.size()), &error);
  if (U_FAILURE(error))
    throw Error(ExitCode::failure, fmt::format("{}: no other case: {}", in_quotes(text), u_errorName(error)));
  converted.resize(static_cast<std::size_t>(size));
  return converted;
}

// The case of a word, compared with its lower case: 'l' the same, 'c' its first character in upper case, 'u' all of
// them, 'm' otherwise; 'n' if the word has only one case.
char case_of(std::string_view original, const std::string& lower) {
  const auto upper = in_case(lower, ucasemap_utf8ToUpper);
  if (upper == lower) return original == lower ? 'n' : 'm';
  if (original == lower) return 'l';
  const auto first = first_character(lower).bytes;
  if (original == in_case(lower.substr(0, first), ucasemap_utf8ToUpper) + lower.substr(first)) return 'c';
  return original == upper ? 'u' : 'm';
}

bool is_one_token(const std::string& word, const WordRules& rules) {
  std::vector<std::string> tokens;
  for_each_token(word, rules, [&](const std::string& token, std::string_view) { tokens.push_back(token); });
  return tokens == std::vector{word};
}

}  // namespace

CharacterKind character_kind(char32_t point) {
  if (point < 0x80) {  // not <cctype>: its functions depend on the locale, and a vocabulary must not
    if (point == ' ' || (point >= '\t' && point <= '\r')) return CharacterKind::space;
    const bool is_letter = (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z');
    return is_letter || (point >= '0' && point <= '9') ? CharacterKind::word : CharacterKind::mark;
  }
  constexpr char32_t zero_width_space = 0x200B, zero_width_no_break_space = 0xFEFF;
  const auto c = static_cast<UChar32>(point);
  if (u_isUWhiteSpace(c) || point == zero_width_space || point == zero_width_no_break_space)
    return CharacterKind::space;
  const auto category = U_GET_GC_MASK(c);
  if ((category & (U_GC_L_MASK | U_GC_N_MASK)) != 0) return CharacterKind::word;
  const bool attached = (category & U_GC_M_MASK) != 0 || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL);
  return attached ? CharacterKind::attached : CharacterKind::mark;
}

void make_lowercase(std::string& text) {
  if (std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) {
    for (char& c : text)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return;
  }
  text = in_case(text, ucasemap_utf8ToLower);
}

WordTokenizer WordTokenizer::from_text(const WordTokenizerOptions& options, std::string_view text) {
  require_utf8(text);
  WordRules rules{.lowercase = options.lowercase, .joiners = options.joiners, .whitespace = options.whitespace};
  std::unordered_map<std::string, std::int64_t> counts;
  for_each_token(text, rules, [&](const std::string& token, std::string_view) { ++counts[token]; });
  if (rules.whitespace == Whitespace::kept) counts[space] = std::numeric_limits<std::int64_t>::max();  // never dropped
  std::erase_if(counts, [&](const auto& entry) { return entry.second < options.min_count; });
  std::vector<std::pair<std::string, std::int64_t>> ranking(counts.begin(), counts.end());
  std::ranges::sort(ranking, {},
                    [](const auto& entry) { return std::pair(-entry.second, std::string_view(entry.first)); });
  ranking.resize(std::min(ranking.size(), static_cast<std::size_t>(options.vocabulary - 1)));
  std::vector<std::string> words;
  for (auto& [word, count] : ranking) words.push_back(std::move(word));
  return {std::move(words), std::move(rules), "text"};
}

WordTokenizer::WordTokenizer(std::vector<std::string> words, WordRules rules, const std::string& source)
    : words_(std::move(words)), rules_(std::move(rules)) {
  for (const auto& word : words_) {
    const auto id = static_cast<std::int32_t>(ids_.size()) + 1;
    if (!is_one_token(word, rules_) || !ids_.try_emplace(word, id).second)
      fail_data("{}: {} is not one new word", source, in_quotes(word));
  }
  if (rules_.whitespace == Whitespace::kept && !ids_.contains(space))
    fail_data("{}: white space is kept, and the space is not among the words", source);
}

std::int32_t WordTokenizer::id(const std::string& token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? unknown : found->second;
}

std::vector<std::int32_t> WordTokenizer::encode(std::string_view text) const {
  require_utf8(text);
  std::vector<std::int32_t> ids;
  for_each_token(text, rules_, [&](const std::string& token, std::string_view) {
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

std::vector<std::int32_t> WordTokenizer::token_bytes(std::string_view text) const {
  std::vector<std::int32_t> bytes;
  const auto* rest = text.begin();
  for_each_token(text, rules_, [&](const std::string& token, std::string_view original) {
    if (id(token) == unknown && token[0] == ' ') {  // two tokens, of which only the space is known
      bytes.push_back(1);
      ++rest;
    }
    bytes.push_back(static_cast<std::int32_t>(original.end() - rest));
    rest = original.end();
  });
  if (!bytes.empty()) bytes.back() += static_cast<std::int32_t>(text.end() - rest);
  return bytes;
}

std::optional<std::vector<std::string>> WordTokenizer::lost(std::string_view text) const {
  if (rules_.whitespace == Whitespace::dropped) return std::nullopt;
  constexpr char end = '\xff';
  std::string spelled, cases;
  for_each_token(text, rules_, [&](std::string token, std::string_view original) {
    bool is_known = id(token) != unknown;
    if (token.size() > 1 && token[0] == ' ') {  // the space has its token, or is part of a known one
      token.erase(0, 1);
      original.remove_prefix(1);
      is_known = is_known || id(token) != unknown;
    }
    const char letters = is_known && rules_.lowercase ? case_of(original, token) : 'n';
    if (letters != 'n') cases += letters;
    if (!is_known || letters == 'm') (spelled += original) += end;
  });
  return std::vector{spelled, cases};
}

nlohmann::ordered_json WordTokenizer::to_json() const {
  nlohmann::ordered_json json = {
      {"kind", WordTokenizerOptions::kind}, {"lowercase", rules_.lowercase}, {"letters", "unicode"}};
  if (rules_.joiners != WordRules().joiners) json["joiners"] = rules_.joiners;
  if (rules_.whitespace == Whitespace::kept) json["whitespace"] = to_string(rules_.whitespace);
  json["words"] = words_;
  return json;
}

}  // namespace metaformer
