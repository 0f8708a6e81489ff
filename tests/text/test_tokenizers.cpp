#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/random.h"
#include "support/catch.h"
#include "support/failure.h"
#include "text/make_tokenizer.h"
#include "text/symbol_tokenizers.h"
#include "text/word_tokenizer.h"

namespace metaformer::test_tokenizers {

namespace {

using Ids = std::vector<std::int32_t>;

const std::string sample_text = "Überraschung: 自然 \U0001F600\nEnde";

std::unique_ptr<Tokenizer> reload(const Tokenizer& tokenizer) {
  return load_tokenizer(tokenizer.to_json().dump(), "t.json");
}

WordTokenizer words_of(const std::string& text, WordTokenizerOptions options = {.min_count = 1}) {
  return WordTokenizer::from_text(options, text);
}

// The file of a word tokenizer, with `fields` after the usual ones.
std::string word_file(const std::string& fields) {
  return R"({"kind":"word","lowercase":true,"letters":"unicode",)" + fields + "}";
}

// The tokens of a text, with a vocabulary that contains all of them.
std::vector<std::string> tokens_of(const std::string& text, bool lowercase = true, std::string joiners = "'") {
  const auto tokenizer = words_of(text, {.min_count = 1, .lowercase = lowercase, .joiners = std::move(joiners)});
  std::vector<std::string> tokens;
  for (const auto id : tokenizer.encode(text)) tokens.push_back(tokenizer.decode(Ids{id}));
  return tokens;
}

// Words w0 ... w19, small numbers more often.
std::string random_words(std::uint64_t seed, std::uint64_t count) {
  const Rng rng(seed, RandomPurpose::sampling);
  std::string text;
  for (std::uint64_t i = 0; i < count; ++i) text += fmt::format("w{} ", rng.below(2 * i, 1 + rng.below(2 * i + 1, 20)));
  return text;
}

// The vocabulary by selection: the next word is the most frequent one left, the first in byte order among equals.
std::vector<std::string> expected_vocabulary(const std::string& text, const WordTokenizerOptions& options) {
  std::map<std::string, std::int64_t> counts;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) ++counts[word];
  std::vector<std::string> vocabulary;
  while (!counts.empty() && static_cast<std::int64_t>(vocabulary.size()) + 1 < options.vocabulary) {
    auto best = counts.begin();  // a map is sorted by its keys
    for (auto at = counts.begin(); at != counts.end(); ++at)
      if (at->second > best->second) best = at;
    if (best->second < options.min_count) break;
    vocabulary.push_back(best->first);
    counts.erase(best);
  }
  return vocabulary;
}

}  // namespace

TEST_CASE("decoding is the inverse of encoding", "[tokenizer]") {
  const TokenizerOptions options =
      GENERATE(TokenizerOptions(CharacterTokenizerOptions{}), TokenizerOptions(ByteTokenizerOptions{}));
  const auto unknown = GENERATE(Unknown::refuse, Unknown::map);
  const auto tokenizer = make_tokenizer(options, sample_text, unknown);
  const auto ids = tokenizer->encode(sample_text);
  CHECK(tokenizer->decode(ids) == sample_text);
  for (const auto id : ids) CHECK((id >= 0 && id < tokenizer->vocabulary_size()));
  const auto loaded = reload(*tokenizer);
  CHECK(loaded->encode(sample_text) == ids);
  CHECK(loaded->decode(ids) == sample_text);
  CHECK(tokenizer->encode("").empty());
}

TEST_CASE("tokens decoded one by one, joined with the separator, are the decoded text", "[tokenizer]") {
  const std::string text = "11 0, 3";
  std::unique_ptr<Tokenizer> tokenizer = std::make_unique<NumberTokenizer>(12);
  const int kind = GENERATE(range(0, 4));
  if (kind == 1) tokenizer = make_tokenizer(CharacterTokenizerOptions{}, text);
  if (kind == 2) tokenizer = make_tokenizer(ByteTokenizerOptions{}, text);
  if (kind == 3) tokenizer = make_tokenizer(WordTokenizerOptions{.min_count = 1}, "11 0");
  const auto ids = tokenizer->encode(text);
  std::string joined;
  for (std::size_t i = 0; i < ids.size(); ++i)
    joined += (i > 0 ? tokenizer->token_separator() : "") + tokenizer->decode(Ids{ids[i]});
  CHECK(joined == tokenizer->decode(ids));
}

