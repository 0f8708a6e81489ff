// Splits of pairs of texts: from files, and of the public corpus.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>

#include "base/digest.h"
#include "data/corpus.h"
#include "data/pair_source.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/own_cache.h"
#include "support/temporary_folder.h"

namespace metaformer {

namespace {

// `count` distinct sources, each `copies` times with another target.
ParallelDataConfig numbered_lines(const TemporaryFolder& folder, int count, int copies = 1) {
  std::string sources, targets;
  for (int i = 0; i < count * copies; ++i) {
    sources += fmt::format("Satz {}\n", i % count);
    targets += fmt::format("sentence {} in version {}\n", i % count, i / count);
  }
  ParallelDataConfig config;
  config.path = folder.write("train.de", sources).string();
  config.target_path = folder.write("train.en", targets).string();
  return config;
}

ParallelDataConfig multi30k() {
  ParallelDataConfig config;
  config.corpus = "multi30k";
  return config;
}

// METAFORMER_DATA for as long as it lives.
class DataFolder {
 public:
  explicit DataFolder(const std::filesystem::path& folder) {
    if (const char* before = std::getenv("METAFORMER_DATA")) before_ = before;
    ::setenv("METAFORMER_DATA", folder.c_str(), 1);
  }
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;
  ~DataFolder() { before_ ? ::setenv("METAFORMER_DATA", before_->c_str(), 1) : ::unsetenv("METAFORMER_DATA"); }

