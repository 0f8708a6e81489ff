#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <thread>

#include "base/digest.h"
#include "base/random.h"
#include "base/utf8.h"
#include "support/catch.h"
#include "support/failure.h"
#include "text/make_tokenizer.h"
#include "text/sentencepiece.h"
#include "text/word_memo.h"

namespace metaformer::test_sentencepiece {

namespace {

using Ids = std::vector<std::int32_t>;

// Words with common stems and endings, so that there are pieces to learn.
std::string training_text() {
  const std::vector<std::string> stems = {"walk",         "talk",   "\u00DCber", "na\u00EFve", "film", "act",
                                          "\u81EA\u7136", "wonder", "be",        "lo",         "ti",   "mar",
                                          "ko",           "sun",    "pel",       "ra"};
  const std::vector<std::string> endings = {"", "", "s", "ing", "ed", "er", ",", ".", "ful", "'s", "ness", "ly"};
  const Rng rng(5, RandomPurpose::sampling);
  std::string text = "walker ";
  for (std::uint64_t i = 0; i < 12'000; i += 4) {
    text += stems[rng.below(i, stems.size())];
    if (rng.below(i + 1, 2) == 0) text += stems[rng.below(i + 1, stems.size())];
    text += endings[rng.below(i + 2, endings.size())] + (rng.below(i + 3, 12) == 0 ? "\n" : " ");
  }
  return text;
}

// The start of the training text, up to a space.
std::string training_excerpt(std::size_t length) {
  const auto text = training_text();
  return text.substr(0, text.find(' ', length));
}

// The options of a config for both kinds.
struct Choice {
  bool bpe = false;
  Whitespace whitespace = Whitespace::dropped;
  bool lowercase = false;
  std::int64_t vocabulary = 500;
};

std::string trained_model(const Choice& choice, const std::string& text) {
  const auto trained = [&](auto options) {
    options.vocabulary = choice.vocabulary;
    options.lowercase = choice.lowercase;
    options.whitespace = choice.whitespace;
    return train_sentencepiece(options, text);
  };
  return choice.bpe ? trained(BpeTokenizerOptions{}) : trained(UnigramTokenizerOptions{});
}

const std::string& model_of(bool bpe, Whitespace whitespace, bool lowercase = false) {
  static std::map<std::tuple<bool, Whitespace, bool>, std::string> models;
  auto& model = models[{bpe, whitespace, lowercase}];
  if (model.empty()) model = trained_model({bpe, whitespace, lowercase}, training_text());
  return model;
}

SentencePieceTokenizer tokenizer_of(bool bpe, Whitespace whitespace, bool lowercase = false) {
  return {bpe ? "bpe" : "unigram", whitespace, model_of(bpe, whitespace, lowercase), "t.json"};
}

// A text of letters and unusual characters: odd spaces, combining marks, control characters, NUL.
std::string odd_text(std::uint64_t seed, std::uint64_t length) {
  static const std::vector<std::string> parts = {
      "walk",   "ing",    "film",   " ",          " ",      "  ",     "\n",
      "\t",     "\r",     "\v",     "\f",         "a",      "Ü",      "u\u0308",
      "\u0301", "\u00A0", "\u3000", "\u2028",     "\u2003", "\u200B", "\uFEFF",
      "\u00A8", "\u0385", "ﬁ",      "①",          "İ",      "ß",      "\x01",
      "\x7F",   "自",     "然",     "\U0001F600", ".",      "'s",     "<unk>",
      "<0x41>", "\u2585", "\uFFFD", "ΑΣ",         "1",      "2",      std::string(1, '\0')};
  const Rng rng(seed, RandomPurpose::sampling);
  std::string text;
  for (std::uint64_t i = 0; i < length; ++i) text += parts[rng.below(i, parts.size())];
  return text;
}

std::unique_ptr<sentencepiece::SentencePieceProcessor> library_of(const std::string& model) {
  auto library = std::make_unique<sentencepiece::SentencePieceProcessor>();
  REQUIRE(library->LoadFromSerializedProto(model).ok());
  return library;
}

}  // namespace

TEST_CASE("ids of subwords equal the library's ids of the whole text", "[sentencepiece]") {
  const bool bpe = GENERATE(false, true);
  const auto whitespace = GENERATE(Whitespace::dropped, Whitespace::kept);
  const bool lowercase = GENERATE(false, true);
  const auto& model = model_of(bpe, whitespace, lowercase);
  const auto tokenizer = tokenizer_of(bpe, whitespace, lowercase);
  const auto library = library_of(model);
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const auto text = odd_text(seed, 1 + seed % 40);
    CAPTURE(bpe, to_string(whitespace), lowercase, text);
    const auto ids = tokenizer.encode(text);
    CHECK(ids == library->EncodeAsIds(text));
    CHECK(tokenizer.encode(text) == ids);
  }
  const auto text = training_excerpt(4000);
  CHECK(tokenizer.encode(text) == library->EncodeAsIds(text));
  CHECK(tokenizer.encode("").empty());
}

