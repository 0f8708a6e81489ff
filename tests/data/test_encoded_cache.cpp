// The cache of tokens: a hit gives the same splits as a miss, and every change of the data or options is a miss.

#include <fmt/format.h>

#include <functional>

#include "base/digest.h"
#include "data/encoded_cache.h"
#include "support/byte_level_bpe.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/own_cache.h"
#include "text/make_tokenizer.h"

namespace metaformer::test_encoded_cache {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// The cached content of the splits, as text.
std::string all_of(const EncodedSplits& splits) {
  std::string all = splits.description.dump() + splits.codec.tokenizer->to_json().dump();
  for (const auto& label : splits.codec.labels) all += fmt::format("\nlabel {}", label);
  for (const auto& texts : splits.texts) {
    all += "\nsplit";
    for (const auto& text : texts) all += fmt::format("\n{} {} '{}'", text.label, fmt::join(text.ids, " "), text.text);
  }
  return all;
}

std::string table_of(int rows, const std::string& ending = "") {
  std::string table = "text,label,stars\n";
  for (int i = 0; i < rows; ++i) table += fmt::format("word{} and word{}{},{},{}\n", i, i % 7, ending, i % 3, i % 5);
  return table;
}

// A folder with tables and a cache; the config tolerates the malformed row of the training table.
struct Place {
  OwnCache cache;
  TemporaryFolder folder;
  LabelledDataConfig config;

  Place() {
    config.path = folder.write("train.csv", table_of(60) + ",1,1\n").string();
    config.test_path = folder.write("test.csv", table_of(9)).string();
    config.malformed_limit = 0.1;
    config.tokenizer = WordTokenizerOptions{.min_count = 1};
  }
  std::string fresh(const Codec& codec = {}) const {
    return all_of(encode_splits(load_labelled_splits(config, true), config, codec));
  }
  EncodedSplits load() const { return load_encoded_splits(config, true, Codec{}); }
  std::string loaded() const { return all_of(load()); }
  fs::path only_file() const {
    const auto files = cache.files();
    REQUIRE(files.size() == 1);
    return files.front();
  }
};

// Whether `load` reads the file without a replacement: a new file would have other permissions.
bool is_hit(const fs::path& file, const std::function<void()>& load) {
  const auto mark = fs::perms::owner_read | fs::perms::owner_write | fs::perms::owner_exec;
  fs::permissions(file, mark);
  const auto old = fs::file_time_type::clock::now() - 24h;
  fs::last_write_time(file, old);
  load();
  return fs::status(file).permissions() == mark && fs::last_write_time(file) > old + 1h;
}

bool is_within_its_codec(const EncodedSplits& splits) {
  const auto labels = static_cast<std::int64_t>(splits.codec.labels.size());
  const auto vocabulary = splits.codec.tokenizer->vocabulary_size();
  for (const auto& texts : splits.texts)
    for (const auto& [ids, label, text] : texts)
      for (const auto id : ids)
        if (id < 0 || id >= vocabulary || label < 0 || label >= labels) return false;
  return true;
}

// A file of tokens with the right digest.
std::string with_digest(const std::string& content) { return content + sha256(content); }

}  // namespace

TEST_CASE("tokens from the cache equal those of the texts", "[encoded_cache]") {
  Place place;
  place.config.tokenizer = GENERATE(as<TokenizerOptions>(), WordTokenizerOptions{.min_count = 1},
                                    CharacterTokenizerOptions{}, ByteTokenizerOptions{});
  const auto expected = place.fresh();
  CHECK(place.loaded() == expected);
  CHECK(is_hit(place.only_file(), [&] { CHECK(place.loaded() == expected); }));
  // The whole tokenizer comes from the cache, so it also encodes unknown words.
  const auto fresh = encode_splits(load_labelled_splits(place.config, true), place.config, Codec{});
  CHECK(place.load().codec.tokenizer->encode("word1 unseen") == fresh.codec.tokenizer->encode("word1 unseen"));
}

TEST_CASE("a moved source is a hit, and the description has its new path", "[encoded_cache]") {
  Place place;
  place.load();
  const auto file = place.only_file();
  const auto moved = place.folder.write("moved/train.csv", "");
  fs::rename(*place.config.path, moved);
  place.config.path = moved.string();
  CHECK(is_hit(file, [&] { CHECK(place.loaded() == place.fresh()); }));
  const auto description = place.load().description.at("train");
  CHECK(description.at("path") == moved.string());
  CHECK(description.at("malformed") == 1);
}

