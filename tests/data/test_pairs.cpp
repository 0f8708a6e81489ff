// Pairs of texts from the lines of two files and from tables, in splits, and as rows of batches.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>

#include "base/digest.h"
#include "base/random.h"
#include "data/corpus.h"
#include "data/data_support.h"
#include "data/epoch_order.h"
#include "data/pairs.h"

namespace metaformer::test_pairs {

namespace {

using Catch::Matchers::EndsWith;

// "SOURCE -> TARGET" of every pair.
Texts texts_of(const std::vector<TextPair>& pairs) {
  Texts texts;
  for (const auto& pair : pairs) texts.push_back(pair.source + " -> " + pair.target);
  return texts;
}

Texts texts_of(const Table& table) {
  Texts texts;
  for (const auto& row : table.rows) texts.push_back(row.fields[0] + " -> " + row.fields[1]);
  return texts;
}

// The message of a data error, without the folder of the two files.
std::string refusal_of_lines(const std::string& sources, const std::string& targets) {
  const TemporaryFolder folder;
  const auto source = folder.write("a.de", sources), target = folder.write("b.en", targets);
  auto message = message_of(ExitCode::data, [&] { read_line_pairs(source, target); });
  CHECK(message.find('\n') == std::string::npos);
  const auto prefix = folder.path().string() + "/";
  for (auto at = message.find(prefix); at != std::string::npos; at = message.find(prefix))
    message.erase(at, prefix.size());
  return message;
}

ParallelDataConfig fields(const std::string& source, const std::string& target, double malformed_limit = 0) {
  ParallelDataConfig config;
  config.source_field = source;
  config.target_field = target;
  config.malformed_limit = malformed_limit;
  return config;
}

Table read_pairs(const std::string& name, const std::string& content, const ParallelDataConfig& config = {}) {
  const TemporaryFolder folder;
  return read_pair_table(folder.write(name, content), config, "data.target_path");
}

// `count` distinct sources, each `copies` times with different targets.
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

constexpr std::int32_t mark = 9;
using Ids = std::vector<std::int32_t>;

struct Options {
  std::int64_t bucketing = 1, context = 64, rows = 4;
  std::int64_t accumulate = 1, seed = 1;
  BatchUnit unit = BatchUnit::sequence;
};

ExperimentConfig config_of(SequenceToSequenceConfig task, const Options& options) {
  task.bucketing = options.bucketing;
  task.batch_unit = options.unit;
  EncoderDecoderConfig model;
  model.context = options.context;
  ExperimentConfig config;
  config.task = std::move(task);
  config.model = std::move(model);
  config.train.batch_size = options.rows;
  config.train.accumulate = options.accumulate;
  config.train.seed = options.seed;
  return config;
}

std::shared_ptr<const PairDataset> pairs_of(const std::string& table, const Options& options = {}) {
  const TemporaryFolder folder;
  SequenceToSequenceConfig task;
  task.data.path = folder.write("pairs.tsv", table).string();
  task.data.tokenizer = WordTokenizerOptions{.min_count = 1};
  task.data.validation_fraction = 0.4;
  return load_pairs(config_of(task, options), true, {});
}

// Targets of 1 to 7 words, sources of other lengths.
std::shared_ptr<const PairDataset> ragged_pairs(const Options& options = {}) {
  std::string table = "source\ttarget\n";
  for (int i = 0; i < 60; ++i) {
    table += "s" + std::to_string(i);
    for (int word = 0; word < i % 5; ++word) table += " w";
    table += "\tt" + std::to_string(i);
    for (int word = 0; word < i % 7; ++word) table += " v";
    table += "\n";
  }
  return pairs_of(table, options);
}

}  // namespace

TEST_CASE("random lines of two files are read as pairs with their places", "[pairs]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(1, 10)));
  const std::string ending = GENERATE(as<std::string>{}, "\n", "\r\n"),
                    mark = GENERATE(as<std::string>{}, "", "\xEF\xBB\xBF");
  const bool gzipped = GENERATE(false, true);
  const Texts pieces = {"\"", ",", "\t", " ", "\r", "\u2028", "é", "自", "\U0001F600", "\xEF\xBB\xBF"};
  const Rng rng(seed, RandomPurpose::sampling);
  const auto line = [&](std::uint64_t index) {
    std::string text = "x";
    for (std::uint64_t i = 0; i < rng.below(20 * index, 12); ++i)
      text += pieces[rng.below(20 * index + i + 1, pieces.size())];
    return text + ".";
  };
  std::string sources = mark, targets = mark;
  Texts expected;
  for (std::uint64_t row = 0; row < 30; ++row) {
    const auto source = line(2 * row), target = line(2 * row + 1);
    expected.push_back(source + " -> " + target);
    sources += source + ending;
    targets += target + (row == 29 ? "" : "\n");
  }
  const TemporaryFolder folder;
  const auto source_path = folder.write("a.de", gzipped ? gzip(sources) : sources);
  const auto read = read_line_pairs(source_path, folder.write("b.en", targets));
  CHECK(texts_of(read.pairs) == expected);
  CHECK(read.pairs.at(16).source_place == source_path.string() + ":17");
  CHECK(read.source_sha256 == sha256(::read_text(source_path)));
  CHECK(read.target_sha256 == sha256(targets));
}

TEST_CASE("files with different numbers of lines are refused with both numbers and the first line without a partner",
          "[pairs]") {
  const auto [sources, targets, counts, alone] = GENERATE(table<std::string, std::string, std::string, std::string>({
      {"a\nb\nc\n", "x\ny", "a.de|3 lines|b.en|2", "line 3 of a.de has none"},
      {"a\n", "x\ny\nz\n", "a.de|1 lines|b.en|3", "line 2 of b.en has none"},
      {"", "x\n", "a.de|0 lines|b.en|1", "line 1 of b.en has none"},
      {"a\n\n", "x\n", "a.de|2 lines|b.en|1", "line 2 of a.de has none"},
      {"", "\xEF\xBB\xBF", "a.de|b.en|lines", ""},
  }));
  CHECK_THAT(refusal_of_lines(sources, targets), Mentions(counts) && EndsWith(alone));
}

TEST_CASE("the error for an invalid line names its file and line, on either side", "[pairs]") {
  const std::string mebibyte(1 << 20, 'x');
  const auto [line, why] = GENERATE_COPY(table<std::string, std::string>({
      {"", "the line is empty"},
      {" \t", "the line is empty"},
      {"\u00a0\u3000", "the line is empty"},
      {"caf\xe9", "not valid UTF-8|0xe9|3"},
      {std::string("a\0b", 3), "NUL bytes"},
      {mebibyte + "x", "1048577|1048576"},
  }));
  const std::string ending = GENERATE(as<std::string>{}, "\n", "\r\n");
  const auto bad = "a" + ending + "b" + ending + line + ending + "d" + ending, good = std::string("a\nb\nc\nd\n");
  CHECK_THAT(refusal_of_lines(bad, good), Mentions("a.de:3: |" + why));
  CHECK_THAT(refusal_of_lines(good, bad), Mentions("b.en:3: |" + why));
  if (line.empty()) CHECK_THAT(refusal_of_lines(bad, good), ContainsSubstring("its partner b.en:3"));
  const TemporaryFolder folder;
  const auto longest = folder.write("a.de", mebibyte + ending), other = folder.write("b.en", "a\n");
  CHECK(read_line_pairs(longest, other).pairs.at(0).source == mebibyte);
}

TEST_CASE("tables of every format give the same pairs", "[pairs]") {
  const Texts expected = {"Ein \"Hund\", -> A dog\twith", "Zwei -> two "};
  const std::string csv = "\"Ein \"\"Hund\"\",\",A dog\twith\nZwei,two \n";
  const std::string json = R"({"source": "Ein \"Hund\",", "target": "A dog\twith", "id": 1})"
                           "\n\n"
                           R"({"target": "two ", "source": "Zwei"})";
  CHECK(texts_of(read_pairs("t.csv", "source,target\n" + csv)) == expected);
  CHECK(texts_of(read_pairs("t.jsonl", json)) == expected);
  CHECK(texts_of(read_pairs("t.txt", "en\tid\tde\ntwo \t7\tZwei\n", fields("de", "en"))) == Texts{"Zwei -> two "});
  CHECK(texts_of(read_pairs("t.tsv", "two \t7\tZwei\n", fields("3", "1"))) == Texts{"Zwei -> two "});
  const auto guessed = read_pairs("t.csv", csv);
  CHECK(guessed.has_guessed_columns);
  CHECK_FALSE(read_pairs("t.csv", csv, fields("1", "2")).has_guessed_columns);
  CHECK_THAT(guessed.place(guessed.rows.at(1)), EndsWith("t.csv:2"));
  CHECK(read_pairs("t.jsonl", json).rows.at(1).line == 3);
  CHECK(guessed.sha256 == sha256(csv));
}

