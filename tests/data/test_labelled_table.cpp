#include <fmt/format.h>

#include "base/digest.h"
#include "base/random.h"
#include "base/rows.h"
#include "data/data_support.h"

namespace metaformer {

namespace {

std::string random_field(const Rng& rng, std::uint64_t index, const Texts& pieces) {
  std::string field = "x";  // never blank
  const auto length = rng.below(100 * index, 12);
  for (std::uint64_t i = 1; i <= length; ++i) field += pieces[rng.below(100 * index + i, pieces.size())];
  return field;
}

// A field as RFC 4180 has it: quoted where it must be, and where `quoted`.
std::string csv_field(const std::string& field, bool quoted) {
  if (!quoted && field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string written = "\"";
  for (const char c : field) written += c == '"' ? "\"\"" : std::string(1, c);
  return written + "\"";
}

}  // namespace

TEST_CASE("random fields come back from CSV, with the lines where their rows start", "[table]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(1, 20)));
  const std::string ending = GENERATE(as<std::string>{}, "\n", "\r\n");
  const Texts pieces = {"\"", "\"\"", ",", "\n", "\r\n", "\t", " ", "a", "é", "自", "\U0001F600", "'", "\\", ";"};
  const Rng rng(seed, RandomPurpose::sampling);
  std::string content = "label,text" + ending;
  Texts expected;
  std::int64_t line = 2;
  for (std::uint64_t row = 0; row < 40; ++row) {
    const auto text = random_field(rng, 2 * row, pieces) + " ";
    const auto label = random_field(rng, 2 * row + 1, pieces) + "x";
    expected.push_back(fmt::format("{} {} {}", line, label, text));
    const bool quoted = rng.below(1'000'000 + row, 2) == 0;
    const auto written = csv_field(label, quoted) + "," + csv_field(text, quoted) + (row == 39 ? "" : ending);
    line += std::count(written.begin(), written.end(), '\n');
    content += written;
  }
  const auto table = read_text("t.csv", content);
  CHECK(rows_of(table) == expected);
  CHECK(table.has_header);
  CHECK(table.sha256 == sha256(content));
}

TEST_CASE("random fields come back from TSV, where quotes mean nothing", "[table]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(1, 20)));
  const std::string ending = GENERATE(as<std::string>{}, "\n", "\r\n");
  const Texts pieces = {"\"", ",", " ", "a", "é", "自", "'", "\\"};
  const Rng rng(seed, RandomPurpose::sampling);
  std::string content;
  Texts expected;
  for (std::uint64_t row = 0; row < 40; ++row) {
    const auto text = random_field(rng, 2 * row, pieces), label = random_field(rng, 2 * row + 1, pieces) + "x";
    content += text + "\t7\t" + label + (row == 39 ? "" : ending);
    expected.push_back(fmt::format("{} {} {}", row + 1, label, text));
  }
  CHECK(rows_of(read_text("t.tsv", content, columns("1", "3"))) == expected);
}

TEST_CASE("the format is the file's ending unless the config names it", "[table]") {
  const Texts comma_rows = {"1 b a"};
  CHECK(rows_of(read_text("t.csv", "a,b\n")) == comma_rows);
  CHECK(rows_of(read_text("t.CSV", "a,b\n")) == comma_rows);
  CHECK(rows_of(read_text("t.txt", "a\tb\n")) == comma_rows);
  CHECK(rows_of(read_text("csv", "a\tb\n")) == comma_rows);
  CHECK(rows_of(read_text("t.tsv", "a,b\n", of_format(TableFormat::csv))) == comma_rows);
  CHECK(rows_of(read_text("t.csv", "a\tb\n", of_format(TableFormat::tsv))) == comma_rows);
}

TEST_CASE("columns go by name where there is a header, else by number", "[table]") {
  const auto read = [](const std::string& content, const LabelledDataConfig& config = {}) {
    const auto table = read_text("t.csv", content, config);
    return std::pair(table.has_header, rows_of(table));
  };
  CHECK(read("id,label,text\n1,good,fine film\n") == std::pair(true, Texts{"2 good fine film"}));
  CHECK(read("\"label\", text \n good ,fine film\n") == std::pair(true, Texts{"2 good fine film"}));
  CHECK(read("fine film,good\nbad film,bad\n") == std::pair(false, Texts{"1 good fine film", "2 bad bad film"}));
  CHECK(read("good,1,fine film\n", columns("3", "1")) == std::pair(false, Texts{"1 good fine film"}));
  CHECK(read("text,label\n", columns("1", "2")) == std::pair(false, Texts{"1 label text"}));
  CHECK(read("class,review\ngood,fine film\n", columns("review", "class")) ==
        std::pair(true, Texts{"2 good fine film"}));
  CHECK(read("class,review\ngood,fine film\n", columns("2", "class")) == std::pair(true, Texts{"2 good fine film"}));
}

TEST_CASE("a header that nobody named is not taken for a row", "[table]") {
  const std::string rows = "fine film,good\nbad film,bad\nlong film,bad\nshort film,good\nold film,good\n";
  for (const std::string header : {"review,sentiment\n", "Text,Label\n"}) {
    CHECK_THAT(refusal("t.csv", header + rows),
               ContainsSubstring(":1: looks like a header: no other row has the label"));
    CHECK_THAT(refusal("t.csv", header + rows, columns("1", "2")), ContainsSubstring("looks like a header"));
    auto config = columns("1", "2");
    config.header = TableHeader::present;
    CHECK(read_text("t.csv", header + rows, config).rows.size() == 5);
    config.header = TableHeader::absent;
    CHECK(read_text("t.csv", header + rows, config).rows.size() == 6);
  }
  CHECK(read_text("t.csv", rows).rows.size() == 5);
  // Several rare labels are rare labels.
  CHECK(read_text("t.csv", "odd film,odd\n" + rows + "rare film,rare\n").rows.size() == 7);
  LabelledDataConfig absent;
  absent.header = TableHeader::absent;
  CHECK(read_text("t.csv", "text,label\n" + rows, absent).rows.size() == 6);
}

TEST_CASE("a column that is not there is named, with those that are", "[table]") {
  CHECK(refusal("t.csv", "review,class\na,b\n", columns("reviw", "class")) ==
        ":1: no column 'reviw' in the first row, which has 'review', 'class'; did you mean 'review'?");
  CHECK(refusal("t.csv", "text,class\na,b\n", columns("text", "sentiment")) ==
        ":1: no column 'sentiment' in the first row, which has 'text', 'class'");
  // One of the default names alone is a header whose other column is called differently, not a row.
  CHECK(refusal("t.csv", "sentence,label\na,b\n") ==
        ":1: no column 'text' in the first row, which has 'sentence', 'label'");
  const TemporaryFolder folder;
  const auto path = folder.write("t.csv", "a,b\n");
  CHECK(failure([&] { read_labelled_table(path, columns("0", "1")); }).first == ExitCode::usage);
  CHECK(failure([&] { read_labelled_table(path, columns("2", "2")); }).first == ExitCode::usage);
}

TEST_CASE("another delimiter is named where it leaves one column", "[table]") {
  const auto [name, content, delimiter] = GENERATE(table<std::string, std::string, std::string>({
      {"t.csv", "text;label\na;b\n", "';'"},
      {"t.csv", "good film;1\nbad film;0\n", "';'"},
      {"t.csv", "text\tlabel\na\tb\n", "a tab"},
      {"t.tsv", "text,label\na,b\n", "','"},
      {"t.tsv", "text|label\na|b\n", "'|'"},
  }));
  const auto message = refusal(name, content);
  CHECK_THAT(message, ContainsSubstring(":1: one column only, where text and label need two; " + delimiter +
                                        " looks like its delimiter"));
  CHECK_THAT(refusal("t.csv", "words\nmore\n"), ContainsSubstring("need two") && !ContainsSubstring("delimiter"));
}

static Table read_texts(const std::string& content, TableHeader header = TableHeader::automatic) {
  auto columns = columns_of(LabelledDataConfig());
  columns.header = header;
  columns.only_first = true;
  return read_table(content, "t.csv", TableFormat::csv, columns);
}

TEST_CASE("a header that texts must have is not taken for a text", "[table]") {
  CHECK(rows_of(read_texts("id,text\n1,a\n", TableHeader::present)) == Texts{"2  a"});
  CHECK(rows_of(read_texts("a,b\nc,d\n")) == Texts{"1  a", "2  c"});
  for (const std::string content : {"id,review\n1,a\n", "a\nb\n", "label,Text\nx,a\n", "id;text\n1;a\n"}) {
    const auto [code, message] = failure([&] { read_texts(content, TableHeader::present); });
    CHECK(code == ExitCode::data);
    CHECK_THAT(message, ContainsSubstring("no column 'text' in the first row, which has") ||
                            ContainsSubstring("looks like its delimiter"));
  }
}

TEST_CASE("texts to classify may have one column, but no header with another delimiter", "[table]") {
  CHECK(rows_of(read_texts("a film; good\n")) == Texts{"1  a film; good"});
  CHECK(rows_of(read_texts("text\na\n")) == Texts{"2  a"});
  for (const std::string content : {"text;label\na;b\n", "id;text\n1;b\n", "a|text|b\n"}) {
    const auto [code, message] = failure([&] { read_texts(content); });
    CHECK(code == ExitCode::data);
    CHECK_THAT(message,
               ContainsSubstring("t.csv:1: one column only; ") && ContainsSubstring("looks like its delimiter"));
  }
}

TEST_CASE("two columns of one name are an error where that name is asked for", "[table]") {
  const std::string content = "text,label,text,note,note\na,b,c,d,e\n";
  CHECK_THAT(refusal("t.csv", content), ContainsSubstring(":1: columns 1 and 3 are both called 'text'"));
  LabelledDataConfig config;
  config.text_field = "3";
  CHECK(rows_of(read_text("t.csv", content, config)) == Texts{"2 b c"});
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
  const auto stray = " a stray quote: quotes enclose a whole field and are doubled inside it";
  const auto table = read_text("t.csv", content, columns("text", "label", 1));
  CHECK(malformed_of(table) == Texts{"4 the row ends before column 2", "5 4 columns, but the first row has 3",
                                     "6 the text is empty", "8 the label is empty", "9 the text is not valid UTF-8",
                                     "10 the label is not valid UTF-8", std::string("14") + stray,
                                     std::string("15") + stray, std::string("18") + stray, std::string("19") + stray,
                                     "21 a quote is opened and never closed"});
  CHECK(rows_of(table) ==
        Texts{"2 good two\nlines", "11 good said \"so\"\n\n", "16 good no note", "20 bad fine", "22 good last"});
}

TEST_CASE("malformed rows of a TSV file", "[table]") {
  const auto table =
      read_text("t.tsv", "text\tlabel\nok\tgood\n\t\nalone\na\tb\tc\n\n \nok\t\r\n", columns("text", "label", 1));
  CHECK(malformed_of(table) == Texts{"3 the text is empty", "4 the row ends before column 2",
                                     "5 3 columns, but the first row has 2", "8 the label is empty"});
  CHECK(rows_of(table) == Texts{"2 good ok"});
}

TEST_CASE("a quote swallows its own row alone, however many there are", "[table]") {
  std::string content = "text,label\n";
  for (int i = 0; i < 20'000; ++i) content += i % 2 == 0 ? "\"open,good\n" : "fine,good\n";
  const auto table = read_text("t.csv", content, columns("text", "label", 1));
  CHECK(table.malformed.size() == 10'000);
  CHECK(table.rows.size() == 10'000);
  CHECK(malformed_of(read_text("t.csv", "a,b\n\"open", columns("1", "2", 1))) ==
        Texts{"2 a quote is opened and never closed"});
  CHECK(rows_of(read_text("t.csv", "a,b\nfine,\"go\"od\nfine,good\n", columns("1", "2", 1))) ==
        Texts{"1 b a", "3 good fine"});  // the field before the quote is forgotten
  CHECK(refusal("t.csv", "\"a,b\nc,d\n") ==
        ":1: a quote is opened and never closed; the first row must name the columns");
}

TEST_CASE("a fraction of malformed rows above the limit is an error that names the first", "[table]") {
  const std::string content = "text,label\na,b\n,b\na,b\n,b\na,b\n";
  CHECK(refusal("t.csv", content) ==
        ":3: the text is empty (2 of 5 rows are malformed; data.malformed_limit allows 0)");
  CHECK(refusal("t.csv", content, columns("text", "label", 0.39)) ==
        ":3: the text is empty (2 of 5 rows are malformed; data.malformed_limit allows 0.39)");
  CHECK(read_text("t.csv", content, columns("text", "label", 0.4)).malformed.size() == 2);
  std::string percent = "text,label\n";
  for (int i = 0; i < 100; ++i) percent += i < 29 ? ",b\n" : "a,b\n";
  CHECK(read_text("t.csv", percent, columns("text", "label", 0.29)).malformed.size() == 29);  // 0.29 * 100 < 29
}

TEST_CASE("byte order marks and kinds of line ends are no part of a table", "[table]") {
  const std::string mark = "\xEF\xBB\xBF";
  const Texts expected = {"2 good fine", "3 bad poor"};
  for (const std::string ending : {"\n", "\r\n", "\r"}) {
    const auto content = mark + "text,label" + ending + "fine,good" + ending + "poor,bad" + ending;
    const auto table = read_text("t.csv", content);
    CHECK(rows_of(table) == expected);
    CHECK(table.has_header);
    CHECK(table.sha256 == sha256(content));
  }
  CHECK(rows_of(read_text("t.tsv", mark + "text\tlabel\r\nfine\tgood\r\npoor\tbad\r")) == expected);
  CHECK(rows_of(read_text("t.csv", mark + "\"text\",\"label\"\nfine,good\npoor,bad")) == expected);
}

TEST_CASE("a text or a line above the limit is malformed, with its line", "[table]") {
  const std::string fits(longest_table_text - 100, 'x'), half(longest_table_text / 2 + 1, 'y');
  const std::string too_long(longest_delimited_line + 1, 'z');
  for (const std::string name : {"t.csv", "t.tsv"}) {
    const std::string comma = name == "t.csv" ? "," : "\t";
    const auto rows = "text" + comma + "label\n" + fits + comma + "good\n" + too_long + "\nfine" + comma + "bad\n";
    const auto why = fmt::format("the line has {} bytes; at most {} make sense",
                                 too_long.size() + (name == "t.csv" ? 1 : 0), longest_delimited_line);
    CHECK(refusal(name, rows) == ":3: " + why + " (1 of 3 rows are malformed; data.malformed_limit allows 0)");
    const auto table = read_text(name, rows, columns("text", "label", 0.5));
    CHECK(table.rows.size() == 2);
    CHECK(malformed_of(table) == Texts{"3 " + why});
    CHECK_THAT(refusal(name, too_long), ContainsSubstring(":1: the line has "));
  }
  // A quoted text may have several lines.
  CHECK_THAT(refusal("t.csv", "text,label\n\"" + half + "\n" + half + "\",good\n"),
             ContainsSubstring(fmt::format(":2: the text has {} bytes; at most {} make sense", 2 * half.size() + 1,
                                           longest_table_text)));
}

TEST_CASE("tables without rows are refused", "[table]") {
  for (const std::string content : {"", "\n\n", "\xEF\xBB\xBF", "text,label\n", "text,label\n\r\n  \n"})
    CHECK(refusal("t.csv", content) == ": the table has no rows");
  CHECK(refusal("t.csv", "text,label\n,\n", columns("text", "label", 1)) == ": the table has no rows");
  const TemporaryFolder folder;
  const auto [code, message] = failure([&] { read_labelled_table(folder / "missing.csv", {}); });
  CHECK(code == ExitCode::data);
  CHECK_THAT(message, ContainsSubstring("missing.csv: no such file"));
}

}  // namespace metaformer
