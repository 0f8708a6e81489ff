// IMDb's film reviews, from generated folders and archives in the official layout.

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "base/archive.h"
#include "data/imdb.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer::test_imdb {

namespace {

using Files = std::map<std::string, std::string>;

// `count` reviews for each label and half, with some of the corpus's other files.
Files official_layout(int count) {
  Files files = {
      {"aclImdb/README", "about"}, {"aclImdb/train/urls_pos.txt", "http://"}, {"aclImdb/train/unsup/0_0.txt", "?"}};
  for (int id = 0; id < count; ++id) {
    for (const std::string half : {"train", "test"}) {
      files["aclImdb/" + half + "/pos/" + std::to_string(id) + "_9.txt"] = half + " good film " + std::to_string(id);
      files["aclImdb/" + half + "/neg/" + std::to_string(id) + "_2.txt"] = half + " bad film " + std::to_string(id);
    }
  }
  return files;
}

std::string write_archive(const TemporaryFolder& folder, const Files& files) {
  const auto path = (folder / "reviews.tar.gz").string();
  auto* writer = archive_write_new();
  archive_write_add_filter_gzip(writer);
  archive_write_set_format_ustar(writer);
  REQUIRE(archive_write_open_filename(writer, path.c_str()) == ARCHIVE_OK);
  for (const auto& [name, content] : files) {
    auto* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    REQUIRE(archive_write_header(writer, entry) == ARCHIVE_OK);
    archive_write_data(writer, content.data(), content.size());
    archive_entry_free(entry);
  }
  archive_write_close(writer);
  archive_write_free(writer);
  return path;
}

std::string write_folder(const TemporaryFolder& folder, const Files& files) {
  for (const auto& [name, content] : files) folder.write(name, content);
  return folder.path().string();
}

std::multiset<std::string> texts_of(const LabelledSplits& splits, Split split) {
  std::multiset<std::string> texts;
  for (const auto& text : splits[split]) texts.insert(text.label + ": " + text.text);
  return texts;
}

LabelledDataConfig config_with(double malformed_limit, double fraction = 0.3) {
  LabelledDataConfig config;
  config.path = "a part of the corpus";
  config.validation_fraction = fraction;
  config.malformed_limit = malformed_limit;
  return config;
}

LabelledSplits load(const Files& files, const LabelledDataConfig& config = config_with(0)) {
  const TemporaryFolder folder;
  return load_imdb(write_archive(folder, files), config);
}

// The message of a data error.
std::string refusal(const std::filesystem::path& path, const LabelledDataConfig& config = config_with(0)) {
  return message_of(ExitCode::data, [&] { load_imdb(path, config); });
}

// Adds lists of films with 1 to 30 neighbouring reviews within a class; ids are not aligned between the classes.
Files with_films(Files files, int count) {
  for (const std::string half : {"train", "test"}) {
    for (const std::string label : {"pos", "neg"}) {
      std::string lines;
      int film = half == "test" ? 100'000 : 0, left = 0;
      for (int id = 0; id < count; ++id) {
        if (left == 0) left = 1 + (++film * 7 + (label == "neg" ? 3 : 0)) % 30;
        --left;
        lines += fmt::format("http://www.imdb.com/title/tt{:07}/usercomments\n", film);
      }
      files[fmt::format("aclImdb/{}/urls_{}.txt", half, label)] = lines;
    }
  }
  return files;
}

// The films of the texts, or their blocks of neighbouring ids if `files` has no lists.
std::set<std::string> groups_of(const LabelledSplits& splits, Split split, const Files& files) {
  std::set<std::string> groups;
  for (const auto& text : splits[split]) {
    const auto id = std::stoi(text.place.substr(text.place.rfind('/') + 1));
    const auto list = files.find(fmt::format("aclImdb/train/urls_{}.txt", text.label));
    if (list == files.end())
      groups.insert(std::to_string(id / 125));
    else
      groups.insert(list->second.substr(static_cast<std::size_t>(id) * 49, 49));
  }
  return groups;
}

// Checks that no group is in both splits; returns the number of groups.
std::size_t check_groups(const LabelledSplits& splits, const Files& files) {
  auto train = groups_of(splits, Split::train, files), validation = groups_of(splits, Split::validation, files);
  const auto count = train.size() + validation.size();
  train.merge(validation);
  CHECK(train.size() == count);
  return count;
}

}  // namespace

TEST_CASE("an archive, an unpacked folder and its inner folder give the same reviews, and byte order marks are removed",
          "[imdb]") {
  auto files = official_layout(1000);
  const std::string long_text(1 << 20, 'x');
  files["aclImdb/train/pos/3_9.txt"] = long_text;
  const auto expected = load(files);
  auto all = texts_of(expected, Split::train);
  all.merge(texts_of(expected, Split::validation));
  CHECK(all.size() == 2000);
  CHECK(all.count("pos: " + long_text) == 1);
  CHECK(expected[Split::test].size() == 2000);
  CHECK(expected[Split::test].front().label == "neg");
  CHECK(expected[Split::test].front().text == "test bad film 0");
  for (auto& [name, content] : files) content.insert(0, "\xEF\xBB\xBF");
  const TemporaryFolder folder;
  const auto archive = write_archive(folder, files), outer = write_folder(folder, files);
  for (const auto& source : {archive, outer, outer + "/aclImdb"}) {
    const auto splits = load_imdb(source, config_with(0));
    for (const auto split : every_split) CHECK(texts_of(splits, split) == texts_of(expected, split));
  }
}

