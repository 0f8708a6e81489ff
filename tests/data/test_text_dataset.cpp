#include <unistd.h>

#include <map>

#include "base/digest.h"
#include "base/download.h"
#include "data/corpus.h"
#include "data/data_support.h"
#include "data/text_dataset.h"
#include "support/own_cache.h"
#include "text/symbol_tokenizers.h"

namespace metaformer {

namespace {

const std::string sample_text = "Überraschung: 自然 \U0001F600\nEnde";

TextDataset dataset_of(const std::string& text, std::int64_t context,
                       TokenizerOptions tokenizer = CharacterTokenizerOptions{}) {
  TextDataConfig config;
  config.tokenizer = tokenizer;
  std::shared_ptr<const Tokenizer> made;
  return TextDataset(Corpus{.path = "memory.txt", .text = text, .sha256 = {}}, config, context, made);
}

std::string digits(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>('0' + i * i % 7);
  return text;
}

}  // namespace

TEST_CASE("the split is the same for every tokenizer and cuts between characters", "[dataset]") {
  const auto characters = dataset_of(sample_text, 1), bytes = dataset_of(sample_text, 1, ByteTokenizerOptions{});
  const auto train = CharacterTokenizer::from_text(sample_text).decode(characters.tokens(Split::train));
  CHECK(train == ByteTokenizer().decode(bytes.tokens(Split::train)));
  CHECK(characters.tokens(Split::train).size() == 20);  // int(23 * 0.9)
  CHECK(characters.characters(Split::validation) == 3);
}

TEST_CASE("every token but the first is an evaluation target exactly once, in order", "[dataset]") {
  const auto count = GENERATE(50, 51, 57, 58, 64);
  const auto dataset = dataset_of(digits(count * 10), 7);
  const auto& tokens = dataset.tokens(Split::validation);
  std::vector<std::int64_t> targets;
  std::int64_t counted = 0;
  for (std::int64_t first = 0; first < dataset.consecutive_window_count(Split::validation); first += 3) {
    const auto rows = dataset.consecutive_windows(Split::validation, first, 3);
    CHECK(rows.ids.size() == static_cast<std::size_t>(rows.rows * rows.length));
    counted += rows.target_count;
    for (const auto target : rows.targets)
      if (target >= 0) targets.push_back(target);
  }
  CHECK(counted == static_cast<std::int64_t>(tokens.size()) - 1);
  CHECK(targets == std::vector<std::int64_t>(tokens.begin() + 1, tokens.end()));
}

TEST_CASE("random windows are text, are replayable, and do not depend on how a step is cut", "[dataset]") {
  const auto dataset = dataset_of(digits(500), 8);
  const auto whole = dataset.random_windows(Split::train, 1, RandomPurpose::batches, 4, 0, 6);
  auto ids = dataset.random_windows(Split::train, 1, RandomPurpose::batches, 4, 0, 2).ids;
  const auto rest = dataset.random_windows(Split::train, 1, RandomPurpose::batches, 4, 2, 4).ids;
  ids.insert(ids.end(), rest.begin(), rest.end());
  CHECK(ids == whole.ids);
  CHECK(dataset.random_windows(Split::train, 2, RandomPurpose::batches, 4, 0, 6).ids != whole.ids);
  CHECK(dataset.random_windows(Split::train, 1, RandomPurpose::batches, 5, 0, 6).ids != whole.ids);
  for (std::size_t i = 0; i < whole.ids.size(); ++i)
    if ((i + 1) % 8 != 0) CHECK(whole.targets[i] == whole.ids[i + 1]);
  CHECK(whole.target_count == 48);
}

TEST_CASE("random windows reach every place, the last one too", "[dataset]") {
  const auto dataset = dataset_of(digits(30), 2);  // 27 training tokens: 25 places
  std::map<std::vector<std::int64_t>, int> seen;
  const auto rows = dataset.random_windows(Split::train, 9, RandomPurpose::batches, 0, 0, 2000);
  const auto& tokens = dataset.tokens(Split::train);
  bool last_target_seen = false;
  std::map<std::int64_t, int> expected, actual;
  for (std::size_t place = 0; place < 25; ++place) ++expected[tokens[place]];
  for (std::size_t row = 0; row < 2000; ++row) ++actual[rows.ids[row * 2]];
  for (const auto& [token, count] : expected) CHECK(actual[token] == Approx(80 * count).epsilon(0.35));
  for (std::size_t row = 0; row < 2000; ++row)
    last_target_seen |= rows.ids[row * 2] == tokens[24] && rows.ids[row * 2 + 1] == tokens[25] &&
                        rows.targets[row * 2 + 1] == tokens[26];
  CHECK(last_target_seen);
}

TEST_CASE("a text shorter than the context is refused with both numbers", "[dataset]") {
  const auto [code, message] = failure([] { dataset_of(digits(100), 10); });
  CHECK(code == ExitCode::data);
  CHECK(message == "memory.txt: its validation split has 10 tokens; model.context 10 needs at least 11");
  CHECK_NOTHROW(dataset_of(digits(110), 10));
}

TEST_CASE("a public corpus with another digest is refused, and --offline never fetches", "[corpus]") {
  const TemporaryFolder folder;
  const Variable data("METAFORMER_DATA", folder.path().c_str());
  const OwnCache no_cache;
  CHECK_THAT(failure([] { load_corpus(TextDataConfig{}, true); }).second, ContainsSubstring("--offline forbids"));
  folder.write("tinyshakespeare.txt", "not Shakespeare");
  const auto [code, message] = failure([] { load_corpus(TextDataConfig{}, true); });
  CHECK(code == ExitCode::data);
  CHECK_THAT(message, ContainsSubstring("should be 86c4e6aa"));
  TextDataConfig typo;
  typo.corpus = "tinyshakespear";
  CHECK_THAT(failure([&] { load_corpus(typo, true); }).second, ContainsSubstring("did you mean 'tinyshakespeare'?"));
  const Variable nowhere("METAFORMER_DATA", (folder / "nowhere").c_str());
  CHECK_THAT(failure([] { load_corpus(TextDataConfig{}, true); }).second, ContainsSubstring("no such folder"));
}

TEST_CASE("an archive by another name counts as the corpus, the official one first", "[corpus]") {
  const TemporaryFolder folder;
  const Variable data("METAFORMER_DATA", folder.path().c_str());
  const OwnCache no_cache;
  const auto& imdb = find_public_corpus("imdb");
  CHECK_FALSE(locate_corpus(imdb));
  folder.write("aclImdb_v1.txt", "");
  CHECK_FALSE(locate_corpus(imdb));
  folder.write("aclImdb_v1.labeled.tar.gz", "");
  CHECK(locate_corpus(imdb) == folder / "aclImdb_v1.labeled.tar.gz");
  folder.write("aclImdb_v1.tar.gz", "");
  CHECK(locate_corpus(imdb) == folder / "aclImdb_v1.tar.gz");
  TextDataConfig config;
  config.corpus = "imdb";
  const auto [code, message] = failure([&] { load_corpus(config, true); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring("for task classification"));
}

TEST_CASE("there is no cache without a home, and none that others can write to", "[corpus]") {
  const TemporaryFolder home;
  const Variable no_data("METAFORMER_DATA", nullptr), no_xdg("XDG_CACHE_HOME", nullptr);
  {
    const Variable path("HOME", home.path().c_str());
    CHECK(cache_folder() == home / ".cache" / "metaformer");
    const auto cache = home.write(".cache/metaformer/tinyshakespeare.txt", "planted").parent_path();
    CHECK(cache_folder() == cache);
    std::filesystem::permissions(cache, std::filesystem::perms::all);
    CHECK_FALSE(cache_folder());
    CHECK_FALSE(locate_corpus(find_public_corpus("tinyshakespeare")));
    std::filesystem::permissions(cache, std::filesystem::perms::owner_all);
    CHECK(cache_folder() == cache);
    if (::geteuid() == 0) {
      REQUIRE(::chown(cache.c_str(), 65534, 65534) == 0);
      CHECK_FALSE(cache_folder());
    }
  }
  for (const auto* value : {static_cast<const char*>(nullptr), "", "relative"}) {
    const Variable none("HOME", value);
    CHECK_FALSE(cache_folder());
    const auto [code, message] = failure([] { load_corpus(TextDataConfig{}, false); });
    CHECK(code == ExitCode::data);
    CHECK_THAT(message, ContainsSubstring("there is no cache to fetch it into"));
  }
}

TEST_CASE("nothing is downloaded but by https", "[corpus]") {
  for (const std::string url : {"file:///etc/hostname", "http://127.0.0.1:9/a", "ftp://127.0.0.1:9/a"}) {
    const auto [code, message] = failure([&] { download(url, 100); });
    CHECK(code == ExitCode::data);
    CHECK_THAT(message, ContainsSubstring("not supported"));
  }
}

TEST_CASE("characters that unknown words stand for are counted", "[dataset]") {
  TextDataConfig config;
  config.tokenizer = WordTokenizerOptions{.min_count = 2, .whitespace = Whitespace::kept};
  config.validation_fraction = 0.5;
  const std::string train = "aa bb aa bb aa bb .", validation = "aa strange bb, odd";
  Corpus corpus{.path = "memory.txt", .text = train, .sha256 = {}};
  corpus.held_out = validation;
  std::shared_ptr<const Tokenizer> tokenizer;
  const TextDataset dataset(corpus, config, 1, tokenizer);
  CHECK(dataset.unknown_characters(Split::validation) == 2 + 7 + 1 + 3);  // aa without a space, strange , odd
  CHECK(dataset.unknown_characters(Split::train) == 2 + 1);
  CHECK(dataset_of(sample_text, 1).unknown_characters(Split::validation) == 0);
}

TEST_CASE("MD5 has the values of RFC 1321", "[corpus]") {
  CHECK(md5("") == "d41d8cd98f00b204e9800998ecf8427e");
  CHECK(md5("message digest") == "f96b697d7cb7938d525a2f31aaf161d0");
}

TEST_CASE("SHA-256 has the values of FIPS 180-4", "[corpus]") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace metaformer