TEST_CASE("if white space is kept, decoding restores every text byte for byte", "[sentencepiece]") {
  const auto tokenizer = tokenizer_of(GENERATE(false, true), Whitespace::kept);
  std::vector<std::string> texts = {"", " ", "   ", "\n\n", " a ", "a  b\n \tc ", "\u2581", "a\u2581 \u2581b", "\r\n"};
  for (std::uint64_t seed = 0; seed < 300; ++seed) texts.push_back(odd_text(seed, seed % 50) + "\u2581 ");
  for (const auto& text : texts) {
    CAPTURE(text);
    const auto ids = tokenizer.encode(text);
    CHECK(tokenizer.decode(ids) == text);
    CHECK(std::find(ids.begin(), ids.end(), tokenizer.unknown_id()) == ids.end());
    std::string joined;
    for (const auto id : ids) joined += tokenizer.decode(Ids{id});
    CHECK(joined == text);
  }
}

TEST_CASE("if white space is dropped, decoding gives a text in the library's normal form", "[sentencepiece]") {
  const auto tokenizer = tokenizer_of(GENERATE(false, true), Whitespace::dropped);
  CHECK(tokenizer.decode(tokenizer.encode("  walking\n\n films\tU\u0308ber")) == "walking films \u00DCber");
  CHECK(tokenizer.decode(tokenizer.encode("walk\u2581film")) == "walk film");
  CHECK(tokenizer.encode(" \n\t\u2581\u00A0").empty());
  const auto unknown = tokenizer.encode("\U0001F600");
  CHECK(std::count(unknown.begin(), unknown.end(), tokenizer.unknown_id()) == 1);
  CHECK(tokenizer.decode(unknown).ends_with("\uFFFD"));
  CHECK(tokenizer_of(false, Whitespace::dropped, true).encode("ÜBERS") ==
        tokenizer_of(false, Whitespace::dropped, true).encode("übers"));
}

TEST_CASE("the pieces of a word end before the next piece that begins a word", "[sentencepiece]") {
  const auto tokenizer = tokenizer_of(GENERATE(false, true), GENERATE(Whitespace::dropped, Whitespace::kept));
  const std::string text = "walking  wonderful, sun\nkotimar\n\nlo\ttalked xyz-9 walker";
  std::istringstream stream(text);
  std::vector<std::string> expected, found;
  for (std::string word; stream >> word;) expected.push_back(word);
  const auto ids = tokenizer.encode(text);
  REQUIRE(ids.size() > expected.size());
  for (std::size_t start = 0, end = 1; start < ids.size(); start = end++) {
    while (end < ids.size() && !tokenizer.begins_word(ids[end], ids[end - 1])) ++end;
    auto spelt = tokenizer.decode(std::span(ids).subspan(start, end - start));
    std::erase_if(spelt, [](char c) { return c == ' ' || c == '\n' || c == '\t'; });
    if (!spelt.empty()) found.push_back(spelt);
  }
  CHECK(found.size() == expected.size());
  if (!tokenizer.unknown_id() || std::find(ids.begin(), ids.end(), *tokenizer.unknown_id()) == ids.end())
    CHECK(found == expected);
}

TEST_CASE("training depends only on the text and the options", "[sentencepiece]") {
  const Choice choice{GENERATE(false, true), GENERATE(Whitespace::dropped, Whitespace::kept)};
  const auto& model = model_of(choice.bpe, choice.whitespace);
  const bool same = trained_model(choice, training_text()) == model;
  CHECK(same);
  auto longer = training_text();
  for (int i = 0; i < 500; ++i) longer += " new";
  const bool follows_text = trained_model(choice, longer) != model;
  CHECK(follows_text);
}

