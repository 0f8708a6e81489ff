#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "data/labelled.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace metaformer::test_labelled_dataset {

namespace {

// `row(i)` is a text and its label.
template <class Row>
std::string table_of(int rows, Row row) {
  std::string content = "text\tlabel\n";
  for (int i = 0; i < rows; ++i) {
    const std::pair<std::string, std::string> made = row(i);
    content += made.first + "\t" + made.second + "\n";
  }
  return content;
}

// Texts of 1 ... 9 words with a unique first word, so that a row of ids identifies its text.
std::string table(int rows) {
  return table_of(rows, [](int i) {
    std::string text = "w" + std::to_string(i);
    for (int word = 0; word < i % 9; ++word) text += " filler";
    return std::pair(text, i % 3 == 0 ? "good" : "bad");
  });
}

std::string letter(int i) { return i % 2 ? "a" : "b"; }

struct Example {
  TemporaryFolder folder;
  LabelledDataConfig config;

  explicit Example(const std::string& content) {
    config.path = folder.write("table.tsv", content).string();
    config.validation_fraction = 0.2;
    config.tokenizer = WordTokenizerOptions{.min_count = 1};
  }
  LabelledDataset dataset(std::int64_t context = 16) const { return dataset(BatchOptions{.context = context}); }
  LabelledDataset dataset(const BatchOptions& options) const {
    return {encode_splits(load_labelled_splits(config, true), config, Codec{}), options};
  }
};

using Ids = std::vector<std::int64_t>;

std::vector<Ids> rows_of(const LabelledRows& batch) {
  std::vector<Ids> rows(static_cast<std::size_t>(batch.rows));
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    const bool padding = !batch.segments.empty() && batch.segments[i] < 0;
    if (padding)
      CHECK(batch.ids[i] == 0);
    else
      rows[i / static_cast<std::size_t>(batch.length)].push_back(batch.ids[i]);
  }
  return rows;
}

}  // namespace

TEST_CASE("every epoch is another permutation of the training texts", "[labelled]") {
  const Example example(table(90));
  const auto dataset = example.dataset();
  const auto size = dataset.count(Split::train);
  std::vector<std::vector<Ids>> epochs(4);
  const std::int64_t rows = 7, micro = 2, per_step = rows * micro;
  std::int64_t seen = 0;
  for (std::int64_t step = 0; seen < 3 * size; ++step)
    for (std::int64_t m = 0; m < micro; ++m)
      for (const auto& row : rows_of(dataset.training_rows(5, step, per_step, m * rows, rows)))
        epochs.at(static_cast<std::size_t>(seen++ / size)).push_back(row);
  const std::set first(epochs[0].begin(), epochs[0].end());
  CHECK(static_cast<std::int64_t>(first.size()) == size);
  CHECK(std::set(epochs[1].begin(), epochs[1].end()) == first);
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
  // A step does not depend on earlier calls.
  CHECK(rows_of(example.dataset().training_rows(5, 9, per_step, 0, rows)) ==
        rows_of(dataset.training_rows(5, 9, per_step, 0, rows)));
}

TEST_CASE("a split has every text once with its label, the longest first, cut at the context", "[labelled]") {
  const Example example(table(90));
  const auto dataset = example.dataset();
  CHECK(dataset.count(Split::train) + dataset.count(Split::validation) == 90);
  CHECK(dataset.count(Split::validation) > 5);
  CHECK(dataset.count(Split::test) == 0);
  CHECK(dataset.codec().labels == std::vector<std::string>{"bad", "good"});
  std::set<Ids> seen;
  std::size_t shortest = 100;
  for (std::int64_t first = 0; first < dataset.count(Split::validation); first += 4)
    for (const auto& row : rows_of(dataset.rows(Split::validation, first, 4))) {
      CHECK(row.size() <= shortest);
      shortest = row.size();
      seen.insert(row);
    }
  // First words of held-out texts are unknown, so all texts of a length have the same row.
  CHECK(seen.size() <= 9);
  const auto train = dataset.rows(Split::train, 0, 90);
  const auto rows = rows_of(train);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::vector<std::int32_t> first = {static_cast<std::int32_t>(rows[i][0])};
    const auto number = std::stoi(dataset.codec().tokenizer->decode(first).substr(1));
    CHECK(train.labels[i] == (number % 3 == 0 ? 1 : 0));
    CHECK(rows[i].size() == static_cast<std::size_t>(1 + number % 9));
  }
  // 5 of every 9 texts are cut.
  const auto cut = example.dataset(4);
  CHECK(cut.cut_count() == 50);
  CHECK(cut.rows(Split::train, 0, 90).length == 4);
  CHECK(cut.mean_length() <= 4);
}

