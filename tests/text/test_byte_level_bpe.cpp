#include <algorithm>
#include <thread>

#include "support/byte_level_bpe.h"
#include "support/catch.h"
#include "support/failure.h"
#include "text/byte_level_bpe.h"
#include "text/make_tokenizer.h"

namespace metaformer::test_byte_level_bpe {

namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;

ByteLevelBpeTokenizer tokenizer_of(const Json& file, std::int64_t vocabulary = 0) {
  return {file.dump(), vocabulary, "t.json"};
}

// Applies the first applicable rule at its first place until no rule applies.
Ids merged_naively(Ids ids, const std::vector<std::array<std::int32_t, 3>>& rules) {
  for (bool again = true; again;) {
    again = false;
    for (const auto& [left, right, merged] : rules) {
      const std::array pair = {left, right};
      const auto found = std::search(ids.begin(), ids.end(), pair.begin(), pair.end());
      if (found == ids.end()) continue;
      *found = merged;
      ids.erase(found + 1);
      again = true;
      break;
    }
  }
  return ids;
}

// A text of random elements of `parts`, which are characters or texts.
template <class Parts>
std::string random_text(std::uint64_t seed, std::uint64_t length, const Parts& parts) {
  const Rng rng(seed, RandomPurpose::sampling);
  std::string text;
  for (std::uint64_t i = 0; i < length; ++i) text += parts[rng.below(i, parts.size())];
  return text;
}

// A text of letters and unusual characters.
std::string odd_text(std::uint64_t seed, std::uint64_t length) {
  static const std::vector<std::string> parts = {
      "ab", "ba",     "abab",       " ",      "  ",     "\n",     "\t",     "\r\n",
      "\v", "\u0301", "\u00A0",     "\u3000", "\u2028", "\u180E", "\u200B", "\uFEFF",
      "'s", "'LL",    "12",         "\u0663", "\x01",   "\x7F",   "\u81EA", "<|end|>",
      "<|", "|>",     "\U0001F600", "\uFFFD", "\uFFFF", "\u0120", "?!",     std::string(1, '\0')};
  return random_text(seed, length, parts);
}

Json added(const std::string& content, std::int32_t id, bool normalized = false) {
  return {{"id", id},        {"content", content}, {"single_word", false},    {"lstrip", false},
          {"rstrip", false}, {"special", true},    {"normalized", normalized}};
}

Json only_bytes() { return RandomMerges(1, 0, "").file(); }

Json with_ends() {
  auto file = RandomMerges(3, 200, "ab 's12").file();
  file["added_tokens"] = {added("<|end|>", 456), added("<|end|>ab", 457), added("|>", 458, true)};
  return file;
}

}  // namespace

TEST_CASE("merging gives the same ids as applying the rules one by one", "[byte_level_bpe]") {
  const std::string alphabet = GENERATE(as<std::string>{}, "a", "ab", "abc", "abcdefgh");
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const RandomMerges random(seed, alphabet.size() == 1 ? 5 : 40, alphabet);
    PairMerges merges;
    for (const auto& [left, right, merged] : random.rules) merges.add(left, right, merged);
    for (std::size_t length = 0; length < 40; ++length) {
      Ids ids;
      for (const char byte : random_text(seed + 1, length, alphabet)) ids.push_back(static_cast<unsigned char>(byte));
      CHECK(merges.merge(ids) == merged_naively(ids, random.rules));
    }
  }
}

TEST_CASE("the time for a long word is nearly proportional to its length", "[byte_level_bpe]") {
  const auto tokenizer = tokenizer_of(RandomMerges(1, 100, "ab").file());
  const auto word = random_text(2, 1 << 20, std::string("ab"));  // takes hours with a scan for every merge
  CHECK(tokenizer.decode(tokenizer.encode(word)) == word);
}

TEST_CASE("decoding restores every valid text, and the saved tokenizer gives the same ids", "[byte_level_bpe]") {
  const auto tokenizer = tokenizer_of(with_ends());
  const auto saved = load_tokenizer(tokenizer.to_json().dump(), "saved.json");
  CHECK(saved->to_json() == tokenizer.to_json());
  CHECK(tokenizer.encode("").empty());
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const auto text = odd_text(seed, seed % 40);
    CAPTURE(text);
    const auto ids = tokenizer.encode(text);
    CHECK(tokenizer.decode(ids) == text);
    CHECK(saved->encode(text) == ids);
    std::string joined;
    for (const auto id : ids) joined += tokenizer.decode(Ids{id});
    CHECK(joined == text);
  }
}

