#pragma once
// The report of runs: one HTML page with their comparison, curves, texts and heads, and figures beside it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/checkpoint_results.h"
#include "report/comparison.h"

namespace metaformer {

struct ReportOptions : CheckpointOptions {
  std::vector<std::string> runs;  // folders, patterns, results files: as for find_runs
  std::string title;
  ComparisonOptions comparison;
  std::filesystem::path figures;  // the folder of SVG and PDF files; empty: none
  std::optional<double> watch;    // seconds after which a page from a server asks for new data; nothing: a file
};

struct Report {
  std::string html, data;  // data: the JSON in the page
  std::size_t runs = 0, groups = 0;
  std::size_t figures = 0;
  std::vector<std::string> problems;  // a line for each run with something missing
};

// A run whose checkpoint cannot be used only lacks its text and its heads. Errors: exit code 2 for no run, or for an
// argument that names none; those of compare_runs.
Report make_report(const ReportOptions& options);

// The same again and again, of runs that change. Texts and heads of a run are kept until its best checkpoint changes.
class RepeatedReport {
 public:
  explicit RepeatedReport(ReportOptions options) : options_(std::move(options)), checkpoints_(options_) {}

  Report make();

 private:
  ReportOptions options_;
  CheckpointReader checkpoints_;
};

// One HTML file that loads nothing else. `json`: the data for the scripts in report/page; markup in it stays text.
// `may_fetch`: its scripts may ask the server of the page for new data.
std::string make_page(const std::string& title, const std::string& json, bool may_fetch = false);

// The files of report/page and d3, as the build read them (cmake/EmbedFiles.cmake).
namespace embedded {
extern const std::string_view html, style, script, d3, d3_licence;
}

}  // namespace metaformer
