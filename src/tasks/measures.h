#pragma once
// Measures: the numbers that are reported of a run, in one table. Whatever names, orders or formats them reads it. And
// the result of an evaluation: their values.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace metaformer {

struct Measure {
  enum class Better { lower, higher, neither };

  // Where it comes from: summary.json; an evaluation of the validation or the test split, there without the prefix
  // "test_"; the scores of the targets that a run has written for the test split, likewise; other measures of the run,
  // so that results files do not hold it; elsewhere.
  enum class Origin { summary, validation, test, written, derived, other };

  // Its column in results files: before or after the columns on the machine, behind all, or nowhere.
  enum class Column { early, late, last, none };

  std::string id;     // "val_loss", as in results files and on the command line
  std::string title;  // "validation loss", "test accuracy %"
  double scale = 1;   // from values to what is shown: 100 for percentages
  int digits = 4;     // after the decimal point; 0: a whole number with commas, shown without a deviation
  Better better = Better::neither;
  Origin origin = Origin::other;
  Column column = Column::last;
  bool may_be_absent = false;  // of a run that has all others: a sorter that is never perfect
  std::string axis = {};       // of the curve over the steps, "exact match"; "": without a curve

  // The key in an evaluation's report: "accuracy" for "test_accuracy".
  std::string key() const;
};

// In the order of their columns in results files.
const std::vector<Measure>& all_measures();

// The measure of that id; of an unknown id one that is shown as it is. "val_loss_128" is the validation loss with that
// context.
Measure measure_of(const std::string& id);

// Whether the program writes such a column itself.
bool is_own_measure(const std::string& id);

// The measures to compare unless others are asked for, in the order in which they are shown, of runs that have these:
// of classifiers those of the test split, of sorters the exact match, of language models the losses.
std::vector<std::string> default_measures(const std::set<std::string>& present);

// Time and size: shown for every group, never tested for differences unless asked for.
const std::vector<std::string>& cost_measures();

// A value in the measure's scale and digits: "1.8478", "88.61", "804,096".
std::string shown(const Measure& measure, double value);

// A difference, with its sign: "+0.0337".
std::string shown_difference(const Measure& measure, double value);

// One that an evaluation of the validation split reports under this key, in words: "exact match 99.50%".
std::string described(const std::string& key, double value);

// Values by the key of their measure, in the order in which they are written. Counts are whole numbers.
using Scores = std::vector<std::pair<std::string, std::variant<double, std::int64_t>>>;
using NamedScores = std::vector<std::pair<std::string, Scores>>;

// Nothing where there is no such value.
std::optional<double> value_of(const Scores& scores, std::string_view key);

// How many texts have a class, how many are predicted to have it, and how many of these have it.
struct ClassCounts {
  std::int64_t texts = 0, predicted = 0, correct = 0;

  // 2 precision recall / (precision + recall). Nothing for a class that no text has and none is predicted to have.
  std::optional<double> f1() const;
  bool operator==(const ClassCounts&) const = default;
};

// Scores of the targets that a model writes.
struct WrittenScores {
  Scores scores;
  NamedScores baselines;                                        // of texts that need no model
  std::vector<std::pair<std::string, std::string>> signatures;  // of scores that have variants

  bool operator==(const WrittenScores&) const = default;
};

// The result of an evaluation.
struct Evaluation {
  Scores scores;
  std::vector<std::pair<std::string, ClassCounts>> classes = {};  // by label; empty: not reported
  std::vector<std::int64_t> confusion = {};                       // [true class][predicted class]; empty: not reported
  std::int64_t evaluated_tokens = 0, split_tokens = 0;            // of a part of a split; 0: not limited
  std::optional<WrittenScores> written = {};

  std::optional<double> find(std::string_view key) const { return value_of(scores, key); }
  double at(std::string_view key) const { return find(key).value(); }
  bool operator==(const Evaluation&) const = default;
};

}  // namespace metaformer
