#include <nlohmann/json.hpp>
#include <set>

#include "data/text_dataset.h"
#include "support/catch.h"
#include "support/own_cache.h"
#include "text/make_tokenizer.h"

namespace metaformer::test_tokenizer_cache {

namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& extra = "") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "walking talker walks talked" + extra + "\n";
  return text;
}

TextDataConfig config_with(const TokenizerOptions& options, bool cache = true) {
  TextDataConfig config;
  config.cache = cache;
  config.tokenizer = options;
  return config;
}

std::string made(const DataConfig& config, const std::string& text) {
  return obtain_tokenizer(config, text, Unknown::refuse)->to_json().dump();
}

}  // namespace

TEST_CASE("a tokenizer is learned once, and then read from the cache", "[tokenizer_cache]") {
  const OwnCache cache;
  const auto config = config_with(UnigramTokenizerOptions{.vocabulary = 40});
  const auto path = cached_tokenizer_path(config.tokenizer, text_of());
  const auto first = made(config, text_of());
  REQUIRE(fs::exists(path));
  const auto written = fs::last_write_time(path);  // learning it again would write it again
  CHECK(made(config, text_of()) == first);
  CHECK(fs::last_write_time(path) == written);
  made(config_with(UnigramTokenizerOptions{.vocabulary = 30}), text_of());
  CHECK(cache.files().size() == 2);
}

TEST_CASE("the cache name of a tokenizer depends on its text and options, but not on sampling", "[tokenizer_cache]") {
  const UnigramTokenizerOptions plain{.vocabulary = 40};
  const auto path_of = [](const TokenizerOptions& options) { return cached_tokenizer_path(options, text_of()); };
  const std::set<fs::path> paths = {path_of(plain),
                                    cached_tokenizer_path(plain, text_of("!")),
                                    path_of(BpeTokenizerOptions{.vocabulary = 40}),
                                    path_of(UnigramTokenizerOptions{.vocabulary = 41}),
                                    path_of(UnigramTokenizerOptions{.vocabulary = 40, .character_coverage = 1}),
                                    path_of(UnigramTokenizerOptions{.vocabulary = 40, .lowercase = true}),
                                    path_of(UnigramTokenizerOptions{.vocabulary = 40, .whitespace = Whitespace::kept})};
  CHECK(paths.size() == 7);
  CHECK(path_of(UnigramTokenizerOptions{.vocabulary = 40, .sampling = 0.3}) == path_of(plain));
  CHECK(path_of(WordTokenizerOptions{}).empty());
}

TEST_CASE("a damaged entry of the cache is never used", "[tokenizer_cache]") {
  const OwnCache cache;
  const auto config = config_with(BpeTokenizerOptions{.vocabulary = 40});
  const auto path = cached_tokenizer_path(config.tokenizer, text_of());
  const auto good = made(config, text_of());
  const auto content = read_text(path);
  const auto other_path = cached_tokenizer_path(config.tokenizer, text_of("s"));
  made(config, text_of("s"));
  auto flipped = content;
  flipped[flipped.size() / 2] = flipped[flipped.size() / 2] == 'A' ? 'B' : 'A';
  auto renamed = content;
  renamed.replace(renamed.find("\"bpe\""), 5, "\"unigram\"");
  for (const auto& bad : {std::string(), std::string("{}"), content.substr(0, content.size() / 2), flipped, renamed,
                          read_text(other_path)}) {
    CAPTURE(bad.size());
    cache.folder().write(fs::relative(path, cache.folder().path()), bad);
    CHECK(made(config, text_of()) == good);
    CHECK(read_text(path) == content);  // repaired
  }
}

TEST_CASE("a disabled cache of tokenizers is not used, and one that cannot be written is no error",
          "[tokenizer_cache]") {
  const OwnCache cache;
  const UnigramTokenizerOptions options{.vocabulary = 40};
  const auto expected = made(config_with(options, /*cache=*/false), text_of());
  CHECK(made(config_with(WordTokenizerOptions{.min_count = 1}), "a b").find("\"a\"") != std::string::npos);
  CHECK(cache.files().empty());
  cache.folder().write("metaformer", "a file where the folder should be");
  CHECK(made(config_with(options), text_of()) == expected);
}

TEST_CASE("words and subwords of language models are learned only from the training part", "[tokenizer_cache]") {
  const OwnCache cache;
  const auto train = text_of();
  auto config = config_with(WordTokenizerOptions{.min_count = 1, .whitespace = Whitespace::kept});
  config.validation_fraction = 0.5;
  const auto json_for = [&](const std::string& held_out) {
    const Corpus corpus{.path = "memory.txt", .text = train + held_out, .sha256 = {}};
    return make_text_tokenizer(corpus, config)->to_json().dump();
  };
  const std::string one(train.size(), 'z');
  std::string other = one;
  for (std::size_t i = 0; i < other.size(); i += 2) other[i] = ' ';
  for (const TokenizerOptions& options :
       {config.tokenizer, TokenizerOptions(UnigramTokenizerOptions{.vocabulary = 300, .whitespace = Whitespace::kept}),
        TokenizerOptions(BpeTokenizerOptions{.vocabulary = 300, .whitespace = Whitespace::kept})}) {
    config.tokenizer = options;
    CHECK(json_for(one) == json_for(other));
  }
  config.tokenizer = CharacterTokenizerOptions{};
  CHECK(json_for(one).find("\"z\"") != std::string::npos);
}

}  // namespace metaformer::test_tokenizer_cache
