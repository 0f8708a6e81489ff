#pragma once
// The numbers of a run that comparisons show, and how they are written.

#include <set>
#include <string>
#include <vector>

namespace metaformer {

enum class Better { lower, higher, neither };

struct Metric {
  std::string name;   // the column of results files: "val_loss"
  std::string title;  // "validation loss", "test accuracy %"
  double scale = 1;   // what values are multiplied by to be shown: 100 for percentages
  int digits = 4;     // after the decimal point; 0: a whole number with commas, shown without a deviation
  Better better = Better::neither;
};

// The metric of that name; of an unknown name one that is shown as it is.
Metric metric_of(const std::string& name);

// Whether the program writes such a column itself.
bool is_known_metric(const std::string& name);

// A run need not have a number of it: a sorter that is never perfect, attention that does not collapse.
bool may_be_absent(const std::string& name);

// The results to compare unless others are asked for, in the order in which they are shown, of runs that have numbers
// of these names: of classifiers those on the test split, of sorters the exact match, of language models the losses.
std::vector<std::string> default_metrics(const std::set<std::string>& present);

// Time and size: shown for every group, never tested for differences unless asked for.
const std::vector<std::string>& cost_metrics();

// A value in the metric's scale and digits: "1.8478", "88.61", "804,096".
std::string shown(const Metric& metric, double value);

// A difference, with its sign: "+0.0337".
std::string shown_difference(const Metric& metric, double value);

}  // namespace metaformer
