// Tables of labelled texts as CSV, TSV and JSON lines, gzipped or not; ratings; malformed input.

#include "base/digest.h"
#include "base/random.h"
#include "base/rows.h"
#include "data/data_support.h"

namespace metaformer::test_labelled_table {

namespace {

std::string random_field(const Rng& rng, std::uint64_t index, const Texts& pieces) {
  std::string field = "x";  // never blank
  const auto length = rng.below(100 * index, 12);
  for (std::uint64_t i = 1; i <= length; ++i) field += pieces[rng.below(100 * index + i, pieces.size())];
  return field;
}

// A field by RFC 4180: quoted if it must be, or if `quoted`.
std::string csv_field(const std::string& field, bool quoted) {
  if (!quoted && field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string written = "\"";
  for (const char c : field) written += c == '"' ? "\"\"" : std::string(1, c);
  return written + "\"";
}

LabelledDataConfig amazon(double malformed_limit = 0) { return columns("reviewText", "overall", malformed_limit); }

// A review in the format of Amazon's files; `text` is JSON.
std::string review(const std::string& text, const std::string& stars) {
  return R"({"reviewerID": "AO94DHGC771SJ", "asin": "0528881469", "reviewerName": "amazdnu", "helpful": [0, 0], )"
         R"("reviewText": )" +
         text + R"(, "overall": )" + stars +
         R"(, "summary": "Gotta have GPS!", "unixReviewTime": 1370131200, "reviewTime": "06 2, 2013"})" + "\n";
}

}  // namespace

TEST_CASE("random fields are read back from CSV and TSV, with the first lines of their rows", "[table]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(1, 20)));
  const std::string ending = GENERATE(as<std::string>{}, "\n", "\r\n");
  const bool csv = GENERATE(true, false);
  Texts pieces = {"\"", ",", " ", "a", "é", "自", "'", "\\"};
  if (csv) pieces.insert(pieces.end(), {"\"\"", "\n", "\r\n", "\t", "\U0001F600", ";"});
  const Rng rng(seed, RandomPurpose::sampling);
  std::string content = csv ? "label,text" + ending : "";
  Texts expected;
  std::int64_t line = csv ? 2 : 1;
  for (std::uint64_t row = 0; row < 40; ++row) {
    const auto text = random_field(rng, 2 * row, pieces) + " ";
    const auto label = random_field(rng, 2 * row + 1, pieces) + "x";
    expected.push_back(fmt::format("{} {} {}", line, label, text));
    const bool quoted = rng.below(1'000'000 + row, 2) == 0;
    auto written = csv ? csv_field(label, quoted) + "," + csv_field(text, quoted) : text + "\t7\t" + label;
    if (row < 39) written += ending;
    line += std::count(written.begin(), written.end(), '\n');
    content += written;
  }
  const auto table = csv ? read_text("t.csv", content) : read_text("t.tsv", content, columns("1", "3"));
  CHECK(rows_of(table) == expected);
  CHECK(table.has_header == csv);
  CHECK(table.sha256 == sha256(content));
}

TEST_CASE("the format follows from the file's ending unless the config names it", "[table]") {
  const auto [name, content, format] = GENERATE(table<std::string, std::string, TableFormat>({
      {"t.csv", "a,b\n", TableFormat::automatic},
      {"t.CSV", "a,b\n", TableFormat::automatic},
      {"t.txt", "a\tb\n", TableFormat::automatic},
      {"csv", "a\tb\n", TableFormat::automatic},
      {"t.tsv", "a,b\n", TableFormat::csv},
      {"t.csv", "a\tb\n", TableFormat::tsv},
  }));
  CHECK(rows_of(read_text(name, content, of_format(format))) == Texts{"1 b a"});
}

TEST_CASE("columns are found by name if there is a header, otherwise by number", "[table]") {
  const auto read = [](const std::string& content, const LabelledDataConfig& config = {}) {
    const auto table = read_text("t.csv", content, config);
    return std::pair(table.has_header, rows_of(table));
  };
  const std::pair with_header(true, Texts{"2 good fine film"}), without(false, Texts{"1 good fine film"});
  CHECK(read("id,label,text\n1,good,fine film\n") == with_header);
  CHECK(read("\"label\", text \n good ,fine film\n") == with_header);
  CHECK(read("fine film,good\nbad film,bad\n") == std::pair(false, Texts{"1 good fine film", "2 bad bad film"}));
  CHECK(read("good,1,fine film\n", columns("3", "1")) == without);
  CHECK(read("text,label\n", columns("1", "2")) == std::pair(false, Texts{"1 label text"}));
  CHECK(read("class,review\ngood,fine film\n", columns("review", "class")) == with_header);
  CHECK(read("class,review\ngood,fine film\n", columns("2", "class")) == with_header);
}

TEST_CASE("an unexpected header is an error, not a row", "[table]") {
  const std::string rows = "fine film,good\nbad film,bad\nlong film,bad\nshort film,good\nold film,good\n";
  auto config = columns("1", "2");
  for (const std::string header : {"review,sentiment\n", "Text,Label\n"}) {
    for (const auto& unsaid : {LabelledDataConfig(), columns("1", "2")})
      CHECK_THAT(refusal("t.csv", header + rows, unsaid), Mentions(":1: looks|header"));
    config.header = TableHeader::present;
    CHECK(read_text("t.csv", header + rows, config).rows.size() == 5);
    config.header = TableHeader::absent;
    CHECK(read_text("t.csv", header + rows, config).rows.size() == 6);
  }
  CHECK(read_text("t.csv", rows).rows.size() == 5);
  // Several rare labels do not look like a header.
  CHECK(read_text("t.csv", "odd film,odd\n" + rows + "rare film,rare\n").rows.size() == 7);
  LabelledDataConfig absent;
  absent.header = TableHeader::absent;
  CHECK(read_text("t.csv", "text,label\n" + rows, absent).rows.size() == 6);
}

TEST_CASE("the error for a missing column names it and the existing columns", "[table]") {
  CHECK_THAT(refusal("t.csv", "review,class\na,b\n", columns("reviw", "class")),
             Mentions(":1:|'reviw'|'class'|'review'?"));
  CHECK(refusal("t.csv", "text,class\na,b\n", columns("text", "sentiment")).ends_with("which has 'text', 'class'"));
  // A first row with one of the default names is a header, whose other column has another name.
  CHECK_THAT(refusal("t.csv", "sentence,label\na,b\n"), ContainsSubstring(":1: no column 'text'"));
  for (const auto& wrong : {columns("0", "1"), columns("2", "2")})
    CHECK(failure([&] { read_text("t.csv", "a,b\n", wrong); }).first == ExitCode::usage);
  const std::string twice = "text,label,text,note,note\na,b,c,d,e\n";
  CHECK_THAT(refusal("t.csv", twice), Mentions(":1: columns 1 and 3|'text'"));
  CHECK(rows_of(read_text("t.csv", twice, columns("3", "label"))) == Texts{"2 b c"});
}

TEST_CASE("the error for a table with only one column names a likely delimiter", "[table]") {
  const auto [name, content, delimiter] = GENERATE(table<std::string, std::string, std::string>({
      {"t.csv", "text;label\na;b\n", "';'"},
      {"t.csv", "good film;1\nbad film;0\n", "';'"},
      {"t.csv", "text\tlabel\na\tb\n", "a tab"},
      {"t.tsv", "text,label\na,b\n", "','"},
      {"t.tsv", "text|label\na|b\n", "'|'"},
  }));
  CHECK_THAT(refusal(name, content), Mentions(":1: one column") && ContainsSubstring("; " + delimiter));
  CHECK_THAT(refusal("t.csv", "words\nmore\n"), ContainsSubstring("need two") && !ContainsSubstring("delimiter"));
}

TEST_CASE("texts to classify may have one column, and a required header is not taken for a text", "[table]") {
  const auto read = [](const std::string& content, TableHeader header = TableHeader::automatic) {
    auto columns = columns_of(LabelledDataConfig());
    columns.header = header;
    columns.only_first = true;
    return read_table(content, "t.csv", TableFormat::csv, columns);
  };
  CHECK(rows_of(read("id,text\n1,a\n", TableHeader::present)) == Texts{"2  a"});
  CHECK(rows_of(read("a,b\nc,d\n")) == Texts{"1  a", "2  c"});
  CHECK(rows_of(read("a film; good\n")) == Texts{"1  a film; good"});
  CHECK(rows_of(read("text\na\n")) == Texts{"2  a"});
  for (const std::string content : {"id,review\n1,a\n", "a\nb\n", "label,Text\nx,a\n", "id;text\n1;a\n"})
    CHECK_THAT(message_of(ExitCode::data, [&] { read(content, TableHeader::present); }),
               ContainsSubstring("no column 'text'") || ContainsSubstring("looks like its delimiter"));
  for (const std::string content : {"text;label\na;b\n", "id;text\n1;b\n", "a|text|b\n"})
    CHECK_THAT(message_of(ExitCode::data, [&] { read(content); }), Mentions("t.csv:1: one column only; |delimiter"));
}

TEST_CASE("every malformed row is reported with its line and reason, and the others are kept", "[table]") {
  const std::string content =
      "text,label,note\n"                  // 1
      "\"two\nlines\",good,\n"             // 2, 3
      "alone\n"                            // 4
      "a, b,good,\n"                       // 5
      "  \t,good,\n"                       // 6
      "\n"                                 // 7
      "no label, ,\n"                      // 8
      "bad \xff,good,\n"                   // 9
      "bad label,\xc3,\n"                  // 10
      "\"said \"\"so\"\"\n\n\",good,\n"    // 11 ... 13
      "a 5\" disk,good,\n"                 // 14
      "\"quoted\" and more,good,\n"        // 15
      "no note,good\n"                     // 16
      "   \n"                              // 17
      "\"multi\nline\" then more,good,\n"  // 18, 19
      "fine,bad,\xff\n"                    // 20
      "\"open,good,\n"                     // 21
      "last,good,\n";                      // 22
  const auto table = read_text("t.csv", content, columns("text", "label", 1));
  check_malformed(table, {"4 the row|column 2", "5 4 columns|3", "6 the text is empty", "8 the label|empty",
                          "9 the text|UTF-8", "10 the label|UTF-8", "14 a stray quote", "15 a stray quote",
                          "18 a stray quote", "19 a stray quote", "21 a quote|never closed"});
  CHECK(rows_of(table) ==
        Texts{"2 good two\nlines", "11 good said \"so\"\n\n", "16 good no note", "20 bad fine", "22 good last"});
  const auto tsv = read_text("t.tsv", "text\tlabel\nok\tgood\n\t\nalone\na\tb\tc\n\n \nok\t\r\n", tolerant());
  check_malformed(tsv, {"3 the text is empty", "4 the row|column 2", "5 3 columns|2", "8 the label|empty"});
  CHECK(rows_of(tsv) == Texts{"2 good ok"});
}

TEST_CASE("an unclosed quote or object makes only its own row malformed, also in large numbers", "[table]") {
  std::string content = "text,label\n", json = review("\"a\"", "5.0");
  for (int i = 0; i < 20'000; ++i) content += i % 2 == 0 ? "\"open,good\n" : "fine,good\n";
  const auto table = read_text("t.csv", content, tolerant());
  CHECK(table.malformed.size() == 10'000);
  CHECK(table.rows.size() == 10'000);
  for (int i = 0; i < 100'000; ++i) json += "{\"reviewText\": \"open\n";
  const auto malformed = read_text("t.json", json, amazon(1)).malformed;
  CHECK(malformed.size() == 100'000);
  CHECK(malformed.back().line == 100'001);
  check_malformed(read_text("t.csv", "a,b\n\"open", columns("1", "2", 1)), {"2 a quote|never closed"});
  CHECK(rows_of(read_text("t.csv", "a,b\nfine,\"go\"od\nfine,good\n", columns("1", "2", 1))) ==
        Texts{"1 b a", "3 good fine"});  // the field before the quote is dropped
  CHECK_THAT(refusal("t.csv", "\"a,b\nc,d\n"), Mentions(":1: a quote|never closed|"));
}

TEST_CASE("a fraction of malformed rows above the limit is an error that names the first", "[table]") {
  const std::string content = "text,label\na,b\n,b\na,b\n,b\na,b\n";
  for (const double limit : {0.0, 0.39})
    CHECK_THAT(refusal("t.csv", content, columns("text", "label", limit)),
               Mentions(fmt::format(":3: the text|2 of 5|data.malformed_limit|{})", limit)));
  CHECK_THAT(refusal("t.json", "broken\n{\"text\": \"a\", \"label\": 1}\n"), Mentions(":1: not JSON |1 of 2"));
  CHECK(read_text("t.csv", content, columns("text", "label", 0.4)).malformed.size() == 2);
  std::string percent = "text,label\n";
  for (int i = 0; i < 100; ++i) percent += i < 29 ? ",b\n" : "a,b\n";
  CHECK(read_text("t.csv", percent, columns("text", "label", 0.29)).malformed.size() == 29);  // 0.29 * 100 < 29
}

TEST_CASE("byte order marks, any line breaks and blank lines have no effect on a table", "[table]") {
  const std::string mark = "\xEF\xBB\xBF", row = R"({"label": "x", "text": "a"})";
  const Texts expected = {"2 good fine", "3 bad poor"}, of_json = {"1 x a", "4 x a"};
  for (const std::string ending : {"\n", "\r\n", "\r"}) {
    const auto content = mark + "text,label" + ending + "fine,good" + ending + "poor,bad" + ending;
    const auto table = read_text("t.csv", content);
    CHECK(rows_of(table) == expected);
    CHECK(table.has_header);
    CHECK(table.sha256 == sha256(content));
    if (ending == "\r") continue;
    const auto json = row + ending + ending + " \t" + ending + row;
    CHECK(rows_of(read_text("t.jsonl", json)) == of_json);
    CHECK(rows_of(read_text("t.jsonl", mark + json + ending)) == of_json);
  }
  CHECK(rows_of(read_text("t.tsv", mark + "text\tlabel\r\nfine\tgood\r\npoor\tbad\r")) == expected);
  CHECK(rows_of(read_text("t.csv", mark + "\"text\",\"label\"\nfine,good\npoor,bad")) == expected);
}

TEST_CASE("a text or line above the limit is malformed and reported with its line", "[table]") {
  const std::string fits(longest_table_text - 100, 'x'), half(longest_table_text / 2 + 1, 'y');
  const std::string too_long(longest_delimited_line + 1, 'z');
  for (const std::string name : {"t.csv", "t.tsv"}) {
    const std::string comma = name == "t.csv" ? "," : "\t";
    const auto rows = "text" + comma + "label\n" + fits + comma + "good\n" + too_long + "\nfine" + comma + "bad\n";
    const auto why =
        fmt::format("the line|{} bytes|{}", too_long.size() + (name == "t.csv" ? 1 : 0), longest_delimited_line);
    CHECK_THAT(refusal(name, rows), Mentions(":3: " + why + "|1 of 3"));
    const auto table = read_text(name, rows, columns("text", "label", 0.5));
    CHECK(table.rows.size() == 2);
    check_malformed(table, {"3 " + why});
    CHECK_THAT(refusal(name, too_long), ContainsSubstring(":1: the line has "));
  }
  // A quoted text may have several lines.
  CHECK_THAT(refusal("t.csv", "text,label\n\"" + half + "\n" + half + "\",good\n"),
             Mentions(fmt::format(":2: the text|{} bytes", 2 * half.size() + 1)));
}

TEST_CASE("tables without rows are refused", "[table]") {
  for (const std::string content : {"", "\n\n", "\xEF\xBB\xBF", "text,label\n", "text,label\n\r\n  \n"})
    CHECK_THAT(refusal("t.csv", content), ContainsSubstring("no rows"));
  CHECK_THAT(refusal("t.csv", "text,label\n,\n", tolerant()), ContainsSubstring("no rows"));
  CHECK_THAT(refusal("t.jsonl", "\n \n"), ContainsSubstring("no rows"));
  CHECK_THAT(message_of(ExitCode::data, [] { read_labelled_table("missing.csv", {}); }), Mentions("missing.csv: no"));
}

TEST_CASE("labels of JSON lines may be strings, numbers, true and false", "[reviews]") {
  std::istringstream labels(
      "5 5 5.0 5 5e0 5 -1 -1 -0.0 0 4.5 4.5 0.1 0.1 18446744073709551615 18446744073709551615 1e300 1e+300 true true "
      "false false \"good\" good \"5.0\" 5.0 \"\\u0020good\\u0020\" good");
  for (std::string json, label; labels >> json >> label;)
    CHECK(rows_of(read_text("t.jsonl", R"({"text": "a", "label": )" + json + "}")) == Texts{"1 " + label + " a"});
}

TEST_CASE("every malformed line of JSON is reported with its number and reason, and the others are kept", "[reviews]") {
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  const std::string no_json = "not JSON|64";
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
      {R"({"text": null, "label": 1})", "'text'|null"},
      {R"({"text": 3, "label": 1})", "'text'|number"},
      {R"({"text": "fine", "label": null})", "'label'|null"},
      {R"({"text": "fine", "label": [1]})", "'label'|array"},
      {R"({"text": "", "label": 1})", "the text is empty"},
      {R"({"text": " \n\t", "label": 1})", "the text is empty"},
      {R"({"text": "\u00a0\u3000\ufeff", "label": 1})", "the text is empty"},
      {R"({"text": "fine", "label": " "})", "the label is empty"},
      {R"({"text": "a\u0000b", "label": 1})", "the text|NUL"},
      {std::string(R"({"text": "fine", "label": 1})") + '\0', "the line|NUL"},
      {std::string(50, '\0'), "the line|NUL"},
      {"{\"text\": \"caf\xe9\", \"label\": 1}", "the line|UTF-8|0xe9|13"},
      {R"({"text": "\ud800", "label": 1})", no_json},
      {R"({"text": ")" + std::string(16 << 20, 'x') + R"(", "label": 1})", "the line|16.0 MiB"},
      {R"({"text": "last", "label": 2})", ""}};
  std::string content;
  Texts expected;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    content += lines[i].first + "\n";
    if (!lines[i].second.empty()) expected.push_back(fmt::format("{} {}", i + 1, lines[i].second));
  }
  const auto table = read_text("t.jsonl", content, tolerant());
  check_malformed(table, expected);
  CHECK(rows_of(table) == Texts{"1 1 fine", fmt::format("{} 2 last", lines.size())});
}

TEST_CASE("the error for a member that no object has names it and the existing members", "[reviews]") {
  const auto content = "\nbroken\n" + review("\"a\"", "5.0") + review("\"b\"", "1.0");
  const auto config = columns("reviewTxt", "overall", 1);
  CHECK_THAT(refusal("t.json", content, config), Mentions("'reviewTxt'|line 3|'asin'|'unixReviewTime'|'reviewText'?"));
  CHECK_THAT(refusal("t.json", content, tolerant()), Mentions("no object|'text'"));
  CHECK_THAT(refusal("t.jsonl", "{}\n"), ContainsSubstring("line 1, has none"));
  // If a single object has it, the others are malformed rows.
  CHECK(malformed_of(read_text("t.json", content + R"({"reviewTxt": "c", "overall": 1})", config)).size() == 3);
  // A name of a million letters gives a short message.
  CHECK_THAT(refusal("t.jsonl", "{\"" + std::string(1 << 20, 'x') + "\": 1}\n"), ContainsSubstring("...'"));
  // JSON lines have no header, and one member cannot be both text and label.
  auto headed = LabelledDataConfig();
  headed.header = TableHeader::present;
  for (const auto& [wrong, why] : {std::pair(headed, "data.header"), {columns("x", "x"), "both|member 'x'"}})
    CHECK_THAT(message_of(ExitCode::usage,
                          [&, &wrong = wrong] { read_text("t.jsonl", R"({"text": "a", "label": 1})", wrong); }),
               Mentions(why));
}

TEST_CASE("gzipped tables are recognised by their bytes, and their format by the name without .gz", "[reviews]") {
  const std::string json = R"({"text": "fine", "label": 1})";
  const Texts comma = {"1 1 fine"};
  for (const std::string name : {"t.jsonl", "t.json.gz", "T.NDJSON.GZ"}) {
    const auto table = read_text(name, gzip(json));
    CHECK(rows_of(table) == comma);
    CHECK(table.sha256 == sha256(gzip(json)));
    CHECK(rows_of(read_text(name, json)) == comma);  // also if the name ends with .gz
  }
  CHECK(rows_of(read_text("t.csv.gz", gzip("fine,1\n"))) == comma);
  CHECK(rows_of(read_text("t.gz", gzip("fine\t1\n"))) == comma);
  CHECK(rows_of(read_text("t.gz", gzip(json), of_format(TableFormat::jsonl))) == comma);
  // Concatenated members are one file, as after `cat a.gz b.gz`.
  CHECK(rows_of(read_text("t.gz", gzip("fine\t1\n") + gzip("poor\t0\n"))) == Texts{"1 1 fine", "2 0 poor"});
}

TEST_CASE("a gzipped table that is truncated or damaged anywhere is an error", "[reviews]") {
  std::string rows;
  for (int i = 0; i < 2000; ++i) rows += fmt::format("text {}\t{}\n", i * 7919 % 2003, i % 2);
  const auto whole = gzip(rows);
  REQUIRE(read_text("t.gz", whole).rows.size() == 2000);
  for (const auto size : {whole.size() - 1, whole.size() - 8, whole.size() / 2, std::size_t{12}, std::size_t{3}})
    CHECK_THAT(refusal("t.gz", whole.substr(0, size)), ContainsSubstring("unpacked as gzip"));
  for (const auto at : {whole.size() / 3, whole.size() / 2, whole.size() - 6}) {  // the last: in the checksum
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    CHECK_THAT(refusal("t.gz", damaged), ContainsSubstring("unpacked as gzip"));
  }
  CHECK_THAT(refusal("t.gz", whole + "more"), ContainsSubstring("follows its end"));
}

TEST_CASE("ratings become classes, and those between the classes are left out and counted", "[reviews]") {
  auto config = amazon(0.5);
  config.rating = {.positive_from = 4, .negative_to = 2};
  std::string content;
  for (const auto* stars : {"5.0", "4.0", "4", "3.0", "3.999", "2.001", "2.0", "1", "-1e300"})
    content += review(R"("Fine.\nReally \u00e9 \ud83d\ude00 \"fine\".")", stars);
  const std::string text = " Fine.\nReally \u00e9 \U0001F600 \"fine\".";
  const auto table = read_text("t.json", content, config);
  Texts expected;
  for (const int line : {1, 2, 3}) expected.push_back(fmt::format("{} positive{}", line, text));
  for (const int line : {7, 8, 9}) expected.push_back(fmt::format("{} negative{}", line, text));
  CHECK(rows_of(table) == expected);
  CHECK(table.left_out == 3);
  CHECK(table.malformed.empty());
  CHECK_THAT(refusal("t.json", review("\"a\"", "3.0"), config), Mentions(": all 1 ratings|data."));
  // The description of the splits has the same counts.
  const TemporaryFolder folder;
  std::string many = "broken\n";
  for (int i = 0; i < 50; ++i) many += review(fmt::format("\"review {}\"", i), fmt::format("{}.0", 1 + i % 5));
  config.path = folder.write("t.json", many).string();
  const auto description = load_labelled_splits(config, true).description.at("train");
  for (const auto& [key, count] : {std::pair{"rows", 40}, {"left_out", 10}, {"malformed", 1}})
    CHECK(description.at(key) == count);
  config.rating.negative_to.reset();
  CHECK(rows_of(read_text("t.json", content, config)).at(5) == "6 negative" + text);
  CHECK(read_text("t.json", content, config).left_out == 0);
  config.corpus = "imdb";
  CHECK_THAT(message_of(ExitCode::usage, [&] { load_labelled_splits(config, true); }), Mentions("positive_from:|imdb"));
}

TEST_CASE("a rating outside the config's range is malformed", "[reviews]") {
  auto config = amazon(1);
  config.rating = {.positive_from = 4, .negative_to = 2, .lowest = 1, .highest = 5};
  std::string content;
  for (const auto* stars : {"5", "5.5", "1", "0.5", "-3", "9"}) content += review("\"a\"", stars);
  const auto table = read_text("t.json", content, config);
  CHECK(rows_of(table) == Texts{"1 positive a", "3 negative a"});
  check_malformed(table, {"2 the rating|5.5|data.rating.highest 5", "4 the rating|0.5|data.rating.lowest 1",
                          "5 the rating|-3|data.rating.lowest 1", "6 the rating|9|data.rating.highest 5"});
  config.rating.lowest.reset();
  CHECK(rows_of(read_text("t.json", content, config)).size() == 4);
  config.malformed_limit = 0;
  CHECK_THAT(refusal("t.json", content, config), ContainsSubstring(":2: the rating 5.5"));
}

TEST_CASE("a rating that is no number is malformed in every format", "[reviews]") {
  auto config = tolerant();
  config.rating.positive_from = 7;
  const std::string why = "2 the label 'good'|data.rating";
  check_malformed(read_text("t.csv", "text,label\na,good\nb,9\n", config), {why});
  check_malformed(read_text("t.tsv", "a\t9\nb\tgood\n", config), {why});
  const auto row = [](const std::string& label) { return R"({"text": "a", "label": )" + label + "}\n"; };
  const auto table = read_text(
      "t.jsonl", row("9") + row("\"8.0\"") + row("true") + row("\"inf\"") + row("\"nan\"") + row("\"9 \""), config);
  CHECK(rows_of(table) == Texts{"1 positive a", "2 positive a", "6 positive a"});
  CHECK(malformed_of(table).size() == 3);
  config.malformed_limit = 0;
  CHECK_THAT(refusal("t.tsv", "a\t9\nb\t9,0\n", config), ContainsSubstring(":2: the label '9,0'"));
  // One low rating at the start of a table is no header.
  CHECK(read_text("t.tsv", "a\t1\nb\t9\nc\t9\nd\t9\ne\t9\n", config).rows.size() == 5);
}

TEST_CASE("files that are no tables are refused with any name", "[reviews]") {
  const std::string nuls(10'000, '\0'), utf16("\xff\xfet\0e\0x\0t\0\t\0l\0\n\0", 16);
  const auto [name, content, expected] = GENERATE_COPY(table<std::string, std::string, std::string>({
      {"t.csv", nuls, ":1: NUL bytes"},
      {"t.tsv", nuls, ":1: NUL bytes"},
      {"t.jsonl", nuls, ":1:|NUL bytes|(1 of 1"},
      {"t.tsv", utf16, "NUL bytes"},
      {"t.csv", "text,label\ncaf\xe9,good\n", ":2:|not valid UTF-8"},
  }));
  CHECK_THAT(refusal(name, content), Mentions(expected));
  check_malformed(read_text("t.csv", std::string("text,label\na,b\nc\0d,e\nf,g\0\n", 26), tolerant()),
                  {"3 the text|NUL", "4 the label|NUL"});
}

TEST_CASE("a review of a million bytes is read and encoded, with or without spaces", "[reviews]") {
  const std::string piece = GENERATE("x", "x ", "\u00e9", "'", "a'");
  std::string text;
  while (text.size() < (1 << 20)) text += piece;
  const TemporaryFolder folder;
  auto config = amazon();
  config.path = folder.write("t.json", review("\"" + text + "\"", "5.0") + review("\"short\"", "1.0")).string();
  config.validation_path = config.path;
  auto splits = load_labelled_splits(config, true);
  CHECK(splits[Split::train].at(0).text == text);
  CHECK_FALSE(encode_splits(std::move(splits), config, Codec{})[Split::train].at(0).ids.empty());
}

TEST_CASE("if the training table has a header, other tables need the same names", "[reviews]") {
  const TemporaryFolder folder;
  LabelledDataConfig config;
  config.path = folder.write("train.csv", "text,label\na,good\nb,bad\n").string();
  config.validation_path = folder.write("dev.csv", "label,text\ngood,c\n").string();
  const auto other = folder.write("other.csv", "a,good\nb,bad\n").string();
  for (auto* path : {&config.validation_path, &config.test_path, &config.extra_path}) {
    const auto before = std::exchange(*path, other);
    CHECK_THAT(message_of(ExitCode::data, [&] { load_labelled_splits(config, true); }),
               Mentions("other.csv:1:|'text'|'a', 'good'"));
    *path = before;
  }
  config.test_path = folder.write("test.jsonl", "{\"text\": \"d\", \"label\": \"good\"}\n").string();
  const auto splits = load_labelled_splits(config, true);
  CHECK(splits.description.at("train").at("header") == true);
  CHECK(splits[Split::validation].at(0).text == "c");
  CHECK(splits[Split::test].at(0).text == "d");
  CHECK_FALSE(splits.description.at("test").contains("header"));
  config.path = config.validation_path = other;  // it has no header, so the others need none
  CHECK(load_labelled_splits(config, true).description.at("train").at("header") == false);
}

}  // namespace metaformer::test_labelled_table