TEST_CASE("every change of data or options that affects the tokens is a miss", "[encoded_cache]") {
  Place place;
  place.load();
  const auto file = place.only_file();
  using Change = std::function<void(Place&)>;
  const auto [name, change] = GENERATE(table<std::string, Change>({
      {"content", [](Place& p) { p.folder.write("train.csv", table_of(60, "!") + ",1,1\n"); }},
      {"content of the test table", [](Place& p) { p.folder.write("test.csv", table_of(8)); }},
      {"no test table", [](Place& p) { p.config.test_path.reset(); }},
      {"validation table", [](Place& p) { p.config.validation_path = p.config.test_path; }},
      {"name, which says the format",
       [](Place& p) { p.config.path = p.folder.write("train.tsv", table_of(60) + ",1,1\n").string(); }},
      {"further texts", [](Place& p) { p.config.extra_path = p.folder.write("more.csv", table_of(3, "?")).string(); }},
      {"validation_fraction", [](Place& p) { p.config.validation_fraction = 0.3; }},
      {"malformed_limit", [](Place& p) { p.config.malformed_limit = 0.2; }},
      {"label_field", [](Place& p) { p.config.label_field = "stars"; }},
      {"rating", [](Place& p) { p.config.rating = {.positive_from = 2, .negative_to = 0}; }},
      {"min_count", [](Place& p) { p.config.tokenizer = WordTokenizerOptions{.min_count = 2}; }},
      {"kind", [](Place& p) { p.config.tokenizer = ByteTokenizerOptions{}; }},
  }));
  CAPTURE(name);
  change(place);
  const auto outcome = [](const auto& get) {
    std::string all;
    const auto problem = failure([&] { all = get(); });
    return std::pair(problem, all);
  };
  const auto load = [&] { return place.loaded(); };
  CHECK_FALSE(is_hit(file, [&] { outcome(load); }));
  CHECK(outcome(load) == outcome([&] { return place.fresh(); }));
}

TEST_CASE("data above a limit or without a column are an error, also if their tokens are cached", "[encoded_cache]") {
  Place place;
  place.load();
  const auto message = [&] { return message_of(ExitCode::data, [&] { place.load(); }); };
  place.config.malformed_limit = 0;
  CHECK_THAT(message(), ContainsSubstring("1 of 61 rows"));
  place.config.text_field = "te\xff";
  CHECK_THAT(message(), ContainsSubstring("no column 'te\\xff'"));
  fs::remove(*place.config.path);
  CHECK_THAT(message(), ContainsSubstring("no such file"));
}

TEST_CASE("every codec has its own cached tokens, and the codec of a training shares those of the training",
          "[encoded_cache]") {
  Place place;
  const auto made = place.load();
  const auto with = [&](const Codec& codec) { return all_of(load_encoded_splits(place.config, true, codec)); };
  CHECK(is_hit(place.only_file(), [&] { CHECK(with(made.codec) == all_of(made)); }));
  auto reversed = made.codec;
  std::reverse(reversed.labels.begin(), reversed.labels.end());
  Codec bytes{.tokenizer = make_tokenizer(ByteTokenizerOptions{}, ""), .labels = made.codec.labels};
  for (const auto& other : {reversed, bytes}) {
    const auto before = place.cache.files().size();
    for (int i = 0; i < 2; ++i) {
      CHECK(with(other) == place.fresh(other));
      CHECK(place.cache.files().size() == before + 1);
    }
  }
  CHECK(place.loaded() == all_of(made));
}

TEST_CASE("cached tokens depend on the content of a pretrained tokenizer, not on its path", "[encoded_cache]") {
  Place place;
  const auto use = [&](const std::string& name, std::uint64_t seed) {
    place.folder.write(name + "/tokenizer.json", RandomMerges(seed, 30, "word12").file().dump());
    place.config.tokenizer = PretrainedTokenizerOptions{.path = (place.folder / name).string()};
    CHECK(place.loaded() == place.fresh());
  };
  use("one", 1);
  CHECK(is_hit(place.only_file(), [&] { use("same", 1); }));
  use("other", 2);
  CHECK(place.cache.files().size() == 2);
}

TEST_CASE("texts are kept only for training with a tokenizer that samples", "[encoded_cache]") {
  Place place;
  place.config.tokenizer = UnigramTokenizerOptions{.vocabulary = 50, .sampling = 0.2};
  const auto expected = place.loaded();
  const auto again = place.load();
  CHECK(all_of(again) == expected);
  CHECK(expected == place.fresh());
  CHECK_FALSE(again[Split::train].front().text.empty());
  CHECK(again[Split::test].front().text.empty());
  place.config.tokenizer = UnigramTokenizerOptions{.vocabulary = 50};
  for (int i = 0; i < 2; ++i) CHECK(place.load()[Split::train].front().text.empty());
}

TEST_CASE("a damaged file of tokens is written again", "[encoded_cache]") {
  Place place;
  const auto expected = place.loaded();
  const auto file = place.only_file();
  const auto good = read_text(file);
  std::vector<std::string> bad = {"", "metaformer tokens\n", good + "x", std::string(good.size(), '\0')};
  for (std::size_t at = 0; at < good.size(); at += 1 + good.size() / 40) {
    bad.push_back(good.substr(0, at));
    bad.push_back(good);
    bad.back()[at] = static_cast<char>(bad.back()[at] ^ 0x20);
  }
  for (const auto& content : bad) {
    place.cache.folder().write(fs::relative(file, place.cache.folder().path()), content);
    CHECK(place.loaded() == expected);
    CHECK(read_text(file) == good);
  }
}

