#pragma once
// Measures: the numbers that are reported for a run, in one table, which all code that names, orders or formats them
// reads. And the result of an evaluation: values of measures.

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

  // The origin of its value. summary: summary.json. validation, test: an evaluation of that split, whose keys have no
  // prefix "test_". written: the scores of the targets that a run has written for the test split, likewise. derived:
  // computed from other measures of the run, so results files do not contain it. other: elsewhere.
  enum class Origin { summary, validation, test, written, derived, other };

  // Its column in results files: before (early) or after (late) the columns on the machine, behind all columns (last),
  // or nowhere (none).
  enum class Column { early, late, last, none };

  std::string id;     // "val_loss", as in results files and on the command line
  std::string title;  // "validation loss", "test accuracy %"
  double scale = 1;   // factor from values to shown numbers: 100 for percentages
  int digits = 4;     // after the decimal point; 0: a whole number with commas, shown without a deviation
  Better better = Better::neither;
  Origin origin = Origin::other;
  Column column = Column::last;
  bool may_be_absent = false;  // although all others are present: a sorter may never be perfect
  std::string axis = {};       // title of the curve over the steps, "exact match"; "": no curve

  // The key in an evaluation's report: "accuracy" for "test_accuracy".
  std::string key() const;
};

// All measures, in the order of their columns in results files.
const std::vector<Measure>& all_measures();

// The measure of that id; for an unknown id a measure that is shown as it is. "val_loss_128" is the validation loss
// with that context.
Measure measure_of(const std::string& id);

// Whether the program itself writes a column with this id.
bool is_own_measure(const std::string& id);

// The measures that comparisons show by default, in order, for runs that have the measures `present`: for classifiers
// those of the test split, for sorters the exact match, for language models the losses.
std::vector<std::string> default_measures(const std::set<std::string>& present);

// Time and size: shown for every group, never tested for differences unless asked for.
const std::vector<std::string>& cost_measures();

// A value in the measure's scale and digits: "1.8478", "88.61", "804,096".
std::string shown(const Measure& measure, double value);

// A difference, with its sign: "+0.0337".
std::string shown_difference(const Measure& measure, double value);

// A value that an evaluation of the validation split reports under this key, in words: "exact match 99.50%".
std::string described(const std::string& key, double value);

// Values by the key of their measure, in the order in which they are written. Counts are whole numbers.
using Scores = std::vector<std::pair<std::string, std::variant<double, std::int64_t>>>;
using NamedScores = std::vector<std::pair<std::string, Scores>>;

// nullopt if there is no such value.
std::optional<double> value_of(const Scores& scores, std::string_view key);

// The number of texts that have a class, that are predicted to have it, and for which both is true.
struct ClassCounts {
  std::int64_t texts = 0, predicted = 0, correct = 0;

  // Correct ones among those predicted, and among the texts of the class. nullopt if there is none of them.
  std::optional<double> precision() const;
  std::optional<double> recall() const;

  // 2 precision recall / (precision + recall). nullopt for a class that no text has and none is predicted to have.
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