TEST_CASE("characters are the sorted set of code points, and unknown ones have the last id", "[tokenizer]") {
  const auto sorted = CharacterTokenizer::from_text("banana\n\U0001F600é");
  CHECK(sorted.vocabulary_size() == 6);
  CHECK(sorted.encode("\nabn") == Ids{0, 1, 2, 3});
  CHECK(sorted.decode(Ids{4, 5}) == "é\U0001F600");
  const auto strict = CharacterTokenizer::from_text("abc\uFFFD");
  const auto mapping = CharacterTokenizer::from_text("abc\uFFFD", Unknown::map);
  CHECK(mapping.vocabulary_size() == strict.vocabulary_size() + 1);
  CHECK(mapping.encode("cab\uFFFD") == strict.encode("cab\uFFFD"));
  CHECK(mapping.encode("azé自b") == Ids{0, 4, 4, 4, 1});
  CHECK(mapping.decode(Ids{0, 4, 1}) == "a\uFFFDb");
  CHECK(reload(mapping)->encode("az") == Ids{0, 4});
  CHECK(mapping.to_json()["unknown"] == true);
  CHECK_FALSE(strict.to_json().contains("unknown"));
  CHECK(failure([&] { reload(strict)->encode("az"); }).first == ExitCode::data);
  CHECK(failure([&] { mapping.encode("a\xff"); }).first == ExitCode::data);
}

TEST_CASE("a text that a tokenizer cannot encode is refused with the character or the offset", "[tokenizer]") {
  const auto tokenizer = CharacterTokenizer::from_text("abc");
  const auto words = words_of("ab");
  const auto refusal = [](const Tokenizer& of, const std::string& text) {
    return message_of(ExitCode::data, [&] { of.encode(text); });
  };
  CHECK_THAT(refusal(tokenizer, "abz"), ContainsSubstring("'z' (U+007A)"));
  CHECK_THAT(refusal(tokenizer, "a\xff"), Mentions("0xff|offset 1"));
  CHECK_THAT(refusal(words, "ab\xff"), Mentions("0xff|offset 2"));
  CHECK(failure([&] { words_of("\xc3"); }).first == ExitCode::data);
}

// tests/python/compare_words.py tests code points of all planes and mixed text, with white space kept and dropped.
TEST_CASE("texts are cut into words and marks, with lower case and joiners as configured", "[tokenizer]") {
  static constexpr auto quote = "'";
  const auto [text, lowercase, joiners, tokens] = GENERATE(table<std::string, bool, std::string, std::string>({
      {"Don't stop!", true, quote, "don't stop !"},
      {"Don't", false, quote, "Don't"},
      {"o'clock 'tis dogs' ''a''b", true, quote, "o'clock ' tis dogs ' ' ' a ' ' b"},
      {"ÜBER-groß l'été 自然", true, quote, "über - groß l'été 自然"},
      {"a\tb\nc\vd\fe\rf  g", true, quote, "a b c d e f g"},
      {"<unk> 3.5%\x01_", true, quote, "< unk > 3 . 5 % \x01 _"},
      {" \n", true, quote, ""},
      {"don’t ’tis dogs’ don't", true, quote, "don’t ’ tis dogs ’ don't"},
      {"don’t", true, "", "don ’ t"},
      {"8/10, and/or well-made; /x// --a-", true, "'/", "8/10 , and/or well - made ; / x / / - - a -"},
      {"well-made 8/10 don't", true, "-", "well-made 8 / 10 don ' t"},
      {"a-/b a-b/c", true, "-/", "a - / b a-b/c"},
  }));
  CHECK(fmt::format("{}", fmt::join(tokens_of(text, lowercase, joiners), " ")) == tokens);
}

