// Reviews as they come: JSON lines, gzipped tables, ratings; and the bad input that comes with them.

#include <fmt/format.h>

#include "base/digest.h"
#include "data/data_support.h"

namespace metaformer {

namespace {

LabelledDataConfig amazon(double malformed_limit = 0) { return columns("reviewText", "overall", malformed_limit); }

// A review as Amazon's files have it; `text` is JSON.
std::string review(const std::string& text, const std::string& stars) {
  return R"({"reviewerID": "AO94DHGC771SJ", "asin": "0528881469", "reviewerName": "amazdnu", "helpful": [0, 0], )"
         R"("reviewText": )" +
         text + R"(, "overall": )" + stars +
         R"(, "summary": "Gotta have GPS!", "unixReviewTime": 1370131200, "reviewTime": "06 2, 2013"})" + "\n";
}

}  // namespace

TEST_CASE("Amazon's reviews are read as they come", "[reviews]") {
  const auto content = review(R"("Fine.\nReally \u00e9 \ud83d\ude00 \"fine\".")", "5.0") + "\n" +
                       review("\"Broke.\"", "1.0") + review("\"So so\"", "3.0");
  const auto table = read_text("reviews.json", content, amazon());
  CHECK(rows_of(table) == Texts{"1 5 Fine.\nReally \u00e9 \U0001F600 \"fine\".", "3 1 Broke.", "4 3 So so"});
  CHECK(table.sha256 == sha256(content));
  CHECK(table.malformed.empty());
}

TEST_CASE("labels of JSON lines are strings, numbers, true and false", "[reviews]") {
  const auto [json, label] = GENERATE(table<std::string, std::string>({{"5", "5"},
                                                                       {"5.0", "5"},
                                                                       {"5e0", "5"},
                                                                       {"-1", "-1"},
                                                                       {"-0.0", "0"},
                                                                       {"4.5", "4.5"},
                                                                       {"0.1", "0.1"},
                                                                       {"18446744073709551615", "18446744073709551615"},
                                                                       {"1e300", "1e+300"},
                                                                       {"true", "true"},
                                                                       {"false", "false"},
                                                                       {"\"good\"", "good"},
                                                                       {"\" good \"", "good"},
                                                                       {"\"5.0\"", "5.0"}}));
  const auto table = read_text("t.jsonl", "{\"text\": \"a\", \"label\": " + json + "}", {});
  REQUIRE(table.rows.size() == 1);
  CHECK(table.rows[0].fields[1] == label);
}

TEST_CASE("byte order marks, line ends and blank lines are no part of JSON lines", "[reviews]") {
  const std::string row = R"({"label": "x", "text": "a"})";
  const Texts expected = {"1 x a", "4 x a"};
  for (const std::string ending : {"\n", "\r\n"}) {
    const auto content = row + ending + ending + " \t" + ending + row;
    CHECK(rows_of(read_text("t.jsonl", content, {})) == expected);
    CHECK(rows_of(read_text("t.jsonl", "\xEF\xBB\xBF" + content + ending, {})) == expected);
  }
}

TEST_CASE("every malformed line of JSON is reported with its number and reason, and the others are kept", "[reviews]") {
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  const std::string no_json = "not JSON (one object on every line, nested at most 64 deep)";
  const std::vector<std::pair<std::string, std::string>> lines = {
      {R"({"text": "fine", "label": 1})", ""},
      {R"({"text": "fine", "label": 1)", no_json},
      {"{'text': 'fine', 'label': 1}", no_json},
      {R"({"text": "fine", "label": NaN})", no_json},
      {R"({"text": "fine", "label": 1e999})", no_json},
      {R"({"text": "fine", "label": 1} {})", no_json},
      {R"({"text": "fine", "label": 1, "more": )" + deep + "}", no_json},
      {R"(["fine", 1])", "array, not an object"},
      {"7", "number, not an object"},
      {R"({"label": 1})", "no member 'text'"},
      {R"({"text": "fine"})", "no member 'label'"},
      {R"({"text": null, "label": 1})", "'text' is null, not a string"},
      {R"({"text": 3, "label": 1})", "'text' is number, not a string"},
      {R"({"text": "fine", "label": null})", "'label' is null; a label is a string, a number, true or false"},
      {R"({"text": "fine", "label": [1]})", "'label' is array; a label is a string, a number, true or false"},
      {R"({"text": "", "label": 1})", "the text is empty"},
      {R"({"text": " \n\t", "label": 1})", "the text is empty"},
      {R"({"text": "\u00a0\u3000\ufeff", "label": 1})", "the text is empty"},
      {R"({"text": "fine", "label": " "})", "the label is empty"},
      {R"({"text": "a\u0000b", "label": 1})", "the text has NUL bytes"},
      {std::string(R"({"text": "fine", "label": 1})") + '\0', "the line has NUL bytes"},
      {std::string(50, '\0'), "the line has NUL bytes"},
      {"{\"text\": \"caf\xe9\", \"label\": 1}", "the line is not valid UTF-8: byte 0xe9 at offset 13"},
      {R"({"text": "\ud800", "label": 1})", no_json},
      {R"({"text": ")" + std::string(16 << 20, 'x') + R"(", "label": 1})",
       "the line has 16.0 MiB; at most 16.0 MiB make sense"},
      {R"({"text": "last", "label": 2})", ""}};
  std::string content;
  Texts expected;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    content += lines[i].first + "\n";
    if (!lines[i].second.empty()) expected.push_back(fmt::format("{} {}", i + 1, lines[i].second));
  }
  const auto table = read_text("t.jsonl", content, tolerant());
  CHECK(malformed_of(table) == expected);
  CHECK(rows_of(table) == Texts{"1 1 fine", fmt::format("{} 2 last", lines.size())});
}