TEST_CASE("the validation split has whole films of both classes, and the requested number of reviews", "[imdb]") {
  constexpr int count = 2500;
  const TemporaryFolder folder, unpacked;
  const auto files = with_films(official_layout(count), count);
  const auto archive = write_archive(folder, files), tree = write_folder(unpacked, files);
  std::multiset<std::string> smaller;
  for (const auto fraction : {0.05, 0.1, 0.2, 0.3, 0.5, 0.9}) {
    CAPTURE(fraction);
    const auto config = config_with(0, fraction);
    const auto splits = load_imdb(archive, config);
    check_groups(splits, files);
    const auto held_out = static_cast<double>(splits[Split::validation].size());
    CHECK(held_out >= fraction * 2 * count);
    CHECK(held_out < fraction * 2 * count + 60);
    CHECK(splits.description.at("train").at("validation_split") == "films");
    CHECK(splits.description.at("train").at("test_films_in_train") == 0);
    const auto texts = texts_of(splits, Split::validation);
    CHECK(texts == texts_of(load_imdb(tree, config), Split::validation));
    CHECK(std::includes(texts.begin(), texts.end(), smaller.begin(), smaller.end()));
    smaller = texts;
  }
  const auto before = digest_imdb_folder(tree);
  unpacked.write("aclImdb/train/urls_neg.txt", files.at("aclImdb/train/urls_pos.txt"));
  CHECK(digest_imdb_folder(tree) != before);
}

