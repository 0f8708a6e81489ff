// Pairs of texts from the lines of two files, and from tables.

#include <fmt/format.h>

#include "base/digest.h"
#include "base/random.h"
#include "data/data_support.h"
#include "data/pairs.h"

namespace metaformer {

namespace {

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

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

LinePairs read_lines(const std::string& sources, const std::string& targets) {
  const TemporaryFolder folder;
  return read_line_pairs(folder.write("a.de", sources), folder.write("b.en", targets));
}

// The message of a data error, without the folder of the two files.
std::string refusal_of_lines(const std::string& sources, const std::string& targets) {
  const TemporaryFolder folder;
  const auto source = folder.write("a.de", sources), target = folder.write("b.en", targets);
  auto [code, message] = failure([&] { read_line_pairs(source, target); });
  CHECK(code == ExitCode::data);
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

std::pair<ExitCode, std::string> refusal_of_table(const std::string& name, const std::string& content,
                                                  const ParallelDataConfig& config = {}) {
  return failure([&] { read_pairs(name, content, config); });
}

}  // namespace

TEST_CASE("random lines of two files come back as pairs, with their places", "[pairs]") {
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

TEST_CASE("files of different numbers of lines are refused with both numbers and the first line alone", "[pairs]") {
  CHECK(refusal_of_lines("a\nb\nc\n", "x\ny") ==
        "a.de has 3 lines and b.en has 2, but each line needs its partner in the other file: line 3 of a.de has none");
  CHECK_THAT(refusal_of_lines("a\n", "x\ny\nz\n"), ContainsSubstring("line 2 of b.en has none"));
  CHECK_THAT(refusal_of_lines("", "x\n"), ContainsSubstring("a.de has 0 lines and b.en has 1"));
  CHECK_THAT(refusal_of_lines("a\n\n", "x\n"), ContainsSubstring("line 2 of a.de has none"));
  CHECK(refusal_of_lines("", "\xEF\xBB\xBF") == "a.de and b.en have no lines");
}

TEST_CASE("a line that is no text is named with its file and line, on either side", "[pairs]") {
  const std::string mebibyte(1 << 20, 'x');
  const auto [line, why] = GENERATE_COPY(table<std::string, std::string>({
      {"", "the line is empty; its partner "},
      {" \t", "the line is empty; its partner "},
      {"\u00a0\u3000", "the line is empty; its partner "},
      {"caf\xe9", "the line is not valid UTF-8: byte 0xe9 at offset 3; convert the file to UTF-8"},
      {std::string("a\0b", 3), "the line has NUL bytes; a text is UTF-8"},
      {mebibyte + "x", "the line has 1048577 bytes; at most 1048576 make sense"},
  }));
  const std::string ending = GENERATE(as<std::string>{}, "\n", "\r\n");
  const auto bad = "a" + ending + "b" + ending + line + ending + "d" + ending, good = std::string("a\nb\nc\nd\n");
  CHECK_THAT(refusal_of_lines(bad, good), StartsWith("a.de:3: " + why));
  CHECK_THAT(refusal_of_lines(good, bad), StartsWith("b.en:3: " + why));
  CHECK(read_lines(mebibyte + ending, "a\n").pairs.at(0).source == mebibyte);
  if (line.empty())
    CHECK(refusal_of_lines(bad, good) ==
          "a.de:3: the line is empty; its partner b.en:3 needs a text here, or must go too");
}

TEST_CASE("files that cannot be read are refused", "[pairs]") {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += fmt::format("Satz {}\n", i * 7919 % 1009);
  const auto gzipped = gzip(lines);
  CHECK(read_lines(gzipped, lines).pairs.size() == 1000);
  CHECK_THAT(refusal_of_lines(gzipped.substr(0, gzipped.size() / 2), lines),
             StartsWith("a.de: cannot be unpacked as gzip"));
  const TemporaryFolder folder;
  const auto there = folder.write("a.de", "a\n");
  CHECK_THAT(failure([&] { read_line_pairs(there, folder / "b.en"); }).second, ContainsSubstring("b.en: no such file"));
  CHECK_THAT(failure([&] { read_line_pairs(folder.path(), there); }).second, ContainsSubstring("not a regular file"));
}

TEST_CASE("tables of every format have the same pairs", "[pairs]") {
  const Texts expected = {"Ein \"Hund\", -> A dog\twith", "Zwei -> two "};
  const std::string csv = "\"Ein \"\"Hund\"\",\",A dog\twith\nZwei,two \n";
  const std::string json = R"({"source": "Ein \"Hund\",", "target": "A dog\twith", "id": 1})"
                           "\n\n"
                           R"({"target": "two ", "source": "Zwei"})";
  CHECK(texts_of(read_pairs("t.csv", "source,target\n" + csv)) == expected);
  CHECK(texts_of(read_pairs("t.csv", "\xEF\xBB\xBFsource,target\r\n" + csv)) == expected);
  CHECK(texts_of(read_pairs("t.csv.gz", gzip(csv))) == expected);
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

TEST_CASE("malformed rows of pairs are counted up to the limit, and named above it", "[pairs]") {
  const std::string content = "source,target\na,b\n,b\na, \na\na,b,c\n\xff,b\na,\xff\na,b\n";
  const Texts reasons = {"the source is empty",           "the target is empty",
                         "the row ends before column 2",  "3 columns, but the first row has 2",
                         "the source is not valid UTF-8", "the target is not valid UTF-8"};
  const auto table = read_pairs("t.csv", content, fields("source", "target", 0.75));
  CHECK(table.rows.size() == 2);
  REQUIRE(table.malformed.size() == reasons.size());
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    CHECK(table.malformed[i].why == reasons[i]);
    CHECK(table.malformed[i].line == static_cast<std::int64_t>(i) + 3);
  }
  const auto [code, message] = refusal_of_table("t.csv", content, fields("source", "target", 0.74));
  CHECK(code == ExitCode::data);
  CHECK_THAT(message,
             EndsWith("t.csv:3: the source is empty (6 of 8 rows are malformed; data.malformed_limit allows 0.74)"));
  const auto json = read_pairs("t.jsonl",
                               R"({"source": "a", "target": 1})"
                               "\n{\"source\": \"a\"}\n{\n"
                               R"({"source": "a", "target": "b\u0000"})"
                               "\n"
                               R"({"source": "a", "target": "b"})",
                               fields("source", "target", 1));
  CHECK(json.rows.size() == 1);
  REQUIRE(json.malformed.size() == 4);
  CHECK(json.malformed[0].why == "'target' is number, not a string");
  CHECK(json.malformed[1].why == "no member 'target'");
  CHECK(json.malformed[3].why == "the target has NUL bytes");
}

TEST_CASE("a table refuses a text above the limit of a line, with its line", "[pairs]") {
  const std::string fits(longest_pair_text, 'x'), too_long = fits + "x";
  CHECK(read_pairs("t.tsv", fits + "\t" + fits + "\n").rows.size() == 1);
  const auto refused = [&](const std::string& name, const std::string& content, const std::string& role) {
    const auto [code, message] = refusal_of_table(name, content);
    CHECK(code == ExitCode::data);
    CHECK_THAT(message,
               EndsWith(fmt::format("{}:2: the {} has {} bytes; at most {} make sense (1 of 2 rows are malformed; "
                                    "data.malformed_limit allows 0)",
                                    name, role, too_long.size(), fits.size())));
  };
  refused("t.tsv", "a\tb\n" + too_long + "\tb\n", "source");
  refused("t.csv", "a,b\na," + too_long + "\n", "target");
  refused("t.jsonl",
          R"({"source": "a", "target": "b"})"
          "\n"
          R"({"source": "a", "target": ")" +
              too_long + "\"}\n",
          "target");
}