TEST_CASE("equal texts are on one side of the split, and the split is always the same", "[labelled]") {
  const Example example(
      table_of(180, [](int i) { return std::pair("text number " + std::to_string(i % 60), letter(i)); }));
  const auto splits = load_labelled_splits(example.config, true), again = load_labelled_splits(example.config, true);
  std::set<std::string> train, validation;
  for (const auto& text : splits[Split::train]) train.insert(text.text);
  for (const auto& text : splits[Split::validation]) validation.insert(text.text);
  for (const auto& text : validation) CHECK_FALSE(train.contains(text));
  CHECK(train.size() + validation.size() == 60);
  REQUIRE(again[Split::validation].size() == splits[Split::validation].size());
  for (std::size_t i = 0; i < again[Split::validation].size(); ++i)
    CHECK(again[Split::validation][i].text == splits[Split::validation][i].text);
}

TEST_CASE("a long text is cut to its head, its tail, or half of each", "[labelled]") {
  const std::vector<std::int32_t> text = {1, 2, 3, 4, 5, 6, 7};
  const auto cut = [&](std::int64_t context, Truncation truncation) {
    auto ids = text;
    CHECK(truncate(ids, context, truncation) == (context < 7));
    return ids;
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(cut(4, Truncation::head) == Ids{1, 2, 3, 4});
  CHECK(cut(4, Truncation::tail) == Ids{4, 5, 6, 7});
  CHECK(cut(4, Truncation::head_and_tail) == Ids{1, 2, 6, 7});
  CHECK(cut(5, Truncation::head_and_tail) == Ids{1, 2, 3, 6, 7});
  CHECK(cut(1, Truncation::head_and_tail) == Ids{1});
  for (const auto truncation : {Truncation::head, Truncation::tail, Truncation::head_and_tail}) {
    CHECK(cut(7, truncation) == text);
    CHECK(cut(100, truncation) == text);
  }
}

TEST_CASE("bucketing has the same texts in the same groups of steps, with much less padding", "[labelled]") {
  const Example example(table(200));
  const std::int64_t rows = 4, bucketing = 8;
  const auto plain = example.dataset(), bucketed = example.dataset(BatchOptions{.context = 16, .bucketing = bucketing});
  double padded = 0, plain_padded = 0;
  std::set<std::int64_t> lengths;
  bool sorted = true;
  for (std::int64_t group = 0; group < 20; ++group) {
    std::multiset<Ids> seen, expected;
    std::int64_t last = 0;
    for (auto step = group * bucketing; step < (group + 1) * bucketing; ++step) {
      const auto batch = bucketed.training_rows(3, step, rows, 0, rows),
                 other = plain.training_rows(3, step, rows, 0, rows);
      for (const auto& row : rows_of(batch)) seen.insert(row);
      for (const auto& row : rows_of(other)) expected.insert(row);
      padded += static_cast<double>(std::count(batch.segments.begin(), batch.segments.end(), -1));
      plain_padded += static_cast<double>(std::count(other.segments.begin(), other.segments.end(), -1));
      sorted = sorted && batch.length >= last;
      last = batch.length;
    }
    CHECK(seen == expected);
  }
  CHECK(padded < plain_padded / 4);
  CHECK_FALSE(sorted);  // steps do not come in order of length
  // A part of a step does not depend on earlier calls.
  const auto part =
      example.dataset(BatchOptions{.context = 16, .bucketing = bucketing}).training_rows(3, 77, rows, 2, 2);
  const auto whole = bucketed.training_rows(3, 77, rows, 0, rows);
  CHECK(rows_of(part)[0] == rows_of(whole)[2]);
  CHECK(rows_of(part)[1] == rows_of(whole)[3]);
  CHECK(part.labels == std::vector<std::int64_t>(whole.labels.begin() + 2, whole.labels.end()));
}

TEST_CASE("noise removes and hides the configured fractions of tokens, other ones in every epoch", "[labelled]") {
  std::string words;
  for (int word = 0; word < 500; ++word) words += "w" + std::to_string(word) + " ";
  const Example example(table_of(40, [&](int i) { return std::pair(words + "end" + std::to_string(i), letter(i)); }));
  const BatchOptions options{.context = 1000, .token_removal = 0.2, .token_unknown = 0.3};
  const auto dataset = example.dataset(options), plain = example.dataset(1000);
  const auto size = dataset.count(Split::train);
  const auto first = rows_of(dataset.training_rows(9, 0, size, 0, size));
  const auto second = rows_of(dataset.training_rows(9, 1, size, 0, size));
  const auto clean = rows_of(plain.training_rows(9, 0, size, 0, size));
  double kept = 0, unknown = 0, all = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    all += static_cast<double>(clean[i].size());
    std::size_t at = 0;  // the remaining tokens keep their order
    for (const auto id : first[i]) {
      ++kept;
      if (id == 0) {
        ++unknown;
        continue;
      }
      while (at < clean[i].size() && clean[i][at] != id) ++at;
      CHECK(at < clean[i].size());
    }
  }
  CHECK(std::abs(kept / all - 0.8) < 0.02);  // 5 standard deviations
  CHECK(std::abs(unknown / all - 0.3) < 0.02);
  CHECK(std::set(first.begin(), first.end()) != std::set(second.begin(), second.end()));
  CHECK(rows_of(example.dataset(options).training_rows(9, 0, size, 0, size)) == first);
  const auto content = table_of(60, [](int i) { return std::pair("w" + std::to_string(i), std::to_string(i % 12)); });
  const auto of_one_word = Example(content).dataset(BatchOptions{.context = 8, .token_removal = 0.9});
  for (std::int64_t step = 0; step < 20; ++step)  // every text keeps a token
    for (const auto& row : rows_of(of_one_word.training_rows(1, step, 4, 0, 4))) CHECK(row.size() == 1);
  CHECK(of_one_word.codec().labels ==
        std::vector<std::string>{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"});  // in numerical order
  // Validation has no noise.
  CHECK(rows_of(dataset.rows(Split::validation, 0, 100)) == rows_of(plain.rows(Split::validation, 0, 100)));
}

TEST_CASE("splits may have their own tables, and extra texts are added to training except for held-out ones",
          "[labelled]") {
  Example example(table(60));
  const auto write = [&](const std::string& name, const std::string& content) {
    return example.folder.write(name, content).string();
  };
  example.config.validation_path = write("dev.tsv", "text\tlabel\nheld out\tbad\nw3\tgood\n");
  example.config.test_path = write("test.csv", "label,text\nbad,tested\ngood,w3\n");
  example.config.extra_path = write("more.jsonl",
                                    "{\"text\": \"new words\", \"label\": \"good\"}\n"
                                    "{\"text\": \"held out\", \"label\": \"good\"}\n"
                                    "{\"text\": \"tested\", \"label\": \"good\"}\n");
  const auto dataset = example.dataset();
  CHECK(dataset.count(Split::train) == 61);
  CHECK(dataset.count(Split::validation) == 2);
  CHECK(dataset.count(Split::test) == 2);
  CHECK(dataset.texts(Split::train).back().ids == dataset.codec().tokenizer->encode("new words"));
  CHECK(dataset.texts(Split::train).back().label == 1);
  CHECK(dataset.description().at("extra").at("rows") == 3);
  CHECK(dataset.description().at("extra").at("copies_of_held_out") == 2);
  // Unusable data are refused with their place.
  write("more.jsonl", "{\"text\": \"new words\", \"label\": \"goood\"}\n");
  CHECK_THROWS_WITH(example.dataset(), Mentions("more.jsonl:1: data.extra_path:|label 'goood'"));
  example.config.extra_path.reset();
  write("test.csv", "label,text\ngood,hello\nugly,hello\n");
  CHECK_THROWS_WITH(example.dataset(), Mentions("test.csv:3:|label 'ugly'"));
  Example unset(table(60));
  unset.config.path.reset();
  CHECK_THROWS_WITH(unset.dataset(), ContainsSubstring("data.path is not set"));
  const auto one_label = table_of(50, [](int i) { return std::pair("t" + std::to_string(i), "same"); });
  CHECK_THROWS_WITH(Example(one_label).dataset(), Mentions("every row|'same'"));
}

}  // namespace metaformer::test_labelled_dataset
