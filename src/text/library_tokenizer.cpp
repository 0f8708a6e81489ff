#include "text/library_tokenizer.h"

#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "text/byte_level_bpe.h"
#include "text/sentencepiece.h"
#include "text/symbol_tokenizers.h"
#include "text/word_tokenizer.h"

namespace metaformer {

namespace {

using Json = nlohmann::json;  // sorts names, so that search in a large vocabulary is fast

constexpr char32_t last_character = 0x10FFFF;

// A normaliser.
Json replace(const std::string& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", content}};
}

Json sequence(const char* of_what, Json parts) { return {{"type", "Sequence"}, {of_what, std::move(parts)}}; }

// A whole tokenizer.json. `normalizer` and `post_processor` may be null.
std::string file_of(Json model, Json normalizer, Json pre_tokenizer, Json post_processor, Json decoder, Json added) {
  return json_text(Json{{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", std::move(added)},
                        {"normalizer", std::move(normalizer)},
                        {"pre_tokenizer", std::move(pre_tokenizer)},
                        {"post_processor", std::move(post_processor)},
                        {"decoder", std::move(decoder)},
                        {"model", std::move(model)}});
}

// A tokenizer that leaves out a byte order mark in front of a text, as everywhere in this program, and then applies
// `normalizers`.
LibraryTokenizer tokenizer_of(Json model, Json normalizers, Json pre_tokenizer, Json decoder) {
  normalizers.insert(normalizers.begin(), replace("\\A\\x{FEFF}", ""));
  return {file_of(std::move(model), sequence("normalizers", std::move(normalizers)), std::move(pre_tokenizer), nullptr,
                  std::move(decoder), Json::array()),
          ""};
}

// Cuts a text where Oniguruma finds `regex`; each match is a part of its own, or dropped with "Removed".
Json split(const std::string& regex, const char* behavior = "Isolated") {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}, {"invert", false}};
}

Json bpe_model(Json vocabulary, Json merges, bool byte_fallback, const Json& affix = nullptr) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", affix},
          {"end_of_word_suffix", affix},
          {"fuse_unk", false},
          {"byte_fallback", byte_fallback},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

// A model for which every part of a text is one token; parts that are not in the vocabulary are the unknown token, if
// it has one.
Json whole_parts(Json vocabulary) {
  return {{"type", "WordLevel"}, {"vocab", std::move(vocabulary)}, {"unk_token", "<unk>"}};
}

// The inside of a character class of a regular expression, such as ab-d, with the characters for which `belongs` is
// true.
template <class Belongs>
std::string ranges_of(Belongs belongs) {
  constexpr char32_t none = last_character + 1;
  std::string ranges;
  char32_t first = none;
  for (char32_t point = 0; point <= last_character + 1; ++point) {
    const bool is_surrogate = point >= 0xD800 && point < 0xE000;
    const bool is_member = point <= last_character && !is_surrogate && belongs(point);
    if (is_member && first == none) first = point;
    if (is_member || first == none) continue;
    ranges += fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(first));
    if (point - first > 1) ranges += fmt::format("-\\x{{{:X}}}", static_cast<std::uint32_t>(point - 1));
    first = none;
  }
  return ranges;
}

// "[abc]"; an expression that matches nothing if there are no ranges.
std::string one_of(const std::string& ranges) { return ranges.empty() ? "(?:(?!))" : "[" + ranges + "]"; }

std::string escaped(std::string_view text) {
  std::string regex;
  for_each_code_point(text, [&](std::uint32_t point) {
    const bool is_plain = point >= 0x80 || (point >= '0' && point <= '9') || (point >= 'a' && point <= 'z') ||
                          (point >= 'A' && point <= 'Z');
    regex += is_plain ? to_utf8(point) : fmt::format("\\x{{{:X}}}", point);
  });
  return regex;
}

// An expression for any of `words` without their first `begin` bytes, which are equal. Common beginnings are written
// once. Words are sorted and distinct.
std::string any_word(std::span<const std::string> words, std::size_t begin = 0) {
  const auto &first = words.front(), &last = words.back();
  auto end = static_cast<std::size_t>(std::ranges::mismatch(first, last).in1 - first.begin());
  while (end < first.size() && utf8::internal::is_trail(first[end])) --end;
  const auto common = escaped(std::string_view(first).substr(begin, end - begin));
  if (words.size() == 1) return common;
  const bool may_end = first.size() == end;
  std::vector<std::string> branches;
  for (std::size_t i = may_end ? 1 : 0; i < words.size();) {
    const auto branch = words[i].substr(0, end + character_size(std::string_view(words[i]).substr(end)));
    const auto start = i;
    while (i < words.size() && words[i].starts_with(branch)) ++i;
    branches.push_back(any_word(words.subspan(start, i - start), end));
  }
  return fmt::format("{}(?:{}){}", common, fmt::join(branches, "|"), may_end ? "?" : "");
}