TEST_CASE("every token of a text is one token by itself, and only white space is lost", "[tokenizer]") {
  const std::string alphabet = "aZ9' .\n<";
  const Rng rng(3, RandomPurpose::sampling);
  for (std::uint64_t round = 0; round < 300; ++round) {
    std::string text, joined;
    for (std::uint64_t i = 0; i < 12; ++i) text += alphabet[rng.below(round * 12 + i, alphabet.size())];
    for (const auto& token : tokens_of(text, false)) {
      CHECK(tokens_of(token, false) == std::vector{token});
      joined += token;
    }
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    CHECK(joined == text);
  }
}

TEST_CASE("the word vocabulary holds the most frequent words, ties in byte order", "[tokenizer]") {
  const auto seed = GENERATE(1, 2, 3);
  const auto min_count = GENERATE(1, 2, 5);
  const auto vocabulary = GENERATE(2, 7, 1000);
  const WordTokenizerOptions options{.vocabulary = vocabulary, .min_count = min_count};
  const auto text = random_words(static_cast<std::uint64_t>(seed), 120);
  const auto tokenizer = words_of(text, options);
  const auto expected = expected_vocabulary(text, options);
  CHECK(tokenizer.to_json()["words"] == expected);
  CHECK(tokenizer.vocabulary_size() == static_cast<std::int64_t>(expected.size()) + 1);
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(tokenizer.encode(expected[i]) == Ids{static_cast<std::int32_t>(i) + 1});
}

TEST_CASE("unknown words have id 0, and a word tokenizer is read back from its file", "[tokenizer]") {
  const bool lowercase = GENERATE(true, false);
  const auto tokenizer = words_of("The cat, the Cat; don't", {.min_count = 1, .lowercase = lowercase});
  const auto loaded = reload(tokenizer);
  const std::string text = "the cat sat, don't THE <unk>";
  CHECK(loaded->encode(text) == tokenizer.encode(text));
  CHECK(loaded->to_json() == tokenizer.to_json());
  CHECK(tokenizer.encode("dog <unk>") == Ids{0, 0, 0, 0});
  CHECK(words_of("the cat,").decode(words_of("the cat,").encode("THE dog,cat")) == "the <unk> , cat");
}

TEST_CASE("if white space is kept, decoding restores every text, and an unknown word keeps its space", "[tokenizer]") {
  using Tokens = std::vector<std::string>;
  const WordTokenizerOptions options{.min_count = 1, .lowercase = false, .whitespace = Whitespace::kept};
  const auto kept_tokens = [&](const std::string& text) {
    const auto tokenizer = words_of(text, options);
    Tokens tokens;
    for (const auto id : tokenizer.encode(text)) tokens.push_back(tokenizer.decode(Ids{id}));
    return tokens;
  };
  CHECK(kept_tokens("To be,  or\n not 't ") == Tokens{"To", " be", ",", " ", " or", "\n", " not", " '", "t", " "});
  CHECK(kept_tokens("\t\r\n\v\f  ") == Tokens{"\t", "\r", "\n", "\v", "\f", " ", " "});
  const Tokens alphabet = {"a", "Z", "9", "'", " ", ".",      "\n", "\t",     "<",
                           "é", "Σ", "—", "’", "“", "\u00A0", "自", "\u0301", "\U0001F600"};
  const Rng rng(4, RandomPurpose::sampling);
  for (std::uint64_t round = 0; round < 300; ++round) {
    std::string text;
    for (std::uint64_t i = 0; i < 14; ++i) text += alphabet[rng.below(round * 14 + i, alphabet.size())];
    const auto tokenizer = words_of(text, options);
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    CHECK(reload(tokenizer)->decode(reload(tokenizer)->encode(text)) == text);
  }
  // A word with a space before it and the same word without it are different tokens.
  const auto tokenizer = words_of("to be\n", options);
  CHECK(tokenizer.to_json()["words"] == Tokens{" ", "\n", " be", "to"});
  CHECK(tokenizer.encode("to be") == Ids{4, 3});
  CHECK(tokenizer.encode("be to") == Ids{0, 1, 4});
  CHECK(tokenizer.decode(tokenizer.encode("to swim\nto  be")) == "to <unk>\nto  be");
  CHECK(words_of("A b", {.min_count = 1, .whitespace = Whitespace::kept}).decode(Ids{2, 1}) == " b ");
  // Joiners are saved, and hold a word together.
  const auto joined = words_of("it's 8/10", {.min_count = 1, .joiners = "'/", .whitespace = Whitespace::kept});
  CHECK(joined.decode(joined.encode("it's 8/10 8/10")) == "it's 8/10 8/10");
  CHECK(reload(joined)->encode("8/10 8") == joined.encode("8/10 8"));
  CHECK(joined.to_json()["joiners"] == "'/");
}

