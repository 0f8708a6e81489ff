// Tokenizers in folders of other programs, and their special tokens.

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "support/byte_level_bpe.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"
#include "text/byte_level_bpe.h"
#include "text/make_tokenizer.h"
#include "text/sentencepiece.h"
#include "text/special_tokens.h"

namespace metaformer::test_pretrained_tokenizer {

namespace {

using Ids = std::vector<std::int32_t>;

const RandomMerges merges(7, 150, "abcde ");
const std::string text = "abcd eabc\n decab <|endoftext|> ade";

std::string training_text() {
  std::string words;
  for (int i = 0; i < 300; ++i) words += fmt::format("walk{} talk {}\n", i % 7, i % 11);
  return words;
}

std::string sentencepiece_model(bool bpe, Whitespace whitespace, bool lowercase = false) {
  const auto trained = [&](auto options) {
    options.vocabulary = 320;
    options.lowercase = lowercase;
    options.whitespace = whitespace;
    return train_sentencepiece(options, training_text());
  };
  return bpe ? trained(BpeTokenizerOptions{}) : trained(UnigramTokenizerOptions{});
}

using Names = std::map<std::string, std::string>;

// A folder with a tokenizer whose tokens 256 and 257 are <s> and </s>.
struct Folder {
  TemporaryFolder folder;

  Folder() {
    auto file = RandomMerges(1, 0, "ab").file();
    for (const std::string name : {"<s>", "</s>"})
      file["added_tokens"].push_back({{"id", 256 + file["added_tokens"].size()}, {"content", name}});
    folder.write("tokenizer.json", file.dump());
  }
  void write(const std::string& name, const nlohmann::json& json) const { folder.write(name, json.dump()); }
  std::unique_ptr<Tokenizer> read() const { return read_pretrained_tokenizer(folder.path()); }
  SpecialTokens tokens() const { return special_tokens_of(*read()); }
};

}  // namespace

TEST_CASE("a folder's tokenizer.json takes precedence over other files", "[pretrained_tokenizer]") {
  const TemporaryFolder folder;
  const auto file = folder.write("tokenizer.json", merges.file().dump());
  folder.write("vocab.json", "damaged");
  const auto expected = ByteLevelBpeTokenizer(merges.file().dump(), 0, "t").encode(text);
  for (const auto& path : {folder.path(), file}) CHECK(read_pretrained_tokenizer(path)->encode(text) == expected);
  CHECK(make_tokenizer(PretrainedTokenizerOptions{.path = folder.path().string()}, "")->encode(text) == expected);
}

TEST_CASE("GPT-2's two files give the same ids as a tokenizer.json, and an end-of-text token",
          "[pretrained_tokenizer]") {
  const TemporaryFolder folder;
  auto vocabulary = merges.vocabulary();
  vocabulary["<|endoftext|>"] = vocabulary.size();
  folder.write("vocab.json", vocabulary.dump());
  const std::string version = GENERATE("", "#version: 0.2\n"), line_end = GENERATE("\n", "\r\n");
  std::string lines = version;
  for (const auto& line : merges.lines()) lines += line + line_end;
  folder.write("merges.txt", lines);
  auto file = merges.file();
  file["added_tokens"] = {{{"id", vocabulary.size() - 1}, {"content", "<|endoftext|>"}}};
  file["model"]["vocab"] = vocabulary;
  const auto tokenizer = read_pretrained_tokenizer(folder.path());
  CHECK(tokenizer->encode(text) == ByteLevelBpeTokenizer(file.dump(), 0, "t").encode(text));
  CHECK(tokenizer->encode("<|endoftext|>").size() == 1);
  CHECK(read_pretrained_tokenizer(folder / "merges.txt")->to_json() == tokenizer->to_json());
}

TEST_CASE("broken merges and missing files are errors that name them", "[pretrained_tokenizer]") {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& path = "") {
    return message_of(ExitCode::data, [&] { read_pretrained_tokenizer(path.empty() ? folder.path() : folder / path); });
  };
  CHECK_THAT(message(), Mentions("tokenizer.json|vocab.json"));
  CHECK_THAT(message("nonesuch.json"), ContainsSubstring("nonesuch.json"));
  for (const auto& [name, content, text] : std::vector<std::array<std::string, 3>>{
           {"vocab.json", merges.vocabulary().dump(), "merges.txt"},
           {"merges.txt", "#version: 0.2\na b\nab\n", "merges.txt:3: 'ab'|two tokens"},
           {"merges.txt", "a zz\n", "vocab.json: model.merges[0]|token 'zz'"},
           {"vocab.json", "[1]", "vocab.json: not an object"},
           {"tokenizer.json", "{", "tokenizer.json: not valid JSON"},
           {"tokenizer.json", "[]", "tokenizer.json:|JSON object"}}) {
    folder.write(name, content);
    CHECK_THAT(message(), Mentions(text));
  }
}