TEST_CASE("a forged count in a file of tokens is never trusted, even with a right digest", "[encoded_cache]") {
  Place place;
  const std::string key(64, 'k');
  const auto splits = place.load();
  const auto file = write_encoded(splits, key, 1 << 20);
  const auto content = file.substr(0, file.size() - 64);
  REQUIRE(all_of(read_encoded(with_digest(content), key, "f.bin")) == all_of(splits));
  const auto begin = content.find(key) + key.size();
  int refused = 0;
  for (auto at = begin; at + 8 <= content.size(); ++at) {
    auto forged = content;
    forged.replace(at, 8, 8, '\xff');
    const auto code = failure([&] {
                        const auto read = read_encoded(with_digest(forged), key, "f.bin");
                        CHECK(is_within_its_codec(read));
                      }).first;
    CHECK((code == ExitCode::ok || code == ExitCode::data));
    refused += code == ExitCode::data;
  }
  CHECK(refused > static_cast<int>(content.size() - begin) / 2);
  for (auto size = begin; size < content.size(); size += 7)
    CHECK(failure([&] { read_encoded(with_digest(content.substr(0, size)), key, "f.bin"); }).first == ExitCode::data);
  const auto message = [&](const std::string& bytes, char of_key) {
    return message_of(ExitCode::data, [&] { read_encoded(bytes, std::string(64, of_key), "f.bin"); });
  };
  CHECK_THAT(message(with_digest(content + '\0'), 'k'), ContainsSubstring("f.bin: has more"));
  CHECK_THAT(message(file, 'l'), Mentions("f.bin:|other texts"));
  CHECK_THAT(failure([&] { write_encoded(splits, key, file.size() - 1); }).second, ContainsSubstring("at most"));
}

TEST_CASE("a disabled cache is not used, and a cache that cannot be written is no error", "[encoded_cache]") {
  Place place;
  place.config.cache = false;
  const auto expected = place.loaded();
  CHECK(place.cache.files().empty());
  place.config.cache = true;
  place.load();
  const auto file = place.only_file();
  place.config.cache = false;
  CHECK_FALSE(is_hit(file, [&] { CHECK(place.loaded() == expected); }));
  place.config.cache = true;
  fs::remove_all(place.cache.folder() / "metaformer/tokens");
  place.cache.folder().write("metaformer/tokens", "a file where the folder should be");
  for (int i = 0; i < 2; ++i) CHECK(place.loaded() == expected);
}

TEST_CASE("the least recently used tokens are removed when all take more than 2 GiB", "[encoded_cache]") {
  Place place;
  const auto now = fs::file_time_type::clock::now();
  const auto sparse = [&](const std::string& name, std::chrono::hours age) {
    const auto path = place.cache.folder().write("metaformer/tokens/" + name, "");
    fs::resize_file(path, std::uintmax_t{3} << 28);  // a sparse file of 0.75 GiB
    fs::last_write_time(path, now - age);
    return path;
  };
  const auto oldest = sparse("a.bin", 3h), middle = sparse("b.bin", 9h), newest = sparse("c.bin", 1h);
  fs::last_write_time(middle, now - 2h);  // used later
  place.load();
  CHECK_FALSE(fs::exists(oldest));
  CHECK(fs::exists(middle));
  CHECK(fs::exists(newest));
  CHECK(place.cache.files().size() == 3);
  // A hit removes nothing, and counts as a use.
  place.load();
  CHECK(place.cache.files().size() == 3);
}

TEST_CASE("IMDb's tokens are cached, and a change of its texts, names or ratings is a miss", "[encoded_cache]") {
  Place place;
  const auto write = [&](const std::string& half, int id, int rating, const std::string& text) {
    return place.folder.write(fmt::format("aclImdb/{}/{}/{}_{}.txt", half, rating > 5 ? "pos" : "neg", id, rating),
                              text);
  };
  for (int id = 0; id < 2000; id += 25)
    for (const auto* half : {"train", "test"})
      for (const int rating : {2, 9}) write(half, id, rating, fmt::format("film {} of {}", id, rating));
  place.config = {};
  place.config.corpus = "imdb";
  place.config.path = place.folder.path().string();
  place.config.validation_fraction = 0.3;
  place.config.tokenizer = WordTokenizerOptions{.min_count = 1};
  std::size_t files = 0;
  const auto check_read = [&](std::size_t added) {
    CHECK(place.loaded() == place.fresh());
    CHECK(place.cache.files().size() == (files += added));
  };
  check_read(1);
  CHECK(is_hit(place.only_file(), [&] { check_read(0); }));
  const auto changed = write("train", 0, 9, "another film");
  check_read(1);
  fs::rename(changed, changed.parent_path() / "1999_9.txt");
  check_read(1);
  write("test", 7777, 2, "one more");
  check_read(1);
  place.folder.write("aclImdb/train/unsup/0_0.txt", "never read");
  check_read(0);
}

}  // namespace metaformer::test_encoded_cache