TEST_CASE("a table without the columns of pairs is refused, with what would be right", "[pairs]") {
  ParallelDataConfig with_header;
  with_header.header = TableHeader::present;
  const auto [name, content, config, code, expected] =
      GENERATE_COPY(table<std::string, std::string, ParallelDataConfig, ExitCode, std::string>({
          {"train.de",
           "Ein Mann.\nZwei.\n",
           {},
           ExitCode::data,
           "train.de:1: one column only, where source and target need two; if the targets are the lines of another "
           "file, set data.target_path"},
          {"t.csv", "source;target\na;b\n", {}, ExitCode::data, "';' looks like its delimiter"},
          {"t.csv", "de,target\na,b\n", {}, ExitCode::data, "no column 'source' in the first row"},
          {"t.csv", "de,en\na,b\n", fields("de", "eng"), ExitCode::data, "did you mean 'en'?"},
          {"t.csv", "a,b\n", fields("1", "0"), ExitCode::usage, "data.target_field counts columns from 1, not 0"},
          {"t.csv", "a,b\n", fields("2", "2"), ExitCode::usage,
           "data.source_field and data.target_field both mean column 2 of"},
          {"t.jsonl", R"({"source": "a", "target": "b"})", fields("target", "target"), ExitCode::usage,
           "data.source_field and data.target_field both mean the member 'target' of"},
          {"t.jsonl", R"({"source": "a", "target": "b"})", with_header, ExitCode::usage, "data.header: "},
          {"t.jsonl", R"({"source": "a", "en": "b"})", {}, ExitCode::data, "no object has a member 'target'"},
          {"t.csv", "source,target\n", {}, ExitCode::data, "t.csv: the table has no rows"},
      }));
  CAPTURE(name, content);
  const auto [found, message] = refusal_of_table(name, content, config);
  CHECK(found == code);
  CHECK_THAT(message, ContainsSubstring(expected));
}

}  // namespace metaformer
