// Tables of a classifier's results.

#include <algorithm>

#include "base/text.h"
#include "support/catch.h"
#include "tasks/class_tables.h"
#include "tasks/classification_task.h"

namespace metaformer::test_class_tables {

namespace {

// Every class has `count` texts, all predicted correctly, but the last of each is predicted to be of the first class.
Evaluation evaluation_of(const std::vector<std::string>& labels, std::int64_t count) {
  const auto classes = std::ssize(labels);
  Evaluation evaluation{.scores = {{"loss", 0.5}}};
  evaluation.confusion.resize(static_cast<std::size_t>(classes * classes));
  for (std::int64_t i = 0; i < classes; ++i) {
    const auto& label = labels[static_cast<std::size_t>(i)];
    const auto correct = i == 0 ? count : count - 1, predicted = i == 0 ? count + classes - 1 : correct;
    evaluation.classes.emplace_back(label, ClassCounts{.texts = count, .predicted = predicted, .correct = correct});
    evaluation.confusion[static_cast<std::size_t>(i * classes + i)] = correct;
    if (i > 0) evaluation.confusion[static_cast<std::size_t>(i * classes)] = 1;
  }
  return evaluation;
}

// The lines of each table: those of a table have the same width.
void check_aligned(const std::vector<std::string>& lines, std::size_t classes) {
  REQUIRE(lines.size() == 2 * (classes + 1));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CAPTURE(lines[i]);
    CHECK(display_width(lines[i]) == display_width(lines[i <= classes ? 0 : classes + 1]));
  }
}

}  // namespace

TEST_CASE("the tables of two classes, by hand", "[classes]") {
  const auto lines = class_tables(evaluation_of({"bad", "good"}, 1000));
  const std::vector<std::string> expected = {"class  precision  recall      F1  texts",  //
                                             "bad       0.9990  1.0000  0.9995   1000",
                                             "good      1.0000  0.9990  0.9995   1000",
                                             "true \\ predicted   bad  good",
                                             "bad               1000     0",
                                             "good                 1   999"};
  CHECK(lines == expected);
}

TEST_CASE("scores that a class does not have are dashes, and a table without confusion ends before it", "[classes]") {
  Evaluation evaluation{.scores = {}};
  evaluation.classes = {{"a", {.texts = 2, .predicted = 2, .correct = 2}}, {"never", {}}, {"missed", {.texts = 1}}};
  const std::vector<std::string> expected = {
      "class   precision  recall      F1  texts", "a          1.0000  1.0000  1.0000      2",
      "never           -       -       -      0", "missed          -  0.0000  0.0000      1"};
  CHECK(class_tables(evaluation) == expected);
  CHECK(class_tables({.scores = {}}).empty());
}

TEST_CASE("tables stay aligned and readable with ten classes, long names, wide characters and control characters",
          "[classes]") {
  std::vector<std::string> labels = {"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e",  // Japanese
                                     "cafe\xcc\x81",                          // with a combining accent
                                     "a\tb\nc\x1b[31m",
                                     "\xf0\x9f\x99\x82",
                                     "",
                                     "x"};
  while (labels.size() < 10)
    labels.push_back("a very long name of a class, number " + std::to_string(labels.size()) + " of ten");
  const auto lines = class_tables(evaluation_of(labels, GENERATE(7, 123'456'789)));
  check_aligned(lines, labels.size());
  for (const auto& line : lines) {
    CHECK(std::ranges::none_of(line, [](char c) { return c >= 0 && c < ' '; }));
    CHECK(display_width(line) <= 160);
  }
  CHECK_THAT(lines[7], ContainsSubstring("a very long") && ContainsSubstring("6 of ten"));
  CHECK_THAT(lines[11], ContainsSubstring("\xe2\x80\xa6") && ContainsSubstring("ten"));  // cut names over the columns
}

TEST_CASE("a line of the confusion table of ten classes fits in 120 columns if its counts are small", "[classes]") {
  std::vector<std::string> labels;
  for (int i = 0; i < 10; ++i) labels.push_back("class with a long name " + std::to_string(i));
  const auto lines = class_tables(evaluation_of(labels, 5000));
  check_aligned(lines, 10);
  for (const auto& line : lines) CHECK(display_width(line) <= 120);
}

TEST_CASE("more than 20 classes have no table", "[classes]") {
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < most_reported_classes; ++i) labels.push_back(std::to_string(i));
  check_aligned(class_tables(evaluation_of(labels, 3)), most_reported_classes);
  labels.emplace_back("one more");
  CHECK(class_tables(evaluation_of(labels, 3)).empty());
}

}  // namespace metaformer::test_class_tables