TEST_CASE("added tokens are matched first, and the longest one at every place", "[byte_level_bpe]") {
  const auto tokenizer = tokenizer_of(with_ends());
  const auto plain = tokenizer_of(RandomMerges(3, 200, "ab 's12").file());
  const auto joined = [](std::initializer_list<Ids> parts) {
    Ids all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  CHECK(tokenizer.vocabulary_size() == 459);
  CHECK(tokenizer.encode("<|end|>") == Ids{456});
  CHECK(tokenizer.encode("ab<|end|> ab") == joined({plain.encode("ab"), {456}, plain.encode(" ab")}));
  CHECK(tokenizer.encode("<|end|>abab") == joined({{457}, plain.encode("ab")}));
  CHECK(tokenizer.encode("<|end<|end|>") == joined({plain.encode("<|end"), {456}}));
  CHECK(tokenizer.encode("a|>b") == joined({plain.encode("a"), {458}, plain.encode("b")}));
  CHECK(tokenizer.encode("<|end|") == plain.encode("<|end|"));
}

TEST_CASE("merges may be pairs, the last of equal merges counts, and ignore_merges takes whole words as tokens",
          "[byte_level_bpe]") {
  // No rule leads to "abc": its only rule needs "bc", and "ab" is merged first.
  Json file = only_bytes();
  auto& model = file["model"];
  for (const auto& [token, id] : {std::pair{"ab", 256}, {"bc", 257}, {"abc", 258}}) model["vocab"][token] = id;
  model["merges"] = {"a b", "b c", "a bc"};
  CHECK(tokenizer_of(file).encode("abc") == Ids{256, 'c'});
  model["ignore_merges"] = true;
  CHECK(tokenizer_of(file).encode("abc") == Ids{258});
  CHECK(tokenizer_of(file).encode(" abc") == Ids{' ', 256, 'c'});
  model["ignore_merges"] = false;
  model["merges"] = Json::array({Json::array({"a", "b"}), Json::array({"b", "c"})});
  CHECK(tokenizer_of(file).encode("abc") == Ids{256, 'c'});
  model["merges"].push_back("a b");
  CHECK(tokenizer_of(file).encode("abc") == Ids{'a', 257});
}

TEST_CASE("a model may have more ids than its tokenizer has tokens", "[byte_level_bpe]") {
  const auto tokenizer = tokenizer_of(with_ends(), 512);
  CHECK(tokenizer.vocabulary_size() == 512);
  CHECK(tokenizer.decode(Ids{'a', 511, 'b'}) == "ab");
  CHECK(load_tokenizer(tokenizer.to_json().dump(), "t")->vocabulary_size() == 512);
  CHECK(tokenizer_of(with_ends(), 5).vocabulary_size() == 459);
}

TEST_CASE("a token begins a word at or after white space, and text that is not UTF-8 is refused", "[byte_level_bpe]") {
  const auto tokenizer = tokenizer_of(only_bytes());
  CHECK(tokenizer.begins_word(' ', 'a'));
  CHECK(tokenizer.begins_word('a', '\n'));
  CHECK_FALSE(tokenizer.begins_word('a', 'b'));
  for (const auto* bad : {"a\xFF", "\xC3", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80", "\xE2\x82"})
    CHECK_THAT(message_of(ExitCode::data, [&] { tokenizer.encode(bad); }), ContainsSubstring("not valid UTF-8"));
}

TEST_CASE("several threads encode at once", "[byte_level_bpe]") {
  const auto tokenizer = tokenizer_of(with_ends());
  const auto text = odd_text(1, 5000);
  const auto expected = tokenizer_of(with_ends()).encode(text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) result = tokenizer.encode(text);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) CHECK(result == expected);
}

TEST_CASE("an unsupported field is an error that names it", "[byte_level_bpe]") {
  const auto [place, value, message] = GENERATE(table<std::string, std::string, std::string>({
      {"/normalizer", R"({"type":"NFC"})", "normalizer.type|\"NFC\"|supported"},
      {"/model/type", R"("WordPiece")", "model.type|\"WordPiece\"|byte-level"},
      {"/model/byte_fallback", "true", "model.byte_fallback is true|sentencepiece"},
      {"/model/dropout", "0.1", "model.dropout|0.1|supported"},
      {"/model/end_of_word_suffix", R"("</w>")", "model.end_of_word_suffix|\"</w>\"|supported"},
      {"/model/continuing_subword_prefix", R"("##")", "model.continuing_subword_prefix is \"##\""},
      {"/model/vocab", "[]", "model.vocab|not an object"},
      {"/model/vocab", R"({"a":0})", "model.vocab|token '\u0100'|0"},
      {"/model/vocab/a", "-1", "model.vocab['a']|-1"},
      {"/model/vocab/a", "1.5", "model.vocab['a']|1.5"},
      {"/model/vocab/a", "16000000", "model.vocab['a']|16000000"},
      {"/model/vocab/a", "98", "two tokens|98"},
      {"/model/vocab/", "300", "model.vocab|empty token"},
      {"/model/merges", "{}", "model.merges|not a list"},
      {"/model/merges", R"(["a"])", "model.merges[0]|\"a\""},
      {"/model/merges", R"(["a b c"])", "model.merges[0]|\"a b c\""},
      {"/model/merges", R"([["a"]])", "model.merges[0]|[\"a\"]"},
      {"/model/merges", R"(["a b"])", "model.merges[0]|token 'ab'|model.vocab"},
      {"/pre_tokenizer", "null", "pre_tokenizer.type is null; only ByteLevel"},
      {"/pre_tokenizer", R"({"type":"Whitespace"})", "pre_tokenizer.type is \"Whitespace\"; only ByteLevel"},
      {"/pre_tokenizer/add_prefix_space", "true", "pre_tokenizer.add_prefix_space is true; only false"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[]})", "pre_tokenizer.pretokenizers is []"},
      {"/pre_tokenizer",
       R"({"type":"Sequence","pretokenizers":[{"type":"Punctuation"},{"type":"ByteLevel","add_prefix_space":false}]})",
       "pre_tokenizer.pretokenizers[0].type|\"Punctuation\"|Digits"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"Split"}]})",
       "pre_tokenizer.pretokenizers[0].type|\"Split\"|ByteLevel"},
      {"/added_tokens", "3", "added_tokens|not a list"},
      {"/added_tokens", R"([{"content":"x"}])", "added_tokens[0].id|null"},
      {"/added_tokens", R"([{"id":256,"content":""}])", "added_tokens[0].content|\"\"|text"},
      {"/added_tokens", R"([{"id":257,"content":"<x>"}])", "added_tokens[0].id|257|'<x>'|256"},
      {"/added_tokens", R"([{"id":256,"content":"a"}])", "added_tokens[0].id|256|'a'|97"},
      {"/added_tokens", R"([{"id":256,"content":"<x>","lstrip":true}])", "added_tokens[0].lstrip is true; only false"},
  }));
  auto file = only_bytes();
  file[Json::json_pointer(place)] = Json::parse(value);
  CAPTURE(place, value);
  CHECK_THAT(message_of(ExitCode::data, [&] { tokenizer_of(file); }), Mentions("t.json: " + message));
}