TEST_CASE("without lists of films the validation split has whole blocks of neighbouring ids", "[imdb]") {
  auto files = official_layout(12'500);
  files.erase("aclImdb/train/urls_pos.txt");
  std::erase_if(files, [](const auto& file) { return file.first.starts_with("aclImdb/test/neg/"); });
  const TemporaryFolder folder;
  const auto archive = write_archive(folder, files);
  for (const auto fraction : {0.05, 0.1, 0.3, 0.5}) {
    CAPTURE(fraction);
    const auto splits = load_imdb(archive, config_with(0, fraction));
    check_groups(splits, files);
    CHECK(static_cast<double>(splits[Split::validation].size()) == fraction * 25'000);
    CHECK(splits.description.at("train").at("validation_split") == "blocks of ids");
    CHECK_FALSE(splits.description.at("train").contains("test_films_in_train"));
  }
}

TEST_CASE("a list of films without the film of a review is an error that names both", "[imdb]") {
  const TemporaryFolder folder;
  auto files = with_films(official_layout(1000), 1000);
  auto& list = files["aclImdb/train/urls_neg.txt"];
  GENERATE(true, false) ? list.resize(49 * 700) : (void)list.replace(49 * 700, 48, 48, '?');
  CHECK_THAT(refusal(write_archive(folder, files)), Mentions("aclImdb/train/urls_neg.txt:701:|review 700|train/neg"));
}

TEST_CASE("a line of a list of films may have any length", "[imdb]") {
  auto files = with_films(official_layout(1000), 1000);
  files["aclImdb/train/urls_neg.txt"].replace(49 * 700, 48, "tt" + std::string(300'000, '7'));
  CHECK(load(files)[Split::train].size() > 1000);
}

TEST_CASE("in the corpus no film has reviews in both the validation and the training split", "[imdb]") {
  const char* corpora = std::getenv("METAFORMER_DATA");
  const auto archive = std::filesystem::path(corpora != nullptr ? corpora : "") / "aclImdb_v1.full.tar.gz";
  if (corpora == nullptr || !std::filesystem::exists(archive))
    return skip("METAFORMER_DATA names no folder with aclImdb_v1.full.tar.gz");
  Files lists;
  for_each_archive_entry(
      archive, 16 << 20, [](std::string_view name) { return name.find("/urls_") != std::string_view::npos; },
      [&](std::string_view name, std::string&& text) { lists[std::string(name)] = std::move(text); });
  LabelledDataConfig config;
  config.validation_fraction = 0.1;
  const auto splits = load_imdb(archive, config);
  CHECK(check_groups(splits, lists) == 3456);
  CHECK(splits[Split::validation].size() >= 2500);
  CHECK(splits[Split::validation].size() < 2530);
  CHECK(splits.description.at("train").at("test_films_in_train") == 1);
}

TEST_CASE("copies and test reviews in the training half are counted", "[imdb]") {
  auto files = official_layout(1000);
  files["aclImdb/train/pos/7_9.txt"] = files["aclImdb/train/pos/6_9.txt"];
  files["aclImdb/test/neg/7_2.txt"] = files["aclImdb/test/neg/8_2.txt"] = files["aclImdb/train/neg/3_2.txt"];
  const auto description = load(files).description.at("train");
  CHECK(description.at("copies_in_train") == 1);
  CHECK(description.at("copies_in_test") == 1);
  CHECK(description.at("test_texts_in_train") == 2);
  CHECK(description.at("rows") == 4000);
  CHECK(description.at("sha256").get<std::string>().size() == 64);
}

TEST_CASE("a malformed review is named in an error, or counted below the limit", "[imdb]") {
  const auto [content, name, why] = GENERATE(table<std::string, std::string, std::string>({
      {"  \n", "train/pos/5_9.txt", "the review is empty"},
      {"", "test/pos/5_9.txt", "the review is empty"},
      {"\u00a0\u3000", "train/neg/5_2.txt", "the review is empty"},
      {std::string(1000, '\0'), "train/neg/5_2.txt", "NUL bytes"},
      {std::string("a\0b", 3), "train/pos/5_9.txt", "NUL bytes"},
      {"caf\xe9", "train/pos/5_9.txt", "not valid UTF-8:|0xe9|3"},
      {"fine", "train/pos/5_3.txt", "rating of 3|(7 to 10)"},
      {"fine", "test/neg/5_11.txt", "rating of 11|(1 to 4)"},
  }));
  const TemporaryFolder folder;
  auto files = official_layout(1000);
  files["aclImdb/" + name] = content;
  const auto path = write_archive(folder, files);
  CHECK_THAT(refusal(path), Mentions(why) && ContainsSubstring(name));
  const auto splits = load_imdb(path, config_with(0.01));
  CHECK(splits.description.at("train").at("malformed") == 1);
}

TEST_CASE("a damaged, truncated, invalid or partial archive or one without reviews is an error that names it",
          "[imdb]") {
  const TemporaryFolder folder, other, half;
  const auto whole = ::read_text(write_archive(folder, official_layout(300)));
  for (const auto size : {whole.size() / 2, whole.size() * 9 / 10})
    CHECK_THAT(refusal(folder.write("cut.tar.gz", whole.substr(0, size))), Mentions("cut.tar.gz:|unpacked|gzip"));
  constexpr std::size_t header = 10;  // gzip's header has a time and a system, which have no effect
  for (std::size_t at = header; at < whole.size(); at += 1 + whole.size() / 100) {
    CAPTURE(at);
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    CHECK_THAT(refusal(folder.write("damaged.tar.gz", damaged), config_with(1)), ContainsSubstring("damaged.tar.gz"));
  }
  CHECK_THAT(refusal(folder.write("text.tar.gz", "no archive")), ContainsSubstring("text.tar.gz"));
  CHECK_THAT(refusal(folder / "missing.tar.gz"), ContainsSubstring("missing.tar.gz"));
  CHECK_THAT(refusal(write_archive(other, {{"aclImdb/README", "about"}})), ContainsSubstring("holds no reviews"));
  // A corpus by name must be complete.
  auto by_name = config_with(0);
  by_name.path.reset();
  CHECK_THAT(refusal(write_archive(half, official_layout(1000)), by_name), Mentions("test/pos 1000|12500"));
}

TEST_CASE("a link with the name of a review is not read", "[imdb]") {
  const TemporaryFolder folder;
  write_folder(folder, official_layout(200));
  const auto secret = folder.write("secret", "not a review");
  const auto link = folder / "aclImdb/train/pos/9999_9.txt";
  std::filesystem::create_symlink(secret, link);
  CHECK_THAT(refusal(folder.path()), ContainsSubstring(link.string() + ": not a regular"));
  const auto splits = load_imdb(folder.path(), config_with(0.1));
  CHECK(splits.description.at("train").at("malformed") == 1);
  for (const auto& texts : splits.texts)
    for (const auto& text : texts) CHECK(text.text != "not a review");
}

TEST_CASE("an unreadable unpacked folder is an error of the data", "[imdb]") {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  write_folder(folder, official_layout(200));
  const auto blocked = folder / "aclImdb/train/pos";
  fs::permissions(folder.path(), fs::perms::all);
  fs::permissions(blocked, fs::perms::none);
  const auto user = ::geteuid();
  if (user == 0) REQUIRE(::seteuid(65534) == 0);  // root may read everything
  const auto loaded = refusal(folder.path());
  const auto digested = message_of(ExitCode::data, [&] { digest_imdb_folder(folder.path()); });
  if (user == 0) REQUIRE(::seteuid(0) == 0);
  fs::permissions(blocked, fs::perms::all);
  for (const auto& message : {loaded, digested})
    CHECK_THAT(message, Mentions(blocked.string() + ":|Permission denied"));
}

TEST_CASE("an entry that is too large is refused before it is read", "[imdb]") {
  const TemporaryFolder folder;
  const auto path = write_archive(folder, {{"large", std::string(2000, 'x')}});
  const auto read = [&] {
    for_each_archive_entry(
        path, 1000, [](std::string_view) { return true; }, [](std::string_view, std::string&&) {});
  };
  CHECK_THAT(message_of(ExitCode::data, read), ContainsSubstring("large has 2.0 KiB"));
}

}  // namespace metaformer::test_imdb