TEST_CASE("the model of a folder may have more ids than its tokenizer has tokens", "[pretrained_tokenizer]") {
  const Folder folder;
  const auto vocabulary_with = [&](const std::string& config) {
    folder.folder.write("config.json", config);
    return folder.read()->vocabulary_size();
  };
  CHECK(vocabulary_with(R"({"vocab_size": 512})") == 512);
  for (const auto* config : {"{}", "[]", "{", R"({"vocab_size": 10})", R"({"vocab_size": -3})",
                             R"({"vocab_size": "512"})", R"({"vocab_size": 1e300})"})
    CHECK(vocabulary_with(config) == 258);
  CHECK(ids_without_token(*folder.read()).empty());
  vocabulary_with(R"({"vocab_size": 261})");
  CHECK(ids_without_token(*folder.read()) == Ids{258, 259, 260});
}

TEST_CASE("a sentencepiece model that keeps white space is read", "[pretrained_tokenizer]") {
  const bool bpe = GENERATE(false, true);
  const TemporaryFolder folder;
  const auto model = sentencepiece_model(bpe, Whitespace::kept);
  folder.write("tokenizer.model", model);
  const auto tokenizer = read_pretrained_tokenizer(folder.path());
  const SentencePieceTokenizer expected(bpe ? "bpe" : "unigram", Whitespace::kept, model, "t");
  CHECK(tokenizer->to_json() == expected.to_json());
  CHECK(tokenizer->encode("walk  3\n\u81EA") == expected.encode("walk  3\n\u81EA"));
}

TEST_CASE("with a model like LLaMA 2's, a leading space replaces the one that the library adds",
          "[pretrained_tokenizer]") {
  const std::string type = GENERATE("bpe", "unigram");
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += fmt::format("for i in {}:\n    if a:\n        walk({})\n", i % 9, i % 5);
  const TemporaryFolder folder;
  const auto prefix = (folder / "model").string();
  const auto status = sentencepiece::SentencePieceTrainer::Train({{"input", folder.write("lines", lines).string()},
                                                                  {"model_prefix", prefix},
                                                                  {"model_type", type},
                                                                  {"vocab_size", "320"},
                                                                  {"byte_fallback", "true"},
                                                                  {"normalization_rule_name", "identity"},
                                                                  {"remove_extra_whitespaces", "false"},
                                                                  {"allow_whitespace_only_pieces", "true"},
                                                                  {"hard_vocab_limit", "false"},
                                                                  {"minloglevel", "3"}});
  REQUIRE(status.ok());
  folder.write("model/tokenizer.json", R"({"model": {"byte_fallback": true}})");
  folder.write("model/tokenizer.model", read_text(prefix + ".model"));
  const auto tokenizer = read_pretrained_tokenizer(folder / "model");
  sentencepiece::SentencePieceProcessor library;
  REQUIRE(library.Load(prefix + ".model").ok());
  CHECK(library.PieceToId("\u2581\u2581\u2581\u2581") != library.unk_id());  // several spaces are one piece
  for (const std::string sample :
       {"walk", " walk", "    if  a:", "a\n    walk(3)\n\n", "      x   ", "\t \t  b", "<s> </s>", "\u81EA  \u7136"}) {
    CAPTURE(sample);
    CHECK(tokenizer->encode(" " + sample) == library.EncodeAsIds(sample));
    CHECK(tokenizer->decode(tokenizer->encode(sample)) == sample);
  }
}