// Restores a text from its tokens and the lost information, with only the vocabulary.
std::string restored(const WordTokenizer& tokenizer, const Ids& ids, const std::vector<std::string>& lost) {
  std::istringstream spelled(lost.at(0)), cases(lost.at(1));
  const auto next_spelled = [&] {
    std::string text;
    std::getline(spelled, text, '\xff');
    return text;
  };
  std::string text;
  for (const auto id : ids) {
    if (id == tokenizer.unknown_id()) {
      text += next_spelled();
      continue;
    }
    auto word = tokenizer.decode(Ids{id});
    if (word.starts_with(' ')) {
      text += ' ';
      word.erase(0, 1);
    }
    auto upper = word;
    for (auto& c : upper) c = static_cast<char>(std::toupper(c));
    switch (word == upper ? 'n' : cases.get()) {
      case 'u':
        text += upper;
        break;
      case 'c':
        text += upper.substr(0, 1) + word.substr(1);
        break;
      case 'm':
        text += next_spelled();
        break;
      default:
        text += word;
    }
  }
  return text;
}

TEST_CASE("the tokens of a word tokenizer and the lost information restore the text", "[tokenizer]") {
  const std::string known = "the fox isn't here 7 times, fox. the ! NATO\n",
                    text = " The fox,\tTHE quick fOx isn't  Here\n\n7 Unseen wOrds! nato NATO. ";
  const auto options = WordTokenizerOptions{.min_count = 1, .whitespace = Whitespace::kept};
  const auto folding = words_of(known, options);
  const auto lost = folding.lost(text).value();
  CHECK(restored(folding, folding.encode(text), lost) == text);
  const std::vector<std::string> spelled = {"\t", "quick", "fOx", "7", "Unseen", "wOrds", "!", ""};
  CHECK(lost[0] == fmt::format("{}", fmt::join(spelled, "\xff")));
  auto exact_options = options;
  exact_options.lowercase = false;
  const auto exact = words_of(known, exact_options);
  CHECK(exact.lost(text).value()[1].empty());
  CHECK_FALSE(words_of(known).lost(text));
  CHECK_FALSE(ByteTokenizer().lost(text));  // decoding restores the text
}

TEST_CASE("the file of a word tokenizer has its rules, and each of its words must be one word by them", "[tokenizer]") {
  CHECK(words_of("a b").to_json().dump() == word_file(R"("words":["a","b"])"));
  const WordTokenizerOptions options{.min_count = 1, .whitespace = Whitespace::kept};
  CHECK(words_of("a b", options).to_json().dump() == word_file(R"("whitespace":"kept","words":[" "," b","a"])"));
  for (const auto* fields : {R"("words":["a"])", R"("whitespace":"dropped","words":["a"])"})
    CHECK(load_tokenizer(word_file(fields), "t")->decode(Ids{1, 1}) == "a a");
  const auto complaint = [](const std::string& file) {
    return message_of(ExitCode::data, [&] { load_tokenizer(file, "t"); });
  };
  CHECK_THAT(complaint(word_file(R"("words":["a—b"])")), Mentions("t: 'a—b'|one new word"));
  CHECK_THAT(complaint(R"({"kind":"word","lowercase":true,"words":["a"]})"), ContainsSubstring("t: letters is not"));
  for (const auto* joiners : {R"("a")", R"(" ")", R"("é")", R"("0")", "1", "null"})
    CHECK_THAT(complaint(word_file(fmt::format(R"("joiners":{},"words":["b"])", joiners))), Mentions("joiners is not"));
}

TEST_CASE("only a tokenizer with an unknown token has an id for it", "[tokenizer]") {
  CHECK(words_of("a").unknown_id() == 0);
  CHECK(CharacterTokenizer::from_text("abc", Unknown::map).unknown_id() == 3);
  CHECK_FALSE(CharacterTokenizer::from_text("abc").unknown_id());
  CHECK_FALSE(make_tokenizer(ByteTokenizerOptions{}, "")->unknown_id());
  CHECK_FALSE(NumberTokenizer(3).unknown_id());
}