TEST_CASE("regular expressions that another library could interpret differently are refused", "[byte_level_bpe]") {
  const auto split = [](const std::string& pattern) { SplitPattern(pattern, "t.json: pattern"); };
  for (const std::string good :
       {R"(\p{L}+|[^\s\p{L}]+|\s)", R"(a?+b++|c{1,3}|\u0041+|[\p{Lu}\d]+)", R"((?i:'s|'LL)|(?:a|b)+?)",
        R"(x(?=y)|x(?!y)|(?<=z)x|\.\-\[|(?>ab))", R"([^\r\n\p{L}\p{N}]?\p{L}+)"})
    CHECK(failure([&] { split(good); }).second.empty());
  for (const std::string bad :
       {R"(\w+)",   R"(\bword)",  R"(\h)",      R"(\Aa)",         R"(\p{Han}+)", R"(\p{C})",
        R"(\pL)",   R"([\P{L}])", R"([a[bc]])", R"([a&&b])",      R"([]a])",     R"(^a)",
        R"(a$)",    R"((?i)a)",   R"((?i:ss))", R"((?i:\p{Lu}))", R"((?m:.))",   R"((?<name>a))",
        R"(a{,3})", R"(a{2}+)",   R"(a{2,3}?)", R"(\x41)",        R"((a)\1)",    R"(\u00)"}) {
    CAPTURE(bad);
    CHECK_THAT(message_of(ExitCode::data, [&] { split(bad); }), Mentions("t.json: pattern: |not supported"));
  }
  for (const std::string bad : {R"((a)", R"([a)", R"(a**)", R"(\p{L)", R"(+)", "\\"}) {
    CAPTURE(bad);
    CHECK(failure([&] { split(bad); }).first == ExitCode::data);
  }
  CHECK_THAT(failure([&] { split(R"(a*)"); }).second, ContainsSubstring("matches the empty text"));
}

TEST_CASE("the pieces of a split make up the whole text, and a match that takes too long is an error",
          "[byte_level_bpe]") {
  using Pieces = std::vector<std::string>;
  const SplitPattern pattern(R"(\p{N}{1,3}|b+(?!c)|\s+(?!\S))", "t");
  const auto pieces = [&](const std::string& text) {
    Pieces pieces;
    pattern.split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
    return pieces;
  };
  CHECK(pieces("").empty());
  CHECK(pieces("a") == Pieces{"a"});
  CHECK(pieces("a12345bbc  d") == Pieces{"a", "123", "45", "b", "bc", " ", " d"});
  const std::string spaces(1 << 20, ' ');
  CHECK(pieces(spaces + "a") == Pieces{spaces.substr(1), " a"});
  const SplitPattern slow("(?:a+)+[^a]", "t.json: pattern");
  CHECK_THAT(message_of(ExitCode::data, [&] { slow.split(std::string(64, 'a'), [](std::string_view) {}); }),
             Mentions("t.json: pattern:|matched"));
}

}  // namespace metaformer::test_byte_level_bpe