TEST_CASE("the error for a malformed row of pairs names the source or the target", "[pairs]") {
  const std::string fits(longest_pair_text, 'x'), too_long = fits + "x", tab = fits + "\t" + fits + "\n";
  const std::string json = R"({"source": "a", "target": "b"})"
                           "\n";
  const auto long_text = fmt::format(" has {} bytes; at most {} make sense", too_long.size(), fits.size());
  const auto [name, content, line, why] = GENERATE_COPY(table<std::string, std::string, int, std::string>({
      {"t.csv", "source,target\na,b\n,b\n", 3, "the source is empty"},
      {"t.csv", "source,target\na,b\na, \n", 3, "the target is empty"},
      {"t.tsv", "a\tb\n" + too_long + "\tb\n", 2, "the source" + long_text},
      {"t.csv", "a,b\na," + too_long + "\n", 2, "the target" + long_text},
      {"t.jsonl", json + R"({"source": "a", "target": ")" + too_long + "\"}\n", 2, "the target" + long_text},
  }));
  CHECK_THAT(message_of(ExitCode::data, [&, of = name, text = content] { read_pairs(of, text); }),
             ContainsSubstring(fmt::format("{}:{}: {} (1 of 2", name, line, why)));
  CHECK(malformed_of(read_pairs(name, content, fields("source", "target", 0.5))) ==
        Texts{fmt::format("{} {}", line, why)});
  CHECK(read_pairs("t.tsv", tab).rows.size() == 1);
}