TEST_CASE("numbers are separated by commas and white space, and numbers out of range and other words are refused",
          "[tokenizer]") {
  const NumberTokenizer tokenizer(3);
  for (const std::string text : {"2 0 1", "2,0,1", "2, 0, 1", "  2 ,0   1,\n"})
    CHECK(tokenizer.encode(text) == Ids{2, 0, 1});
  CHECK(tokenizer.encode(" , ").empty());
  CHECK(tokenizer.decode(Ids{2, 0, 1}) == "2 0 1");
  CHECK(tokenizer.decode(Ids{}).empty());
  CHECK(reload(tokenizer)->vocabulary_size() == 3);
  CHECK(reload(NumberTokenizer(NumberTokenizer::largest_count))->encode("999999") == Ids{999999});
  const auto message = [&](const std::string& text) {
    return message_of(ExitCode::data, [&] { tokenizer.encode(text); });
  };
  for (const std::string word : {"x", "1x", "+1", "1.0", "0x1", "1;2", "-", "٣"})
    CHECK_THAT(message("0 " + word), ContainsSubstring("'" + word + "' is not"));
  for (const std::string word : {"7", "3", "-1", "99999999999999999999"})
    CHECK_THAT(message("0," + word), Mentions("the number '" + word + "'|0 ... 2"));
}

TEST_CASE("hostile tokenizer files are data errors that name the file", "[tokenizer]") {
  const std::string json = GENERATE(
      as<std::string>{}, "", "[]", "{}", "null", R"({"kind":3})", R"({"kind":["word"]})", R"({"kind":"nonesuch"})",
      R"({"kind":"character"})", R"({"kind":"character","characters":[1]})",
      R"({"kind":"character","characters":"ab"})", R"({"kind":"character","characters":["ab"]})",
      R"({"kind":"character","characters":["a","a"]})", R"({"kind":"character","characters":[""]})",
      R"({"kind":"character","characters":["a"],"unknown":1})", R"({"kind":"word"})",
      R"({"kind":"word","letters":"unicode","words":["a"]})", R"({"kind":"word","lowercase":true,"letters":"unicode"})",
      R"({"kind":"word","lowercase":1,"letters":"unicode","words":["a"]})", word_file(R"("words":{"a":"b"})"),
      word_file(R"("words":["a",null])"), word_file(R"("words":["a","a"])"), word_file(R"("words":[""])"),
      word_file(R"("words":["a b"])"), word_file(R"("words":[" a"])"), word_file(R"("words":["A"])"),
      word_file(R"("words":["<unk>"])"), word_file(R"("words":["'a"])"), R"({"kind":"unigram"})",
      word_file(R"("whitespace":"kept","words":["a"])"), word_file(R"("whitespace":"kept","words":[" ","\n a"])"),
      word_file(R"("whitespace":1,"words":["a"])"), R"({"kind":"bpe","whitespace":"kept","sha256":"","model":""})",
      "{\"kind\":\"word\",\"lowercase\":true,\"words\":[\"\xff\"]}", R"({"kind":"number"})",
      R"({"kind":"number","count":0})", R"({"kind":"number","count":-1})", R"({"kind":"number","count":1.5})",
      R"({"kind":"number","count":"3"})", R"({"kind":"number","count":1000001})",
      R"({"kind":"number","count":18446744073709551615})", R"({"kind":"number","count":1e400})");
  CAPTURE(json);
  const auto message = message_of(ExitCode::data, [&] { load_tokenizer(json, "t.json"); });
  CHECK_THAT(message, ContainsSubstring("t.json: "));
  if (json == "{}") CHECK_THAT(message, Mentions("character|byte|bpe"));
}

TEST_CASE("a stop signal ends tokenizing", "[tokenizer]") {
  const auto make = GENERATE(
      +[](const std::string& text) { words_of(text).encode(text); },
      +[](const std::string& text) { CharacterTokenizer::from_text(text).encode(text); });
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "word ";
  CHECK(interruption([&] { make(text); }) == SIGTERM);
}

}  // namespace metaformer::test_tokenizers
