// The first look at a user's data: formats, columns, classes, lengths, and refusals.

#include <algorithm>

#include "base/random.h"
#include "data/data_support.h"
#include "data/first_look.h"
#include "data/pairs.h"

namespace metaformer::test_first_look {

namespace {

const GivenColumns none;

// The choice for a table, as "FORMAT HEADER FIRST SECOND".
std::string str(const TableGuess& guess) {
  return fmt::format("{} {} {} {}", to_string(guess.format), to_string(guess.header), guess.first, guess.second);
}

std::string labelled(const std::string& name, const std::string& content, const GivenColumns& given = none) {
  return str(guess_labelled_table(name, content, given));
}

std::string pairs(const std::string& name, const std::string& content, const GivenColumns& given = none) {
  return str(guess_pair_table(name, content, given));
}

// Twelve rows of a text and a label, without header.
std::string rows(const std::string& delimiter = ",", bool label_first = false) {
  std::string table;
  for (int i = 0; i < 12; ++i) {
    const auto text = fmt::format("a longer text number {}", i), label = std::string(i % 2 == 0 ? "spam" : "ham");
    table += (label_first ? label + delimiter + text : text + delimiter + label) + "\n";
  }
  return table;
}

std::string numbered_lines(const std::string& words, int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += fmt::format("{} {}\n", words, i);
  return lines;
}

TableLook look_at(const std::string& content, const GivenColumns& given = none,
                  std::uintmax_t most_bytes = first_look_bytes) {
  const TemporaryFolder folder;
  return look_at_table(folder.write("t.csv", content), given, most_bytes);
}

std::string table_refusal(const std::string& content, const GivenColumns& given = none) {
  const auto message = message_of(ExitCode::data, [&] { look_at(content, given); });
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

TextLook look_at_file(const std::string& name, const std::string& content, std::uintmax_t most = first_look_bytes) {
  const TemporaryFolder folder;
  return look_at_text(folder.write(name, content), {}, most);
}

}  // namespace

TEST_CASE("columns of text and label are found by name, or by their values", "[first_look]") {
  CHECK(labelled("t.csv", "text,label\n" + rows()) == "auto auto text label");
  CHECK(labelled("t.csv", "Review, Sentiment\n" + rows()) == "auto auto Review Sentiment");
  CHECK(labelled("t.csv", "v2,v1\n" + rows()) == "auto auto v2 v1");
  CHECK(labelled("t.csv", rows()) == "auto absent 1 2");
  CHECK(labelled("t.tsv", rows("\t", true)) == "auto absent 2 1");
  CHECK(labelled("t.csv", "text,text\n" + rows()) == "auto present 1 2");
  CHECK(labelled("t.csv", "1,2\n" + rows()) == "auto absent 1 2");
  // Identifiers, dates and a constant are no labels.
  std::string table = "id,body,team,year\n";
  for (int i = 0; i < 12; ++i) table += fmt::format("{},please help me with item {},{},2024\n", i, i, i % 3);
  CHECK(labelled("t.csv", table) == "auto auto body team");
}

TEST_CASE("a column that the user names is taken, and the other one is found", "[first_look]") {
  const auto table = "text,title,label\n" + std::string("a long text,short,x\nsome long text,other,y\nlong,third,x\n");
  CHECK(labelled("t.csv", table, {.first = "title", .second = {}}) == "auto auto title label");
  CHECK(labelled("t.csv", table, {.first = {}, .second = "title"}) == "auto auto text title");
  CHECK(labelled("t.csv", table, {.first = "2", .second = "3"}) == "auto present 2 3");
  CHECK(labelled("t.csv", table, {.first = "absent", .second = {}}) == "auto auto absent label");
}

TEST_CASE("the format follows from the first line where the name does not say it", "[first_look]") {
  const std::string json = "\n{\"text\": \"a\", \"label\": 1}\n";
  CHECK(labelled("t.csv", "text\tlabel\n" + rows("\t")) == "tsv auto text label");
  CHECK(labelled("t.txt", "text,label\n" + rows()) == "csv auto text label");
  CHECK(labelled("t", "text\tlabel\n" + rows("\t")) == "auto auto text label");
  CHECK(labelled("t.txt", json) == "jsonl auto text label");
  CHECK(labelled("t.jsonl.gz", json) == "auto auto text label");
}

TEST_CASE("members of JSON lines are found by name and type", "[first_look]") {
  std::string table;
  for (int i = 0; i < 12; ++i)
    table +=
        fmt::format(R"({{"id": "{}", "helpful": [0, 1], "reviewText": "a text {}", "overall": {}.0, "summary": "s"}})"
                    "\n",
                    i, i, i % 5 + 1);
  CHECK(labelled("t.json", table) == "auto auto reviewText overall");
  CHECK(labelled("t.json", table, {.first = "summary", .second = "overall"}) == "auto auto summary overall");
}

TEST_CASE("JSON that is no JSON lines is refused with a command that converts it", "[first_look]") {
  const auto refusal = [](const std::string& content) {
    return message_of(ExitCode::data, [&] { labelled("t.json", content); });
  };
  CHECK_THAT(refusal("[{\"text\": \"a\"}]\n"), Mentions("t.json: |list|jq -c '.[]' t.json"));
  CHECK_THAT(refusal("{\n  \"text\": \"a\"\n}\n"), Mentions("t.json: |jq -c '.' t.json"));
}

TEST_CASE("columns of pairs are found by name, or are the first two with texts", "[first_look]") {
  std::string table;
  for (int i = 0; i < 12; ++i) table += fmt::format("{}\tein Hund {}\tA\ta dog {}\n", i, i, i);
  CHECK(pairs("t.tsv", table) == "auto absent 2 4");
  CHECK(pairs("t.tsv", "n\tde\tlicence\ten\n" + table) == "auto auto de en");
  CHECK(pairs("t.tsv", "n\tanswer\tlicence\tquestion\n" + table) == "auto auto question answer");
  CHECK(pairs("t.tsv", table, {.first = "4", .second = {}}) == "auto absent 4 2");
  CHECK_THAT(message_of(ExitCode::data, [] { pairs("t.csv", "1,2\n3,4\n5,6\n"); }), Mentions("--source|--target"));
}

TEST_CASE("a look at a table counts classes, lengths and copies", "[first_look]") {
  const auto look = look_at("text,label\n" + rows() + "a longer text number 0,ham\na longer text number 1,ham\n");
  CHECK(look.is_whole);
  CHECK(look.rows == 14);
  CHECK(look.classes == std::vector<std::pair<std::string, std::int64_t>>{{"ham", 8}, {"spam", 6}});
  CHECK(look.lengths.words.median == 5);
  CHECK(look.lengths.characters.longest == 23);
  CHECK(look.words == 16);
  CHECK(look.copies == 2);
  CHECK(look.contradictions == 1);
  CHECK_FALSE(look.rating);
  REQUIRE(look.warnings.size() == 2);
  CHECK_THAT(look.warnings[0], Mentions("2 of 2 classes|10 rows|'ham'|'spam'"));
  CHECK_THAT(look.warnings[1], Mentions("1 texts|another label"));
}

TEST_CASE("labels that are no classes are refused", "[first_look]") {
  std::string distinct = "text,label\n", numbers = distinct, fractions = distinct, one = distinct;
  for (int i = 0; i < 400; ++i) {
    distinct += fmt::format("a text {},name{}\n", i, i % 300);
    numbers += fmt::format("a text {},{}\n", i, i % 150);
    fractions += fmt::format("a text {},{}\n", i, i % 25 / 4.0);
    one += fmt::format("a text {},x\n", i);
  }
  CHECK_THAT(table_refusal(distinct), Mentions("'label'|300 distinct labels in 400 rows|--label"));
  CHECK_THAT(table_refusal(numbers), Mentions("150 distinct numbers|regression|--label"));
  CHECK_THAT(table_refusal(fractions), Mentions("25 distinct numbers|regression"));
  CHECK_THAT(table_refusal(one), Mentions("every row has the label 'x'|two classes|--label"));
}

TEST_CASE("tables that cannot be read are refused", "[first_look]") {
  CHECK_THAT(table_refusal(""), Mentions("no rows"));
  CHECK_THAT(table_refusal("text;label\na;b\n"), Mentions("one column|';'"));
  CHECK_THAT(table_refusal("text,label\n" + rows(), {.first = "body", .second = {}}), Mentions("no column 'body'"));
  CHECK_THAT(table_refusal("text,label\n" + rows() + "only a text\n,x\n"), Mentions("2 of 14 rows are malformed"));
  CHECK_THAT(table_refusal("text,label\na,x\nb,y\n"), Mentions("2 rows are too few|validation"));
  const TemporaryFolder folder;
  CHECK_THAT(message_of(ExitCode::data, [&] { look_at_table(folder / "t.csv", none); }),
             Mentions("t.csv|no such file"));
  CHECK_THAT(message_of(ExitCode::usage, [] { look_at_table("/dev/null", none); }), Mentions("/dev/null|only once"));
}

TEST_CASE("a few malformed rows are counted, and tolerated by the config", "[first_look]") {
  std::string table = "text,label\n";
  for (int i = 0; i < 8; ++i) table += rows();
  const auto look = look_at(table + "only a text\n");
  CHECK(look.data.malformed_limit > 1.0 / 97);
  CHECK(look.data.malformed_limit < 0.02);
  const TemporaryFolder folder;
  auto data = look.data;
  CHECK(read_labelled_table(folder.write("t.csv", table + "only a text\n"), data).malformed.size() == 1);
}

TEST_CASE("numbers with few values may be ratings, which make two classes", "[first_look]") {
  const auto [count, column, positive_from, negative_to, is_named] =
      GENERATE(table<int, std::string, double, double, bool>(
          {{5, "stars", 4, 2, true}, {10, "label", 6, 5, false}, {3, "rating", 3, 1, true}}));
  std::string table = "text," + column + "\n";
  for (int i = 0; i < 60; ++i) table += fmt::format("a text {},{}\n", i, i % count + 1);
  const auto look = look_at(table);
  REQUIRE(look.rating);
  CHECK(look.rating->positive_from == positive_from);
  CHECK(look.rating->negative_to == negative_to);
  CHECK(look.is_named_rating == is_named);
  CHECK(std::ranges::any_of(look.warnings, [](const auto& each) { return each.find("data.rating") != each.npos; }) ==
        is_named);
}

TEST_CASE("the validation fraction leaves a row of every class for training", "[first_look]") {
  const Rng rng(static_cast<std::uint64_t>(GENERATE(range(1, 25))), RandomPurpose::sampling);
  const auto count = 8 + rng.below(0, 30);
  std::string content = "text,label\n";
  for (std::uint64_t i = 0; i < count; ++i)
    content += fmt::format("a text {},{}\n", rng.below(2 * i + 1, 1000), rng.below(2 * i + 2, 12) % 5);
  const TemporaryFolder folder;
  const auto path = folder.write("t.csv", content);
  const auto [code, message] = failure([&] { look_at_table(path, none); });
  if (code != ExitCode::ok) {
    CHECK(code == ExitCode::data);
    return;
  }
  const auto data = look_at_table(path, none).data;
  const auto splits = load_labelled_splits(data, /*offline=*/true);
  CHECK(encode_splits(splits, data, {})[Split::validation].size() == splits[Split::validation].size());
}

TEST_CASE("of a large table only the beginning is read, and the rows are estimated", "[first_look]") {
  std::string table = "text,label\n";
  for (int i = 0; i < 2000; ++i) table += fmt::format("a text with the number {},{}\n", i, i % 3);
  const auto whole = look_at(table), part = look_at(table, none, table.size() / 10);
  CHECK_FALSE(part.is_whole);
  CHECK(part.rows > 0.8 * whole.rows);
  CHECK(part.rows < 1.2 * whole.rows);
  CHECK(part.classes.size() == 3);
  CHECK(part.classes.front().second < 300);
}

TEST_CASE("a look at a text counts bytes, characters, scripts and documents", "[first_look]") {
  const auto look = look_at_file("book.txt", "\xEF\xBB\xBF'Stra\u00DFe'\n\u0436\n");
  CHECK(look.bytes == 13);
  CHECK(look.all_characters == 11);
  CHECK(look.characters.distinct() == 9);
  CHECK(look.characters.scripts().front().first == "Latin");
  CHECK(look.first_word == "Stra\u00DFe");
  CHECK(look.is_one_text);
  CHECK(look.is_utf8);
  CHECK(look.data.format == TableFormat::automatic);
  CHECK(look.warnings.empty());
}

TEST_CASE("the member of JSON lines is `text`, or the one with the longest strings", "[first_look]") {
  const std::string posts =
      "{\"id\": \"a\", \"body\": \"a longer text\", \"n\": 5}\n{\"id\": \"b\", \"body\": \"more\"}\n";
  const auto by_length = look_at_file("posts.txt", posts);
  CHECK(by_length.data.format == TableFormat::jsonl);
  CHECK(by_length.data.text_field == "body");
  CHECK(by_length.documents == 2);
  CHECK(by_length.has_json_lines);
  CHECK(look_at_file("posts.jsonl", "{\"summary\": \"much longer than it\", \"text\": \"it\"}\n").data.text_field ==
        "text");
  CHECK_THAT(message_of(ExitCode::data, [] { look_at_file("n.jsonl", "{\"n\": 1}\n"); }), Mentions("n.jsonl|'n'"));
  const TemporaryFolder folder;
  CHECK(look_at_text(folder.write("posts.jsonl", posts), "id").bytes == 3);
  CHECK_THAT(message_of(ExitCode::usage, [&] { look_at_text(folder.write("a.txt", "a"), "id"); }),
             Mentions("--text id"));
}

TEST_CASE("bytes that are not UTF-8, NUL bytes and tables are named in warnings", "[first_look]") {
  const auto latin = look_at_file("a.txt",
                                  "Stra\xDF"
                                  "e, a text");
  CHECK_FALSE(latin.is_utf8);
  REQUIRE(latin.warnings.size() == 1);
  CHECK_THAT(latin.warnings[0], Mentions("a.txt|0xdf at offset 4|iconv"));
  const auto binary = look_at_file("a.txt", std::string("a\0b", 3));
  REQUIRE(binary.warnings.size() == 1);
  CHECK_THAT(binary.warnings[0], Mentions("NUL"));
  const auto table = look_at_file("a.csv", "text,label\n");
  REQUIRE(table.warnings.size() == 1);
  CHECK_THAT(table.warnings[0], Mentions("a.csv|init table"));
}

TEST_CASE("all documents of a folder are looked at, compressed ones too", "[first_look]") {
  const TemporaryFolder folder;
  folder.write("books/a.txt", "one text");
  folder.write("books/b.txt.gz", gzip("and another"));
  folder.write("books/c.jsonl", "{\"body\": \"third\"}\n{\"body\": \"\"}\nno object\n");
  const auto malformed = [&] { look_at_text(folder / "books/", {}); };
  CHECK_THAT(message_of(ExitCode::data, malformed), Mentions("c.jsonl:3"));
  folder.write("books/c.jsonl", "{\"body\": \"third\"}\n");
  const auto look = look_at_text(folder / "books/", {});
  CHECK(look.name == "books");
  CHECK(look.documents == 3);
  CHECK_FALSE(look.is_one_text);
  CHECK(look.data.text_field == "body");
  CHECK(*look.data.path == (folder / "books").string());
}

TEST_CASE("of a large text only the beginning is read, and its size is estimated", "[first_look]") {
  std::string text, lines;
  for (int i = 0; i < 200'000; ++i) {
    text += fmt::format("The number {} is \u00E4.\n", i);
    lines += fmt::format("{{\"text\": \"the number {}\"}}\n", i);
  }
  for (const auto& [name, content] : {std::pair("a.txt", &text), {"a.jsonl", &lines}}) {
    const auto whole = look_at_file(name, *content), part = look_at_file(name, *content, 1 << 20);
    CHECK(whole.is_whole);
    CHECK_FALSE(part.is_whole);
    CHECK(part.is_utf8);
    CHECK(part.characters.characters() < whole.characters.characters() * 2 / 3);
    for (const auto& [estimate, count] : {std::pair(part.bytes, whole.bytes),
                                          {part.all_characters, whole.all_characters},
                                          {part.documents, whole.documents}})
      CHECK(std::abs(estimate / count - 1) < 0.1);
  }
}

TEST_CASE("a look at pairs counts them, in a table or in two files of lines", "[first_look]") {
  const TemporaryFolder folder;
  const auto sources = folder.write("a.de", numbered_lines("ein Hund", 40)),
             targets = folder.write("a.en", numbered_lines("a big dog", 40));
  const auto lines = look_at_pairs(sources, targets, none);
  CHECK(lines.pairs == 40);
  CHECK(lines.source.words.median == 3);
  CHECK(lines.target.words.median == 4);
  CHECK(lines.copies == 0);
  CHECK(load_pair_splits(lines.data, true)[Split::train].size() > 20);
  const auto uneven = folder.write("b.en", numbered_lines("a dog", 41));
  CHECK_THAT(message_of(ExitCode::data, [&] { look_at_pairs(sources, uneven, none); }), Mentions("40 lines|41"));
  CHECK_THAT(message_of(ExitCode::usage, [&] { look_at_pairs(sources, targets, {.first = "1", .second = {}}); }),
             Mentions("--source"));
  CHECK_THAT(message_of(ExitCode::data, [&] { look_at_pairs(sources, {}, none); }), Mentions("a.de|one column"));

  std::string table = "question,answer\n";
  for (int i = 0; i < 40; ++i) table += fmt::format("which number comes after {}?,the number {}\n", i % 30, i);
  const auto look = look_at_pairs(folder.write("t.csv", table), {}, none);
  CHECK(look.pairs == 40);
  CHECK(look.copies == 10);
  CHECK(load_pair_splits(look.data, true)[Split::train].size() > 20);
}

}  // namespace metaformer::test_first_look