LibraryTokenizer library_characters(const Tokenizer& tokenizer) {
  const auto own = tokenizer.to_json();
  auto vocabulary = Json::object();
  for (const auto& character : own.at("characters")) vocabulary[character.get<std::string>()] = vocabulary.size();
  if (const auto unknown = tokenizer.unknown_id()) vocabulary["<unk>"] = *unknown;
  return tokenizer_of(whole_parts(std::move(vocabulary)), Json::array(), split("(?m:.)"), {{"type", "Fuse"}});
}

// Byte-level BPE without merges.
LibraryTokenizer library_bytes() {
  auto vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[to_byte_level(std::string(1, static_cast<char>(byte)))] = byte;
  const auto model = bpe_model(std::move(vocabulary), Json::array(), /*byte_fallback=*/false);
  return tokenizer_of(model, Json::array(), byte_level(false), byte_level(false));
}

// Numbers; their leading zeros are removed.
LibraryTokenizer library_numbers(const Tokenizer& tokenizer) {
  auto vocabulary = Json::object();
  for (std::int64_t number = 0; number < tokenizer.vocabulary_size(); ++number)
    vocabulary[std::to_string(number)] = number;
  const auto without_zeros = replace(R"((?<![^, \t\r\n])0+(?=[0-9]))", "");
  return tokenizer_of(whole_parts(std::move(vocabulary)), Json::array({without_zeros}),
                      split(R"([, \t\r\n]+)", "Removed"), nullptr);
}

bool has(char32_t point, UProperty property) { return u_hasBinaryProperty(static_cast<UChar32>(point), property) != 0; }

// The expressions that decide where words end, by the rules of one tokenizer.
class WordExpressions {
 public:
  explicit WordExpressions(std::string joiners) : joiners_(std::move(joiners)) {}

  std::string space() const { return one_of(space_); }

  // A word or a mark.
  std::string bare_token() const {
    const auto attached = attached_.empty() ? "" : one_of(attached_) + "*";
    return fmt::format("(?:{0}(?:{1}|{2})*|[^{3}]{4})", one_of(word_), one_of(word_ + attached_),
                       joint([](char32_t) { return true; }), space_ + word_, attached);
  }

  // Unicode's lower case, as a list of normalisers. The library's own lower case ignores the special form of a sigma at
  // the end of a word (Final_Sigma of Unicode's section 3.13). It may also know newer letters, which are marks here:
  // those that are not among `known`, the characters of the vocabulary, become another mark.
  Json lower_case(const std::set<char32_t>& known) const {
    const auto unassigned = ranges_of([&](char32_t point) {
      return u_charType(static_cast<UChar32>(point)) == U_UNASSIGNED && !known.contains(point);
    });
    char32_t unknown = 0xFDD0;  // never assigned, nor are the next ones
    while (known.contains(unknown)) ++unknown;
    const auto ignorable = [](char32_t point) { return has(point, UCHAR_CASE_IGNORABLE); };
    const auto cased = ranges_of([&](char32_t point) {
      return character_kind(point) == CharacterKind::word && has(point, UCHAR_CASED) && !ignorable(point);
    });
    const auto passed = ranges_of([&](char32_t point) {
      const auto kind = character_kind(point);
      return (kind == CharacterKind::word || kind == CharacterKind::attached) && ignorable(point);
    });
    const auto between = fmt::format("(?:{}|{})*", one_of(passed), joint(ignorable));
    return {replace(one_of(unassigned), to_utf8(unknown)),
            replace(fmt::format("{0}{1}\\K\\x{{3A3}}(?!{1}{0})", one_of(cased), between), "\u03C2"),
            {{"type", "Lowercase"}}};
  }

 private:
  static std::string of_kind(CharacterKind kind) {
    return ranges_of([&](char32_t point) { return character_kind(point) == kind; });
  }

