#pragma once
// The report of runs: one HTML page with their comparison, curves, texts and heads, and figures beside it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/comparison.h"

namespace metaformer {

// Options of a run's answer: text of a language model, the sorted list of a sorter, the classes of a classifier, a
// translation.
struct PromptOptions {
  std::optional<std::string> prompt;  // default: a line break, a list from the largest number down, or a sentence (for
                                      // data.source_language de a German one); a text of the run's data is better
  std::int64_t tokens = 300;          // that a language model generates
  double temperature = 0.8;
  std::uint64_t seed = 1337;
};

struct ReportOptions {
  std::vector<std::string> runs;  // folders, patterns, results files: as for find_runs
  std::string title;
  ComparisonOptions comparison;
  PromptOptions prompt;
  std::optional<std::string> text;  // its attention is shown; default: the answer of the first language model
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

// One HTML file that loads nothing else. `json`: the data for the scripts in report/page; markup in it stays text.
std::string make_page(const std::string& title, const std::string& json);

// The files of report/page and d3, as the build read them (cmake/EmbedFiles.cmake).
namespace embedded {
extern const std::string_view html, style, script, d3, d3_licence;
}

}  // namespace metaformer