TEST_CASE("a fraction of malformed lines above the limit names the first", "[reviews]") {
  const auto content = review("\"a\"", "5.0") + "broken\n" + review("\"\"", "5.0") + review("\"b\"", "1.0");
  CHECK(refusal("t.json", content, amazon(0.49)) ==
        ":2: not JSON (one object on every line, nested at most 64 deep) (2 of 4 rows are malformed; "
        "data.malformed_limit allows 0.49)");
  CHECK(read_text("t.json", content, amazon(0.5)).malformed.size() == 2);
}

TEST_CASE("a member that no object has is named, with those that there are", "[reviews]") {
  const auto content = "\nbroken\n" + review("\"a\"", "5.0") + review("\"b\"", "1.0");
  auto config = amazon(1);
  config.text_field = "reviewTxt";
  CHECK(refusal("t.json", content, config) ==
        ": no object has a member 'reviewTxt'; the first, on line 3, has 'asin', 'helpful', 'overall', 'reviewText', "
        "'reviewTime', 'reviewerID', 'reviewerName', 'summary', 'unixReviewTime'; did you mean 'reviewText'?");
  CHECK_THAT(refusal("t.json", content, tolerant()), ContainsSubstring("no object has a member 'text'"));
  CHECK_THAT(refusal("t.jsonl", "{}\n", {}), ContainsSubstring("the first, on line 1, has none"));
  // A single object that has it makes the others malformed rows.
  CHECK(malformed_of(read_text("t.json", content + R"({"reviewTxt": "c", "overall": 1})", config)).size() == 3);
  // A name of a million letters is no near miss of anything, and costs nothing.
  CHECK_THAT(refusal("t.jsonl", "{\"" + std::string(1 << 20, 'x') + "\": 1}\n", {}), ContainsSubstring("...'"));
}