TEST_CASE("a table without the columns of pairs is refused, with the key of the column", "[pairs]") {
  const auto [name, content, config, code, expected] =
      GENERATE_COPY(table<std::string, std::string, ParallelDataConfig, ExitCode, std::string>({
          {"train.de", "Ein Mann.\nZwei.\n", {}, ExitCode::data, "one column|source and target"},
          {"train.de", "Ein Mann.\nZwei.\n", {}, ExitCode::data, "set data.target_path"},
          {"t.csv", "de,target\na,b\n", {}, ExitCode::data, "no column 'source'"},
          {"t.csv", "a,b\n", fields("1", "0"), ExitCode::usage, "data.target_field|columns|1|0"},
          {"t.csv", "a,b\n", fields("2", "2"), ExitCode::usage, "data.source_field and data.target_field both mean"},
          {"t.jsonl", R"({"source": "a", "en": "b"})", {}, ExitCode::data, "no object|'target'"},
      }));
  const auto read = [&, of = name, text = content, with = config] { read_pairs(of, text, with); };
  CHECK_THAT(message_of(code, read), Mentions(expected));
}

TEST_CASE("equal sources are in one split, and stay there with further pairs, and one source is too few", "[pairs]") {
  const auto load = [](int count, int copies) {
    const TemporaryFolder folder;
    auto config = numbered_lines(folder, count, copies);
    config.validation_fraction = 0.2;
    return load_pair_splits(config, true);
  };
  const auto sources_of = [](const std::vector<TextPair>& pairs) {
    std::set<std::string> sources;
    for (const auto& pair : pairs) sources.insert(pair.source);
    return sources;
  };
  const auto splits = load(2000, 2), more = load(3000, 1);
  const auto train = sources_of(splits[Split::train]), held_out = sources_of(splits[Split::validation]),
             still = sources_of(more[Split::validation]);
  CHECK(train.size() + held_out.size() == 2000);
  CHECK(splits[Split::train].size() == 2 * train.size());
  CHECK(splits[Split::test].empty());
  CHECK(held_out.size() == Approx(400).epsilon(0.2));
  CHECK(std::includes(still.begin(), still.end(), held_out.begin(), held_out.end()));
  CHECK_FALSE(std::any_of(train.begin(), train.end(), [&](const auto& source) { return still.contains(source); }));
  const auto& description = splits.description;
  for (const auto split : {Split::train, Split::validation})
    CHECK(description.at(to_string(split)).at("pairs") == splits[split].size());
  CHECK(description.at("validation").at("path") == description.at("train").at("path"));
  CHECK_THAT(message_of(ExitCode::data, [&] { load(1, 50); }), Mentions("train.de: 1|data.validation_fraction 0.2"));
}