TEST_CASE("the vocabulary has the requested size, or all pieces of a smaller text", "[sentencepiece]") {
  const bool bpe = GENERATE(false, true);
  const auto size = [&](std::int64_t vocabulary) {
    const Choice choice{.bpe = bpe, .vocabulary = vocabulary};
    return SentencePieceTokenizer(bpe ? "bpe" : "unigram", Whitespace::dropped, trained_model(choice, training_text()),
                                  "t")
        .vocabulary_size();
  };
  CHECK(size(100) == 100);
  const auto all = size(20'000);
  CHECK(all > 100);
  CHECK(all < 20'000);
  CHECK_THAT(message_of(ExitCode::data, [&] { size(20); }), ContainsSubstring("data.tokenizer.vocabulary 20"));
  CHECK_THAT(failure([&] { trained_model({.bpe = bpe}, " \n"); }).second, Mentions("training text|no word"));
  CHECK(failure([&] { trained_model({.bpe = bpe}, "a\xff"); }).first == ExitCode::data);
}

TEST_CASE("a word of a megabyte can be encoded, and one of 50,000 bytes can be in the training text",
          "[sentencepiece]") {
  const bool bpe = GENERATE(false, true);
  std::string word;
  const Rng rng(1, RandomPurpose::sampling);
  for (std::uint64_t i = 0; word.size() < (1 << 20); ++i) word += "aeiounrst"[rng.below(i, 9)];
  const auto tokenizer = tokenizer_of(bpe, Whitespace::kept);
  CHECK(tokenizer.decode(tokenizer.encode(word)) == word);
  const auto model = trained_model({bpe, Whitespace::kept}, training_text() + word.substr(0, 50'000));
  CHECK(library_of(model)->EncodeAsIds("aeio").size() < 5);
}

TEST_CASE("several threads may encode at once", "[sentencepiece]") {
  const auto tokenizer = tokenizer_of(false, Whitespace::kept);
  const auto library = library_of(model_of(false, Whitespace::kept));
  std::vector<Ids> found(8);
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    threads.emplace_back([&, seed] { found[seed] = tokenizer.encode(odd_text(seed, 2000)); });
  for (auto& thread : threads) thread.join();
  for (std::uint64_t seed = 0; seed < 8; ++seed) CHECK(found[seed] == library->EncodeAsIds(odd_text(seed, 2000)));
}

TEST_CASE("the cuts of a word are sampled with their probabilities to the power of alpha", "[sentencepiece]") {
  const auto library = library_of(model_of(false, Whitespace::dropped));
  const auto tokenizer = tokenizer_of(false, Whitespace::dropped);
  const double alpha = GENERATE(0.2, 1.0);
  const std::string word = "walker";
  std::map<Ids, double> expected, found;
  double total = 0;
  for (const auto& ids : library->NBestEncodeAsIds(word, 1000)) {
    double score = 0;
    for (const auto id : ids) score += library->GetScore(id);
    total += expected[ids] = std::exp(alpha * score);
  }
  REQUIRE(expected.size() > 5);
  constexpr int rounds = 20'000;
  std::string text;
  for (int i = 0; i < rounds; ++i) text += word + " ";
  const auto all = tokenizer.encode_sampled(text, alpha, Rng(3, RandomPurpose::noise));
  for (std::size_t start = 0, end = 1; start < all.size(); start = end++) {
    while (end < all.size() && !library->IdToPiece(all[end]).starts_with("\u2581")) ++end;
    found[Ids(&all[start], &all[start] + (end - start))] += 1.0 / rounds;
  }
  for (const auto& [ids, weight] : expected) {
    const double p = weight / total;
    CHECK(std::abs(found[ids] - p) < 5 * std::sqrt(p / rounds) + 1e-4);
    found.erase(ids);
  }
  CHECK(found.empty());
}

TEST_CASE("sampled ids depend only on the arguments, and decode to the same text", "[sentencepiece]") {
  const auto whitespace = GENERATE(Whitespace::dropped, Whitespace::kept);
  const auto text = training_excerpt(3000);
  const auto sampled = [&](const SentencePieceTokenizer& tokenizer, std::uint64_t seed, std::uint64_t step) {
    return tokenizer.encode_sampled(text, 0.3, Rng(seed, RandomPurpose::noise, step));
  };
  const auto tokenizer = tokenizer_of(false, whitespace);
  const auto ids = sampled(tokenizer, 1, 2);
  CHECK(sampled(tokenizer, 1, 2) == ids);
  CHECK(sampled(tokenizer_of(false, whitespace), 1, 2) == ids);
  CHECK(sampled(tokenizer, 1, 3) != ids);
  CHECK(sampled(tokenizer, 2, 2) != ids);
  CHECK(tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(text)));
  CHECK(tokenizer.encode_sampled("walker", 1000, Rng(1, RandomPurpose::noise)) == tokenizer.encode("walker"));
  CHECK(tokenizer.encode_sampled(std::string(100'000, 'a'), 0.3, Rng(1, RandomPurpose::noise)) ==
        tokenizer.encode(std::string(100'000, 'a')));
  const auto bpe = tokenizer_of(true, whitespace);
  CHECK(sampled(bpe, 1, 2) == bpe.encode(text));
}

TEST_CASE("a subword tokenizer is read back from its file, and a damaged file is an error", "[sentencepiece]") {
  const bool bpe = GENERATE(false, true);
  const auto whitespace = GENERATE(Whitespace::dropped, Whitespace::kept);
  const auto tokenizer = tokenizer_of(bpe, whitespace);
  const auto json = tokenizer.to_json();
  const auto loaded = load_tokenizer(json.dump(), "t.json");
  CHECK(loaded->encode(training_text()) == tokenizer.encode(training_text()));
  CHECK(loaded->to_json() == json);
  CHECK(loaded->vocabulary_size() == tokenizer.vocabulary_size());
  auto text = json["model"].get<std::string>();
  const auto half = text.substr(0, text.size() / 2);
  text[text.size() / 2] = text[text.size() / 2] == 'A' ? 'B' : 'A';
  const auto other = to_string(whitespace == Whitespace::kept ? Whitespace::dropped : Whitespace::kept);
  std::vector<nlohmann::json> damages = {{{"model", text}},      {{"model", half}}, {{"model", "~"}},
                                         {{"model", 3}},         {{"sha256", ""}},  {{"whitespace", "some"}},
                                         {{"whitespace", other}}};
  // Invalid models with the right digest.
  const auto& model = model_of(false, Whitespace::kept);
  for (const auto& bytes : {std::string(), std::string("x"), std::string(100, '\0'), model.substr(0, model.size() / 2)})
    damages.push_back(
        {{"kind", "unigram"}, {"whitespace", "kept"}, {"sha256", sha256(bytes)}, {"model", to_base64(bytes)}});
  for (const auto& damage : damages) {
    auto damaged = json;
    damaged.update(nlohmann::ordered_json(damage));
    CHECK_THAT(message_of(ExitCode::data, [&] { load_tokenizer(damaged.dump(), "t.json"); }),
               Mentions(damage.size() == 4 ? "t.json:|sentencepiece model" : "t.json: "));
  }
}

TEST_CASE("a memo returns the value found for each word, however many there are", "[sentencepiece]") {
  const std::size_t most_words = GENERATE(1, 7, 20'000);
  WordMemo<std::string> memo(most_words);
  const Rng rng(1, RandomPurpose::sampling);
  int searches = 0;
  for (std::uint64_t i = 0; i < 50'000; ++i) {
    auto word = fmt::format("w{}", rng.below(i, 10'000));
    if (i % 5 == 0) word += std::string(100, 'x');
    const auto& value = memo.get(word, [&] {
      ++searches;
      return "of " + word;
    });
    if (value != "of " + word) FAIL(value);
  }
  CHECK(searches >= 10'000);
  if (most_words == 20'000) CHECK(searches <= 10'000 + 10'000);  // short words once, long ones every time
}

TEST_CASE("base64 is RFC 4648's", "[sentencepiece]") {
  using Pair = std::pair<std::string, std::string>;
  for (const auto& [bytes, text] : {Pair{"", ""}, Pair{"f", "Zg=="}, Pair{"fo", "Zm8="}, Pair{"foo", "Zm9v"},
                                    Pair{"foob", "Zm9vYg=="}, Pair{"\xff\xfe", "//4="}}) {
    CHECK(to_base64(bytes) == text);
    CHECK(from_base64(text) == bytes);
  }
  for (const auto* text : {"Z", "Zg", "Zg=", "Zg==\n", " Zg==", "Zh==", "Z=g=", "====", "Zm9v\n", "Zm9?"})
    CHECK_FALSE(from_base64(text).has_value());
  const std::string large(7'000'001, 'q');
  CHECK(from_base64(to_base64(large)) == large);
}

TEST_CASE("a tokenizer can be trained on texts without spaces, and can encode a space", "[sentencepiece]") {
  const Rng rng(7, RandomPurpose::sampling);
  std::string japanese, hexadecimal;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    japanese += to_utf8(static_cast<std::uint32_t>(0x3041 + rng.below(i, 80)));
    hexadecimal += "0123456789abcdef"[rng.below(i, 16)];
    if (i % 64 == 63) hexadecimal += '\n';
  }
  const auto whitespace = GENERATE(Whitespace::kept, Whitespace::dropped);
  const TokenizerOptions options =
      GENERATE_COPY(TokenizerOptions(BpeTokenizerOptions{.vocabulary = 500, .whitespace = whitespace}),
                    TokenizerOptions(UnigramTokenizerOptions{.vocabulary = 500, .whitespace = whitespace}));
  for (const auto& text : {japanese, hexadecimal, std::string(5000, 'a'), std::string(5000, '\0')}) {
    const auto tokenizer = make_tokenizer(options, text);
    CHECK(tokenizer->encode(text).size() <= text.size());
    if (whitespace == Whitespace::dropped) continue;
    for (const auto& kept : {text, std::string("a b")}) CHECK(tokenizer->decode(tokenizer->encode(kept)) == kept);
  }
}

}  // namespace metaformer::test_sentencepiece