TEST_CASE("what JSON lines cannot do is said", "[reviews]") {
  const TemporaryFolder folder;
  const auto path = folder.write("t.jsonl", R"({"text": "a", "label": 1})");
  LabelledDataConfig config;
  config.header = TableHeader::present;
  auto [code, message] = failure([&] { read_labelled_table(path, config); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring("data.header"));
  std::tie(code, message) = failure([&] { read_labelled_table(path, columns("x", "x")); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring("both mean the member 'x'"));
  CHECK(refusal("t.jsonl", "\n \n", {}) == ": the table has no rows");
}

TEST_CASE("gzipped tables are told by their bytes, their format by the name without .gz", "[reviews]") {
  const std::string json = R"({"text": "fine", "label": 1})";
  const Texts comma = {"1 1 fine"};
  for (const std::string name : {"t.jsonl", "t.json.gz", "T.NDJSON.GZ"}) {
    const auto table = read_text(name, gzip(json), {});
    CHECK(rows_of(table) == comma);
    CHECK(table.sha256 == sha256(gzip(json)));
    CHECK(rows_of(read_text(name, json, {})) == comma);  // .gz or not
  }
  CHECK(rows_of(read_text("t.csv.gz", gzip("fine,1\n"), {})) == comma);
  CHECK(rows_of(read_text("t.gz", gzip("fine\t1\n"), {})) == comma);
  CHECK(rows_of(read_text("t.gz", gzip(json), of_format(TableFormat::jsonl))) == comma);
  // Members one after the other are one file, as `cat a.gz b.gz` makes it.
  CHECK(rows_of(read_text("t.gz", gzip("fine\t1\n") + gzip("poor\t0\n"), {})) == Texts{"1 1 fine", "2 0 poor"});
}

TEST_CASE("a gzipped table that is cut off or damaged is one clear error, wherever it is", "[reviews]") {
  std::string rows;
  for (int i = 0; i < 2000; ++i) rows += fmt::format("text {}\t{}\n", i * 7919 % 2003, i % 2);
  const auto whole = gzip(rows);
  REQUIRE(read_text("t.gz", whole, {}).rows.size() == 2000);
  for (const auto size : {whole.size() - 1, whole.size() - 8, whole.size() / 2, std::size_t{12}, std::size_t{3}})
    CHECK_THAT(refusal("t.gz", whole.substr(0, size), {}), ContainsSubstring("cannot be unpacked as gzip"));
  for (const auto at : {whole.size() / 3, whole.size() / 2, whole.size() - 6}) {  // the last: in the checksum
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    CHECK_THAT(refusal("t.gz", damaged, {}), ContainsSubstring("cannot be unpacked as gzip"));
  }
  CHECK_THAT(refusal("t.gz", whole + "more", {}), ContainsSubstring("something else follows its end"));
}

TEST_CASE("ratings become classes, and those between are left out and counted", "[reviews]") {
  auto config = amazon();
  config.rating = {.positive_from = 4, .negative_to = 2};
  std::string content;
  for (const auto* stars : {"5.0", "4.0", "4", "3.0", "3.999", "2.001", "2.0", "1", "-1e300"})
    content += review("\"a\"", stars);
  const auto table = read_text("t.json", content, config);
  CHECK(rows_of(table) ==
        Texts{"1 positive a", "2 positive a", "3 positive a", "7 negative a", "8 negative a", "9 negative a"});
  CHECK(table.left_out == 3);
  config.rating.negative_to.reset();
  CHECK(rows_of(read_text("t.json", content, config)).at(5) == "6 negative a");
  CHECK(read_text("t.json", content, config).left_out == 0);
}

TEST_CASE("a rating that is out of range is malformed where the config has a range", "[reviews]") {
  auto config = amazon();
  config.rating = {.positive_from = 4, .negative_to = 2, .lowest = 1, .highest = 5};
  config.malformed_limit = 1;
  std::string content;
  for (const auto* stars : {"5", "5.5", "1", "0.5", "-3", "9"}) content += review("\"a\"", stars);
  const auto table = read_text("t.json", content, config);
  CHECK(rows_of(table) == Texts{"1 positive a", "3 negative a"});
  CHECK(malformed_of(table) ==
        Texts{"2 the rating 5.5 is above data.rating.highest 5", "4 the rating 0.5 is below data.rating.lowest 1",
              "5 the rating -3 is below data.rating.lowest 1", "6 the rating 9 is above data.rating.highest 5"});
  config.rating.lowest.reset();
  CHECK(rows_of(read_text("t.json", content, config)).size() == 4);
  config.malformed_limit = 0;
  CHECK_THAT(refusal("t.json", content, config), ContainsSubstring(":2: the rating 5.5 is above"));
}

TEST_CASE("a rating that is no number is malformed, in every format", "[reviews]") {
  auto config = tolerant();
  config.rating.positive_from = 7;
  const auto why = " the label 'good' is not a number, as data.rating asks";
  CHECK(malformed_of(read_text("t.csv", "text,label\na,good\nb,9\n", config)) == Texts{std::string("2") + why});
  CHECK(malformed_of(read_text("t.tsv", "a\t9\nb\tgood\n", config)) == Texts{std::string("2") + why});
  const auto row = [](const std::string& label) { return R"({"text": "a", "label": )" + label + "}\n"; };
  const auto table = read_text(
      "t.jsonl", row("9") + row("\"8.0\"") + row("true") + row("\"inf\"") + row("\"nan\"") + row("\"9 \""), config);
  CHECK(rows_of(table) == Texts{"1 positive a", "2 positive a", "6 positive a"});
  CHECK(malformed_of(table).size() == 3);
  config.malformed_limit = 0;
  CHECK_THAT(refusal("t.tsv", "a\t9\nb\t9,0\n", config), ContainsSubstring(":2: the label '9,0' is not a number"));
  // One low rating at the start of a table is no header.
  CHECK(read_text("t.tsv", "a\t1\nb\t9\nc\t9\nd\t9\ne\t9\n", config).rows.size() == 5);
}

TEST_CASE("a table whose ratings all lie between says so", "[reviews]") {
  auto config = amazon();
  config.rating = {.positive_from = 4, .negative_to = 2};
  CHECK(refusal("t.json", review("\"a\"", "3.0"), config) ==
        ": all 1 ratings lie between data.rating.negative_to and data.rating.positive_from");
}

TEST_CASE("what was left out stands in the description of the splits", "[reviews]") {
  const TemporaryFolder folder;
  auto config = amazon(0.5);
  config.rating = {.positive_from = 4, .negative_to = 2};
  std::string content = "broken\n";
  for (int i = 0; i < 50; ++i) content += review(fmt::format("\"review {}\"", i), fmt::format("{}.0", 1 + i % 5));
  config.path = folder.write("t.json", content).string();
  const auto splits = load_labelled_splits(config, true);
  const auto& description = splits.description.at("train");
  CHECK(description.at("rows") == 40);
  CHECK(description.at("left_out") == 10);
  CHECK(description.at("malformed") == 1);
  config.corpus = "imdb";
  const auto [code, message] = failure([&] { load_labelled_splits(config, true); });
  CHECK(code == ExitCode::usage);
  CHECK(message == "data.rating.positive_from: imdb brings its own classes");
}

TEST_CASE("a label that training does not have is an error that names its row", "[reviews]") {
  const TemporaryFolder folder;
  LabelledDataConfig config;
  config.path = folder
                    .write("train.jsonl", R"({"text": "a b", "label": 0})"
                                          "\n"
                                          R"({"text": "c d", "label": 1})")
                    .string();
  config.validation_path = folder
                               .write("validation.jsonl",
                                      "\n"
                                      R"({"text": "e", "label": 2})")
                               .string();
  config.tokenizer = WordTokenizerOptions{};
  const auto [code, message] = failure([&] { encode_splits(load_labelled_splits(config, true), config, Codec{}); });
  CHECK(code == ExitCode::data);
  CHECK_THAT(message, ContainsSubstring("validation.jsonl:2: the label '2' is not among the 2 of the training texts"));
}

TEST_CASE("files that are no tables are refused, whatever their name", "[reviews]") {
  const std::string nuls(10'000, '\0');
  CHECK(refusal("t.csv", nuls, {}) == ":1: NUL bytes; a table is UTF-8 text");
  CHECK(refusal("t.tsv", nuls, {}) == ":1: NUL bytes; a table is UTF-8 text");
  CHECK_THAT(refusal("t.jsonl", nuls, {}), ContainsSubstring(":1: the line has NUL bytes (1 of 1 rows"));
  const std::string utf16("\xff\xfet\0e\0x\0t\0\t\0l\0\n\0", 16);
  CHECK_THAT(refusal("t.tsv", utf16, {}), ContainsSubstring("NUL bytes"));
  CHECK_THAT(refusal("t.csv", "text,label\ncaf\xe9,good\n", {}), ContainsSubstring(":2: the text is not valid UTF-8"));
  CHECK(malformed_of(read_text("t.csv", std::string("text,label\na,b\nc\0d,e\nf,g\0\n", 26), tolerant())) ==
        Texts{"3 the text has NUL bytes", "4 the label has NUL bytes"});
}

TEST_CASE("a review of a million bytes is a review, with or without spaces", "[reviews]") {
  for (const std::string piece : {"x", "x ", "\u00e9", "'", "a'"}) {
    std::string text;
    while (text.size() < (1 << 20)) text += piece;
    const TemporaryFolder folder;
    LabelledDataConfig config;
    const auto rows = review("\"" + text + "\"", "5.0") + review("\"short\"", "1.0");
    config.path = folder.write("t.json", rows).string();
    config.validation_path = config.path;
    config.text_field = "reviewText";
    config.label_field = "overall";
    config.tokenizer = WordTokenizerOptions{};
    auto splits = load_labelled_splits(config, true);
    CHECK(splits[Split::train].at(0).text == text);
    CHECK_FALSE(encode_splits(std::move(splits), config, Codec{})[Split::train].at(0).ids.empty());
  }
}

TEST_CASE("a table beside a training table with a header must have its names", "[reviews]") {
  const TemporaryFolder folder;
  LabelledDataConfig config;
  config.path = folder.write("train.csv", "text,label\na,good\nb,bad\n").string();
  config.validation_path = folder.write("dev.csv", "label,text\ngood,c\n").string();
  auto splits = load_labelled_splits(config, true);
  CHECK(splits.description.at("train").at("header") == true);
  CHECK(splits[Split::validation].at(0).text == "c");
  const auto other = folder.write("other.csv", "a,good\nb,bad\n").string();
  for (auto* path : {&config.validation_path, &config.test_path, &config.extra_path}) {
    const auto before = *path;
    *path = other;
    const auto [code, message] = failure([&] { load_labelled_splits(config, true); });
    CHECK(code == ExitCode::data);
    CHECK_THAT(message, ContainsSubstring("other.csv:1: no column 'text' in the first row, which has 'a', 'good'"));
    *path = before;
  }
  config.test_path = folder.write("test.jsonl", "{\"text\": \"d\", \"label\": \"good\"}\n").string();
  splits = load_labelled_splits(config, true);
  CHECK(splits[Split::test].at(0).text == "d");
  CHECK_FALSE(splits.description.at("test").contains("header"));
  config.path = other;  // which has no header, so the others need none
  config.validation_path = other;
  CHECK(load_labelled_splits(config, true).description.at("train").at("header") == false);
}

TEST_CASE("a hundred thousand malformed lines are counted", "[reviews]") {
  std::string content = review("\"a\"", "5.0");
  for (int i = 0; i < 100'000; ++i) content += "{\"reviewText\": \"open\n";
  const auto table = read_text("t.json", content, amazon(1));
  CHECK(table.malformed.size() == 100'000);
  CHECK(table.malformed.back().line == 100'001);
}

}  // namespace metaformer