TEST_CASE("each split may have its own files of lines or its own table", "[pairs]") {
  const TemporaryFolder folder;
  auto config = numbered_lines(folder, 3);
  const std::string table = "source,target\nd,e\n,\n";
  config.validation_path = folder.write("validation.csv", table).string();
  config.malformed_limit = 0.5;
  config.test_path = folder.write("test.de", "f\n").string();
  config.test_target_path = folder.write("test.en", "g\n").string();
  const auto splits = load_pair_splits(config, true);
  CHECK(splits[Split::train].size() == 3);
  CHECK(texts_of(splits[Split::validation]) == Texts{"d -> e"});
  CHECK(texts_of(splits[Split::test]) == Texts{"f -> g"});
  const auto& description = splits.description;
  CHECK(description.at("train").at("target_sha256") == sha256(::read_text(*config.target_path)));
  const nlohmann::json of_table = {
      {"path", *config.validation_path}, {"sha256", sha256(table)}, {"pairs", 1}, {"malformed", 1}, {"header", true}};
  const nlohmann::json of_lines = {{"path", *config.test_path},
                                   {"sha256", sha256("f\n")},
                                   {"target_path", *config.test_target_path},
                                   {"target_sha256", sha256("g\n")},
                                   {"pairs", 1}};
  CHECK(nlohmann::json(description.at("validation")) == of_table);
  CHECK(nlohmann::json(description.at("test")) == of_lines);
}

