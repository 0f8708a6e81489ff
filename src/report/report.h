#pragma once
// The report of runs: one HTML page with their comparison, curves, texts and heads, and figures beside it.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "report/comparison.h"
#include "report/texts.h"

namespace metaformer {

struct ReportOptions {
  std::vector<std::string> runs;  // folders, patterns, results files: as of find_runs
  std::string title;
  ComparisonOptions comparison;
  PromptOptions prompt;
  std::optional<std::string> text;  // whose attention is shown; default: the answer of the first language model
  std::string device = "auto";
  bool with_texts = true, with_insides = true;
  std::filesystem::path figures;  // the folder of SVG and PDF files; empty: none
};

struct Report {
  std::string html;
  std::size_t runs = 0, groups = 0;
  std::size_t figures = 0;
  std::vector<std::string> problems;  // a line for each run with something missing
};

// A run whose checkpoint cannot be used only lacks its text and its heads. Errors: exit code 2 for no run, or for an
// argument that names none; those of compare_runs.
Report make_report(const ReportOptions& options);

}  // namespace metaformer