TEST_CASE("a sentencepiece model that changes text is refused", "[pretrained_tokenizer]") {
  const auto model = sentencepiece_model(true, Whitespace::kept);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {sentencepiece_model(true, Whitespace::dropped), "white space kept"},
      {sentencepiece_model(false, Whitespace::kept, /*lowercase=*/true), "normaliser makes 'a'"},
      {"no model", "not a sentencepiece model"},
      {model.substr(0, model.size() / 2), "not a sentencepiece model"}};
  const TemporaryFolder folder;
  for (const auto& [content, why] : cases) {
    folder.write("tokenizer.model", content);
    CHECK_THAT(message_of(ExitCode::data, [&] { read_pretrained_tokenizer(folder.path()); }),
               Mentions("tokenizer.model: |" + why));
  }
}

TEST_CASE("special tokens have the ids of the model and the names of its tokenizer", "[special_tokens]") {
  const Folder folder;
  CHECK(folder.tokens() == SpecialTokens());
  folder.write("special_tokens_map.json", {{"bos_token", "</s>"}, {"eos_token", {{"content", "</s>"}}}});
  CHECK(folder.tokens().eos == Ids{257});
  folder.write("tokenizer_config.json", {{"bos_token", "<s>"}, {"pad_token", "[PAD]"}});
  const Names names = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};  // without [PAD], which the tokenizer lacks
  CHECK(folder.tokens().names == names);
  CHECK(folder.tokens().bos == 256);
  folder.write("config.json", {{"model_type", "llama"}, {"bos_token_id", nullptr}, {"eos_token_id", {257, 65}}});
  CHECK(folder.tokens() == SpecialTokens{.bos = std::nullopt, .pad = std::nullopt, .eos = {257, 65}, .names = names});
  folder.write("generation_config.json", {{"eos_token_id", 66}, {"pad_token_id", 65}});
  CHECK(folder.tokens().eos == Ids{66});
  CHECK(folder.tokens().names.at("pad_token") == "A");
}

TEST_CASE("absent ids are the defaults of the model type, and ids without a token are ignored", "[special_tokens]") {
  const Folder folder;
  folder.write("config.json", {{"model_type", "llama"}, {"vocab_size", 300}});
  CHECK(folder.tokens().bos == 1);
  CHECK(folder.tokens().eos == Ids{2});
  folder.write("config.json", {{"model_type", "gpt2"}, {"vocab_size", 300}});  // the default 50256 has no token
  CHECK(folder.tokens() == SpecialTokens());
  for (const nlohmann::json& eos :
       {nlohmann::json(258), nlohmann::json(-1), nlohmann::json("</s>"), nlohmann::json(1e9)}) {
    folder.write("config.json", {{"model_type", "gpt2"}, {"vocab_size", 300}, {"eos_token_id", eos}});
    CHECK(folder.tokens() == SpecialTokens());
  }
}

TEST_CASE("a tokenizer is saved with its special tokens, if it has any", "[special_tokens]") {
  const Folder folder;
  CHECK_FALSE(folder.read()->to_json().contains("special_tokens"));
  folder.write("config.json", {{"model_type", "llama"}, {"eos_token_id", 257}});
  const auto saved = folder.read()->to_json();
  CHECK(special_tokens_of(*load_tokenizer(saved.dump(), "t")) == folder.tokens());
  for (const auto* damage : {R"({"eos_token_id": [300]})", R"({"bos_token_id": "1"})", R"({"names": {"eos_token": 1}})",
                             R"({"names": {"other": "x"}})", R"({"names": null})"}) {
    auto damaged = saved;
    damaged["special_tokens"].update(nlohmann::ordered_json::parse(damage));
    CHECK_THAT(message_of(ExitCode::data, [&] { load_tokenizer(damaged.dump(), "t.json"); }),
               Mentions("t.json: special"));
  }
}

}  // namespace metaformer::test_pretrained_tokenizer
