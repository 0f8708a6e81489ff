#pragma once
// Tables of a classifier's results for people.

#include <string>
#include <vector>

#include "tasks/measures.h"

namespace metaformer {

// Lines of text: precision, recall and F1 of each class and the number of its texts; then, if the evaluation has it,
// the confusion table, a row for each true class and a column for each predicted one. Long names of classes are cut in
// the middle. Empty for an evaluation without classes, or with more than most_reported_classes.
std::vector<std::string> class_tables(const Evaluation& evaluation);

}  // namespace metaformer