TEST_CASE("the error for a key that means nothing for the data names it with its value", "[pairs]") {
  using Change = std::function<void(ParallelDataConfig&)>;
  const auto [with_path, change, expected] = GENERATE(table<bool, Change, std::string>({
      {false, [](auto& c) { c.target_path = "t"; }, "data.target_path: 't'|targets|no sources"},
      {true, [](auto& c) { c.validation_target_path = "t"; }, "data.validation_target_path: 't'|targets"},
      {true, [](auto& c) { c.test_target_path = "t"; }, "data.test_path|file|sources"},
      {false, [](auto& c) { c.validation_path = "v"; }, "data.validation_path: 'v'|data.corpus"},
      {false, [](auto& c) { c.test_path = c.test_target_path = "t"; }, "data.test_path: 't'|beside"},
      {true, [](auto& c) { c.format = TableFormat::csv; }, "data.format: 'csv'|lines"},
      {true, [](auto& c) { c.header = TableHeader::absent; }, "data.header: 'absent'|lines"},
      {true, [](auto& c) { c.source_field = "de"; }, "data.source_field: 'de'|lines"},
      {true, [](auto& c) { c.malformed_limit = 0.1; }, "data.malformed_limit: '0.1'|lines"},
      {false, [](auto& c) { c.target_field = "en"; }, "data.target_field: 'en'|multi30k"},
      {false, [](auto& c) { c = {}; }, "data.path|sequence_to_sequence|pairs"},
      {false, [](auto& c) { c.corpus = "imdb"; }, "data.corpus:|pairs|texts"},
      {false, [](auto& c) { c.corpus = "multi30"; }, "did you mean 'multi30k'?"},
      {false, [](auto& c) { c.source_language = "fr"; }, "data.source_language: 'fr'|languages|multi30k"},
      {false, [](auto& c) { c.target_language = "de"; }, "data.target_language: 'de'|languages|multi30k"},
  }));
  const TemporaryFolder folder;
  auto config = with_path ? numbered_lines(folder, 3) : multi30k();
  change(config);
  CHECK_THAT(message_of(ExitCode::usage, [&] { load_pair_splits(config, true); }), Mentions(expected));
}

TEST_CASE("a corpus of several files is found in a folder with all of them", "[pairs][corpus]") {
  const TemporaryFolder folder;
  const Variable data("METAFORMER_DATA", folder.path().c_str());
  const OwnCache no_cache;
  const auto& corpus = find_public_corpus("multi30k");
  for (const std::string below : {"multi30k/", ""}) {
    for (const auto& file : corpus.files) {
      CHECK(locate_corpus(corpus) == (below.empty() ? std::optional(folder / "multi30k") : std::nullopt));
      folder.write(below + file.name, "a\n");
    }
  }
  CHECK(locate_corpus(corpus) == folder.path());
  const auto message = [] { return message_of(ExitCode::data, [] { load_pair_splits(multi30k(), true); }); };
  CHECK_THAT(message(), Mentions("/train.de.gz:|" + sha256("a\n") + "|726e39b2"));
  for (const auto* name : {"val.en.gz", "multi30k/val.en.gz"}) std::filesystem::remove(folder / name);
  CHECK_THAT(message(), Mentions("--offline|fetching|train.de.gz"));
}