  // An expression for a joiner before a word, if `is_meant` is true for the joiner.
  template <class IsMeant>
  std::string joint(IsMeant is_meant) const {
    const bool has_apostrophe = joiners_.find('\'') != std::string::npos;
    const auto meant = ranges_of([&](char32_t point) {
      const bool is_joiner = point < 0x80 ? joiners_.find(static_cast<char>(point)) != std::string::npos
                                          : has_apostrophe && point == 0x2019;
      return is_joiner && is_meant(point);
    });
    return fmt::format("{}(?={})", one_of(meant), one_of(word_));
  }

  std::string joiners_, space_ = of_kind(CharacterKind::space), word_ = of_kind(CharacterKind::word),
                        attached_ = of_kind(CharacterKind::attached);
};

LibraryTokenizer library_words(const Tokenizer& tokenizer) {
  const auto own = tokenizer.to_json();
  const WordExpressions expressions(own.value("joiners", WordTokenizerOptions().joiners));
  const bool keeps = own.value("whitespace", "") == to_string(Whitespace::kept);
  auto vocabulary = Json::object();
  vocabulary["<unk>"] = 0;  // no text has it as one word
  std::vector<std::string> behind_spaces;
  std::set<char32_t> characters;
  for (const auto& entry : own.at("words")) {
    const auto word = entry.get<std::string>();
    vocabulary[word] = vocabulary.size();
    for_each_code_point(word, [&](std::uint32_t point) { characters.insert(static_cast<char32_t>(point)); });
    if (word.size() > 1 && word.front() == ' ') behind_spaces.push_back(word.substr(1));
  }
  std::sort(behind_spaces.begin(), behind_spaces.end());
  auto normalizers = own.at("lowercase").get<bool>() ? expressions.lower_case(characters) : Json::array();
  if (!keeps)
    return tokenizer_of(
        whole_parts(std::move(vocabulary)), std::move(normalizers),
        sequence("pretokenizers", {split(expressions.space() + "+", "Removed"), split(expressions.bare_token())}),
        nullptr);
  const auto token = fmt::format(" ?{}|{}", expressions.bare_token(), expressions.space());
  // A space and a word are two tokens if the vocabulary does not have both as one.
  const auto known = behind_spaces.empty() ? "" : fmt::format("(?!{}\\z)", any_word(behind_spaces));
  const auto unknown_with_space = fmt::format("\\A (?=(?m:.)){}", known);
  return tokenizer_of(whole_parts(std::move(vocabulary)), std::move(normalizers),
                      sequence("pretokenizers", {split(token), split(unknown_with_space)}), {{"type", "Fuse"}});
}

// Sentencepiece tokenizers that keep white space.
class LibraryPieces {
 public:
  explicit LibraryPieces(const SentencePieceTokenizer& tokenizer)
      : tokenizer_(tokenizer), traits_(traits_of_sentencepiece(tokenizer.model())) {
    for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
      names_.push_back(is_text(id) ? replaced(tokenizer.token_name(id), space_mark, " ") : tokenizer.token_name(id));
  }

  LibraryTokenizer make() const {
    if (const auto found = problem(); !found.empty()) return {"", found};
    const bool is_unigram = tokenizer_.kind() == UnigramTokenizerOptions::kind;
    const Json bytes = {{"type", "ByteFallback"}}, joined = {{"type", "Fuse"}};
    return tokenizer_of(is_unigram ? unigram() : bpe(), Json::array(), split(word_expression()),
                        sequence("decoders", {bytes, joined}));
  }

 private:
  bool is_text(std::int32_t id) const { return tokenizer_.piece_kind(id) == PieceKind::text; }

  std::string problem() const {
    if (tokenizer_.whitespace() == Whitespace::dropped) return "it normalises white space";
    if (traits_.normalises) return "it folds letters to lower case (lowercase: true) by rules that the library lacks";
    if (traits_.marks_ends) return "it marks spaces behind words";
    if (traits_.has_symbols) return "it has symbols of several characters";
    if (!tokenizer_.has_plain_scores()) return "it has characters in pieces that are no pieces";
    for (std::int32_t id = 0; const auto& name : names_) {
      if (tokenizer_.piece_kind(id) == PieceKind::unused) return "it has pieces that are not used";
      if (!is_text(id++) && count_characters(name) == 1)
        return fmt::format("its piece {} stands for no text", in_quotes(name));
    }
    return "";
  }

