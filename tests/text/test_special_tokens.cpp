#include <nlohmann/json.hpp>

#include "support/byte_level_bpe.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"
#include "text/byte_level_bpe.h"
#include "text/make_tokenizer.h"
#include "text/special_tokens.h"

namespace metaformer {

namespace {

using Ids = std::vector<std::int32_t>;
using Names = std::map<std::string, std::string>;

// A folder with a tokenizer whose tokens 256 and 257 are <s> and </s>, and a model with more ids.
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

TEST_CASE("special tokens are those of the model, and named by its tokenizer", "[special_tokens]") {
  const Folder folder;
  CHECK(folder.tokens() == SpecialTokens());
  folder.write("special_tokens_map.json", {{"bos_token", "</s>"}, {"eos_token", {{"content", "</s>"}}}});
  CHECK(folder.tokens().eos == Ids{257});
  folder.write("tokenizer_config.json", {{"bos_token", "<s>"}, {"pad_token", "[PAD]"}});
  const Names names = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};  // not of one that the tokenizer lacks
  CHECK(folder.tokens().names == names);
  CHECK(folder.tokens().bos == 256);
  folder.write("config.json", {{"model_type", "llama"}, {"bos_token_id", nullptr}, {"eos_token_id", {257, 65}}});
  CHECK(folder.tokens() == SpecialTokens{.bos = std::nullopt, .pad = std::nullopt, .eos = {257, 65}, .names = names});
  folder.write("generation_config.json", {{"eos_token_id", 66}, {"pad_token_id", 65}});
  CHECK(folder.tokens().eos == Ids{66});
  CHECK(folder.tokens().names.at("pad_token") == "A");
}

TEST_CASE("absent ids are the defaults of the model type, and ids without a token are none", "[special_tokens]") {
  const Folder folder;
  folder.write("config.json", {{"model_type", "llama"}, {"vocab_size", 300}});
  CHECK(folder.tokens().bos == 1);
  CHECK(folder.tokens().eos == Ids{2});
  folder.write("config.json", {{"model_type", "gpt2"}, {"vocab_size", 300}});  // 50256
  CHECK(folder.tokens() == SpecialTokens());
  for (const nlohmann::json& eos :
       {nlohmann::json(258), nlohmann::json(-1), nlohmann::json("</s>"), nlohmann::json(1e9)}) {
    folder.write("config.json", {{"model_type", "gpt2"}, {"vocab_size", 300}, {"eos_token_id", eos}});
    CHECK(folder.tokens() == SpecialTokens());
  }
}

TEST_CASE("a tokenizer is saved with its special tokens, and one without them as before", "[special_tokens]") {
  const Folder folder;
  CHECK_FALSE(folder.read()->to_json().contains("special_tokens"));
  folder.write("config.json", {{"model_type", "llama"}, {"eos_token_id", 257}});
  const auto saved = folder.read()->to_json();
  CHECK(special_tokens_of(*load_tokenizer(saved.dump(), "t")) == folder.tokens());
  for (const auto* damage : {R"({"eos_token_id": [300]})", R"({"bos_token_id": "1"})", R"({"names": {"eos_token": 1}})",
                             R"({"names": {"other": "x"}})", R"({"names": null})"}) {
    auto damaged = saved;
    damaged["special_tokens"].update(nlohmann::ordered_json::parse(damage));
    CHECK(message_of(ExitCode::data, [&] { load_tokenizer(damaged.dump(), "t.json"); }) ==
          "t.json: special_tokens is not ids and names of tokens");
  }
}

TEST_CASE("ids that no token has are those of a model with more rows than tokens", "[special_tokens]") {
  const Folder folder;
  CHECK(ids_without_token(*folder.read()).empty());
  folder.write("config.json", {{"vocab_size", 261}});
  CHECK(ids_without_token(*folder.read()) == Ids{258, 259, 260});
}

}  // namespace metaformer