 private:
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("equal sources are in one split, which further pairs do not change", "[parallel]") {
  const TemporaryFolder folder, larger;
  auto config = numbered_lines(folder, 2000, 2);
  config.validation_fraction = 0.2;
  const auto splits = load_pair_splits(config, true);
  std::set<std::string> train, held_out;
  for (const auto& pair : splits[Split::train]) train.insert(pair.source);
  for (const auto& pair : splits[Split::validation]) held_out.insert(pair.source);
  CHECK(train.size() + held_out.size() == 2000);
  CHECK(splits[Split::train].size() == 2 * train.size());
  CHECK(splits[Split::test].empty());
  CHECK(held_out.size() == Approx(400).epsilon(0.2));
  auto more = numbered_lines(larger, 3000);
  more.validation_fraction = 0.2;
  const auto more_splits = load_pair_splits(more, true);
  std::set<std::string> still;
  for (const auto& pair : more_splits[Split::validation]) still.insert(pair.source);
  CHECK(std::includes(still.begin(), still.end(), held_out.begin(), held_out.end()));
  CHECK_FALSE(std::any_of(train.begin(), train.end(), [&](const auto& source) { return still.contains(source); }));
  CHECK(splits.description.at("train").at("pairs") == splits[Split::train].size());
  CHECK(splits.description.at("validation").at("pairs") == splits[Split::validation].size());
  CHECK(splits.description.at("validation").at("path") == *config.path);
}

TEST_CASE("each split has files of its own, of lines or a table", "[parallel]") {
  const TemporaryFolder folder;
  auto config = numbered_lines(folder, 3);
  const std::string table = "source,target\nd,e\n,\n";
  config.validation_path = folder.write("validation.csv", table).string();
  config.malformed_limit = 0.5;
  config.test_path = folder.write("test.de", "f\n").string();
  config.test_target_path = folder.write("test.en", "g\n").string();
  const auto splits = load_pair_splits(config, true);
  CHECK(splits[Split::train].size() == 3);
  CHECK(splits[Split::validation].at(0).source + splits[Split::validation].at(0).target == "de");
  CHECK(splits[Split::test].at(0).source + splits[Split::test].at(0).target == "fg");
  CHECK(splits.description.at("train").at("target_sha256") == sha256(read_text(*config.target_path)));
  CHECK(splits.description.at("validation") == nlohmann::ordered_json({{"path", *config.validation_path},
                                                                       {"sha256", sha256(table)},
                                                                       {"pairs", 1},
                                                                       {"malformed", 1},
                                                                       {"header", true}}));
  CHECK(splits.description.at("test") == nlohmann::ordered_json({{"path", *config.test_path},
                                                                 {"sha256", sha256("f\n")},
                                                                 {"target_path", *config.test_target_path},
                                                                 {"target_sha256", sha256("g\n")},
                                                                 {"pairs", 1}}));
}

TEST_CASE("too few distinct sources for a validation split are refused", "[parallel]") {
  const TemporaryFolder folder;
  const auto config = numbered_lines(folder, 1, 50);
  const auto [code, message] = failure([&] { load_pair_splits(config, true); });
  CHECK(code == ExitCode::data);
  CHECK_THAT(message, ContainsSubstring("train.de: 1 distinct sources are too few for data.validation_fraction 0.1"));
}

TEST_CASE("keys that mean nothing for these data are named with their value", "[parallel]") {
  using Change = std::function<void(ParallelDataConfig&)>;
  const auto [with_path, change, expected] = GENERATE(table<bool, Change, std::string>({
      {false, [](auto& c) { c.target_path = "t"; },
       "data.target_path: 't' has the targets of no sources; set data.path"},
      {true, [](auto& c) { c.validation_target_path = "t"; }, "data.validation_target_path: 't' has the targets of no"},
      {true, [](auto& c) { c.test_target_path = "t"; }, "set data.test_path to the file of the sources"},
      {false, [](auto& c) { c.validation_path = "v"; },
       "data.validation_path: 'v' means nothing beside data.corpus multi30k"},
      {false, [](auto& c) { c.test_path = c.test_target_path = "t"; },
       "data.test_path: 't' means nothing beside data.corpus multi30k"},
      {true, [](auto& c) { c.format = TableFormat::csv; }, "data.format: 'csv' means nothing for lines of two files"},
      {true, [](auto& c) { c.header = TableHeader::absent; }, "data.header: 'absent' means nothing for lines"},
      {true, [](auto& c) { c.source_field = "de"; }, "data.source_field: 'de' means nothing for lines"},
      {true, [](auto& c) { c.malformed_limit = 0.1; }, "data.malformed_limit: '0.1' means nothing for lines"},
      {false, [](auto& c) { c.target_field = "en"; }, "data.target_field: 'en' means nothing for multi30k"},
      {false, [](auto& c) { c = {}; }, "data.path is not set; task sequence_to_sequence needs pairs of texts"},
      {false, [](auto& c) { c.corpus = "imdb"; }, "data.corpus: imdb has no pairs of texts"},
      {false, [](auto& c) { c.corpus = "multi30"; }, "did you mean 'multi30k'?"},
      {false, [](auto& c) { c.source_language = "fr"; },
       "data.source_language: 'fr', but the languages of multi30k are"},
      {false, [](auto& c) { c.target_language = "de"; },
       "data.target_language: 'de', but the languages of multi30k are"},
  }));
  const TemporaryFolder folder;
  auto config = with_path ? numbered_lines(folder, 3) : multi30k();
  change(config);
  const auto [code, message] = failure([&] { load_pair_splits(config, true); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring(expected));
}

TEST_CASE("a corpus of several files lies in a folder that has all of them", "[parallel][corpus]") {
  const TemporaryFolder folder;
  const DataFolder data(folder.path());
  const OwnCache no_cache;
  const auto& corpus = find_public_corpus("multi30k");
  for (const std::string below : {"multi30k/", ""}) {
    for (const auto& file : corpus.files) {
      CHECK(locate_corpus(corpus) == (below.empty() ? std::optional(folder / "multi30k") : std::nullopt));
      folder.write(below + file.name, "a\n");
    }
  }
  CHECK(locate_corpus(corpus) == folder.path());
  const auto [code, message] = failure([] { load_pair_splits(multi30k(), true); });
  CHECK(code == ExitCode::data);
  CHECK_THAT(message, ContainsSubstring("/train.de.gz: not train.de.gz of multi30k: SHA-256 is " + sha256("a\n") +
                                        ", should be 726e39b2"));
  std::filesystem::remove(folder / "val.en.gz");
  std::filesystem::remove(folder / "multi30k/val.en.gz");
  const auto missing = failure([] { load_pair_splits(multi30k(), true); }).second;
  CHECK_THAT(missing,
             ContainsSubstring("--offline forbids fetching it; without a network, put train.de.gz, train.en.gz"));
}

TEST_CASE("Multi30k has its pairs in both directions", "[parallel]") {
  const char* corpora = std::getenv("METAFORMER_DATA");
  const std::filesystem::path folder = corpora != nullptr ? corpora : "";
  if (!std::filesystem::exists(folder / "multi30k/train.de.gz") && !std::filesystem::exists(folder / "train.de.gz"))
    return skip("METAFORMER_DATA names no folder with multi30k");
  auto config = multi30k();
  const auto splits = load_pair_splits(config, true);
  std::swap(config.source_language, config.target_language);
  const auto reversed = load_pair_splits(config, true);
  CHECK(splits[Split::train].size() == 29'000);
  CHECK(splits[Split::validation].size() == 1014);
  CHECK(splits[Split::test].size() == 1000);
  CHECK(splits[Split::test].front().target == "A man in an orange hat starring at something.");
  CHECK_THAT(splits[Split::test].front().source_place, ContainsSubstring("test_2016_flickr.de.gz:1"));
  for (const auto split : every_split)
    for (std::size_t i = 0; i < splits[split].size(); ++i)
      if (splits[split][i].source != reversed[split][i].target || splits[split][i].target != reversed[split][i].source)
        FAIL("pair " << i << " differs");
  CHECK(splits.description.at("corpus") == "multi30k");
  CHECK(splits.description.at("source_language") == "de");
  CHECK(splits.description.at("train").at("pairs") == 29'000);
}

}  // namespace metaformer