  // An expression for the words of text/sentencepiece.cpp, but with characters without a piece as words of their own.
  // So the names of bytes, and other names that no text has, cannot be found in words.
  std::string word_expression() const {
    std::set<char32_t> spelt;
    bool has_pieces_of_spaces = false;
    for (std::int32_t id = 0; const auto& name : names_) {
      if (!is_text(id++)) continue;
      has_pieces_of_spaces = has_pieces_of_spaces || name.starts_with("  ");
      for_each_code_point(name, [&](std::uint32_t point) { spelt.insert(static_cast<char32_t>(point)); });
    }
    for (const char c : {' ', '\n', '\t', '\r'}) spelt.erase(static_cast<unsigned char>(c));
    const auto letter = one_of(ranges_of([&](char32_t point) { return spelt.contains(point); }));
    const auto spaces = has_pieces_of_spaces ? fmt::format(" {{2,}}{}*|", letter) : "";
    return fmt::format("{0} ?{1}+|(?m:.)", spaces, letter);
  }

  // Two neighbouring pieces are merged if together they are a piece, the piece with the best score first.
  Json bpe() const {
    auto vocabulary = Json::object(), merges = Json::array();
    std::vector<std::int32_t> order;
    std::set<std::string_view> pieces;
    for (std::int32_t id = 0; const auto& name : names_) {
      vocabulary[name] = id;
      if (is_text(id)) {
        pieces.insert(name);
        order.push_back(id);
      }
      ++id;
    }
    std::ranges::stable_sort(order, std::greater(), [&](auto id) { return tokenizer_.score(id); });
    for (const auto id : order) {
      const std::string_view piece = names_[static_cast<std::size_t>(id)];
      for (std::size_t cut = 1; cut < piece.size(); ++cut)
        if (pieces.contains(piece.substr(0, cut)) && pieces.contains(piece.substr(cut)))
          merges.push_back({piece.substr(0, cut), piece.substr(cut)});
    }
    return bpe_model(std::move(vocabulary), std::move(merges), /*byte_fallback=*/true);
  }

  Json unigram() const {
    auto vocabulary = Json::array();
    for (std::int32_t id = 0; const auto& name : names_) {
      vocabulary.push_back({name, is_text(id) ? tokenizer_.score(id) : SentencePieceTokenizer::reserved_score});
      ++id;
    }
    return {{"type", "Unigram"},
            {"unk_id", tokenizer_.unknown_id().value()},
            {"byte_fallback", true},
            {"vocab", std::move(vocabulary)}};
  }

  const SentencePieceTokenizer& tokenizer_;
  SentencePieceTraits traits_;
  std::vector<std::string> names_;  // by id; the text of pieces that texts have
};

}  // namespace

LibraryTokenizer to_library_tokenizer(const Tokenizer& tokenizer) {
  if (const auto* bpe = dynamic_cast<const ByteLevelBpeTokenizer*>(&tokenizer)) return {bpe->file(), ""};
  if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer))
    return LibraryPieces(*pieces).make();
  const auto kind = tokenizer.to_json().at("kind").get<std::string>();
  if (kind == CharacterTokenizerOptions::kind) return library_characters(tokenizer);
  if (kind == ByteTokenizerOptions::kind) return library_bytes();
  if (kind == NumberTokenizer::kind) return library_numbers(tokenizer);
  if (kind == WordTokenizerOptions::kind) return library_words(tokenizer);
  return {"", fmt::format("the library has no tokenizer of kind {}", kind)};
}

std::string gpt2_tokenizer_json(const std::string& vocab_json, const std::string& vocab_source,
                                const std::string& merges_txt, const std::string& merges_source) {
  const std::string end_of_text = "<|endoftext|>";
  auto vocabulary = parse_json(vocab_json);
  if (!vocabulary.is_object()) fail_data("{}: not an object of tokens with their ids", vocab_source);
  auto added = Json::array();
  if (vocabulary.contains(end_of_text))
    added.push_back({{"id", vocabulary[end_of_text]},
                     {"content", end_of_text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  auto merges = Json::array();  // pairs of tokens, in order of priority
  auto rest = without_byte_order_mark(merges_txt);
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    auto line = take_line(rest);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) continue;
    if (std::ranges::count(line, ' ') != 1)
      fail_data("{}:{}: {} is not two tokens with a space between them", merges_source, number, in_quotes(line));
    merges.push_back(line);
  }
  const auto coder = byte_level(true);
  const auto model = bpe_model(std::move(vocabulary), std::move(merges), /*byte_fallback=*/false, "");
  return file_of(model, nullptr, coder, coder, coder, added);
}

}  // namespace metaformer