TEST_CASE("Multi30k gives the same pairs in both directions", "[pairs]") {
  const char* corpora = std::getenv("METAFORMER_DATA");
  const std::filesystem::path folder = corpora != nullptr ? corpora : "";
  if (!std::filesystem::exists(folder / "multi30k/train.de.gz") && !std::filesystem::exists(folder / "train.de.gz"))
    return skip("METAFORMER_DATA names no folder with multi30k");
  auto config = multi30k();
  const auto splits = load_pair_splits(config, true);
  std::swap(config.source_language, config.target_language);
  const auto reversed = load_pair_splits(config, true);
  for (const auto& [split, count] :
       {std::pair{Split::train, 29'000u}, {Split::validation, 1014u}, {Split::test, 1000u}}) {
    REQUIRE(splits[split].size() == count);
    for (std::size_t i = 0; i < count; ++i)
      if (splits[split][i].source != reversed[split][i].target || splits[split][i].target != reversed[split][i].source)
        FAIL("pair " << i << " differs");
  }
  CHECK(splits[Split::test].front().target == "A man in an orange hat starring at something.");
  CHECK_THAT(splits[Split::test].front().source_place, ContainsSubstring("test_2016_flickr.de.gz:1"));
  CHECK(splits.description.at("corpus") == "multi30k");
  CHECK(splits.description.at("source_language") == "de");
  CHECK(splits.description.at("train").at("pairs") == 29'000);
}

TEST_CASE("the mark ends sources, begins the inputs of the decoder and ends its targets", "[pairs]") {
  using Numbers = std::vector<std::int64_t>;
  const auto rows = to_rows({{Ids{1, 2}, Ids{3, 4, 5}}, {Ids{6}, Ids{7}}}, mark, 10);
  CHECK(rows.source.ids == Numbers{1, 2, mark, 6, mark, 0});
  CHECK(rows.source.segments == Numbers{0, 0, 0, 0, 0, -1});
  CHECK(rows.target.rows == 2);
  CHECK(rows.target.length == 4);
  CHECK(rows.target.ids == Numbers{mark, 3, 4, 5, mark, 7, mark, mark});
  CHECK(rows.target.targets == Numbers{3, 4, 5, mark, 7, mark, -1, -1});
  CHECK(rows.target.segments == Numbers{0, 0, 0, 0, 0, 0, -1, -1});
  CHECK(rows.target.target_count == 6);
  const auto equal = to_rows({{Ids{1}, Ids{2}}, {Ids{3}, Ids{4}}}, mark, 10);  // without padding there are no segments
  CHECK(equal.source.segments.empty());
  CHECK(equal.target.segments.empty());
  const auto cut = to_rows({{Ids{1, 2, 3, 4}, Ids{5, 6, 7, 8}}}, mark, 3);
  CHECK(cut.source.ids == Numbers{1, 2, mark});
  CHECK(cut.target.ids == Numbers{mark, 5, 6});
  CHECK(cut.target.targets == Numbers{5, 6, 7});  // without the mark, because the target is cut
}

TEST_CASE("an epoch has every training pair once with any bucketing, and another seed gives another order", "[pairs]") {
  const std::int64_t bucketing = GENERATE(1, 3), steps = 6;
  const auto count = ragged_pairs()->count(Split::train);
  const auto epoch = [&](std::int64_t seed) {
    const auto pairs = ragged_pairs({.bucketing = bucketing, .rows = count / steps / 2, .accumulate = 2, .seed = seed});
    std::vector<Ids> sources;
    for (std::int64_t step = 0; step < steps; ++step)
      for (const std::int64_t micro : {0, 1})
        for (const auto& pair : pairs->training_pairs(step, micro)) sources.push_back(pair.source);
    return sources;
  };
  const auto first = epoch(1), other = epoch(2);
  CHECK(first == epoch(1));
  CHECK(first != other);
  for (const auto& sources : {first, other}) CHECK(std::set(sources.begin(), sources.end()).size() == sources.size());
}

TEST_CASE("bucketing puts pairs of similar length into a step", "[pairs]") {
  const auto spread = [&](std::int64_t bucketing) {
    const auto pairs = ragged_pairs({.bucketing = bucketing});
    std::size_t sum = 0;
    for (std::int64_t step = 0; step < 30; ++step) {
      std::set<std::size_t> lengths;
      for (const auto& pair : pairs->training_pairs(step, 0)) lengths.insert(pair.target.size());
      sum += *lengths.rbegin() - *lengths.begin();
    }
    return sum;
  };
  CHECK(2 * spread(10) < spread(1));
}

TEST_CASE("batches of tokens count the lengths of pairs with their marks", "[pairs]") {
  const std::int64_t most = 24, accumulate = 3;
  const auto pairs = ragged_pairs({.bucketing = 4, .rows = most, .accumulate = accumulate, .unit = BatchUnit::token});
  std::map<Ids, int> seen;
  std::int64_t number = 0, rows = 0;
  for (; std::ssize(seen) < pairs->count(Split::train); ++number) {
    const auto batch = pairs->training_pairs(number / accumulate, number % accumulate);
    std::size_t longest = 0;
    for (const auto& pair : batch) {
      longest = std::max({longest, pair.source.size() + 1, pair.target.size() + 1});
      CHECK(++seen[pair.source] == 1);
    }
    CHECK(std::ssize(batch) * static_cast<std::int64_t>(longest) <= most);
    rows += std::ssize(batch);
  }
  CHECK(rows == pairs->count(Split::train));
  const double mean = static_cast<double>(rows) / static_cast<double>(number);
  CHECK(std::abs(pairs->mean_pairs() - mean) < 0.2 * mean);
}

TEST_CASE("both sides share a tokenizer, and long sources count with their length after the cut", "[pairs]") {
  std::string table = "source\ttarget\n";
  for (int i = 0; i < 40; ++i) table += "s" + std::to_string(i) + " a b c d e f g h i j k\tt a\n";
  const auto pairs = pairs_of(table, {.context = 4, .rows = 12, .unit = BatchUnit::token});
  CHECK(pairs->training_pairs(0, 0).size() == 3);
  const auto& tokenizer = *pairs->codec().tokenizer;
  for (const auto* word : {"a", "b", "t"}) CHECK(tokenizer.encode(word) != Ids{*tokenizer.unknown_id()});
}

TEST_CASE("held-out pairs come in order of falling length, and training pairs with too long targets are left out",
          "[pairs]") {
  const auto all = ragged_pairs(), some = ragged_pairs({.context = 5});
  REQUIRE(all->count(Split::validation) > 5);
  CHECK(all->count(Split::test) == 0);
  for (std::int64_t i = 1; i < all->count(Split::validation); ++i)
    CHECK(all->pair(Split::validation, i - 1).target.size() >= all->pair(Split::validation, i).target.size());
  CHECK(some->count(Split::train) < all->count(Split::train));
  CHECK(some->count(Split::validation) == all->count(Split::validation));
  for (std::int64_t i = 0; i < some->count(Split::train); ++i) CHECK(some->pair(Split::train, i).target.size() < 5);
  CHECK_THAT(message_of(ExitCode::data, [&] { ragged_pairs({.context = 1}); }), Mentions("model.context 1:"));
}

TEST_CASE("a text without tokens is an error that names its file", "[pairs]") {
  const TemporaryFolder folder;
  SequenceToSequenceConfig task;
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += "one two three " + std::to_string(i) + "\n";
  task.data.path = folder.write("a.de", lines + "x\n").string();
  task.data.target_path = folder.write("b.en", lines + "\xef\xbf\xbd\n").string();  // removed by normalisation
  task.data.validation_path = folder.write("c.tsv", "source\ttarget\nx\tx\n").string();
  task.data.tokenizer = BpeTokenizerOptions{.vocabulary = 40};
  CHECK_THAT(message_of(ExitCode::data, [&] { load_pairs(config_of(task, {}), true, {}); }),
             Mentions("b.en:31:|token"));
}

TEST_CASE("symbols are copied or reversed, and held-out lists are not used for training", "[pairs]") {
  const bool reverses = GENERATE(false, true);
  SequenceToSequenceConfig task;
  const SyntheticPairOptions options{.symbols = 3, .length = 4};
  task.data.synthetic = CopiedPairs{options};
  if (reverses) task.data.synthetic = ReversedPairs{options};
  const auto pairs = load_pairs(config_of(task, {.rows = 200}), true, {});
  std::set<Ids> held_out;
  for (std::int64_t i = 0; i < pairs->count(Split::validation); ++i)
    held_out.insert(pairs->pair(Split::validation, i).source);
  CHECK(std::ssize(held_out) + pairs->count(Split::train) == 81);
  for (auto pair : pairs->training_pairs(3, 0)) {
    CHECK_FALSE(held_out.contains(pair.source));
    if (reverses) std::reverse(pair.target.begin(), pair.target.end());
    CHECK(pair.source == pair.target);
    CHECK(std::all_of(pair.source.begin(), pair.source.end(), [](auto id) { return id >= 0 && id < 3; }));
  }
}

}  // namespace metaformer::test_pairs
