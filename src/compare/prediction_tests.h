#pragma once
// Tests of two classifiers on the same test texts, from what their runs predicted.

#include <optional>
#include <string>
#include <vector>

#include "compare/paired_statistics.h"
#include "compare/run_record.h"

namespace metaformer {

// McNemar's test of two runs with the same seed. Nothing, with `problem` saying why, when one of them has no
// test_predictions.safetensors or when those are not of the same texts. Errors: those of read_test_predictions.
std::optional<McNemarTest> compare_predictions(const RunRecord& reference, const RunRecord& run, std::string& problem);

}  // namespace metaformer
