#include "base/files.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "report/comparison.h"
#include "report/json.h"
#include "report/pictures.h"
#include "report/run_records.h"

namespace metaformer {

namespace {

struct CompareArguments {
  std::vector<std::string> runs;
  ComparisonOptions options;
  std::string measures, columns;  // separated by commas
  std::string format = "text";
  std::string export_file, order_file, figures;
  bool json = false;
  bool export_only = false;
};

enum class Format { text, markdown, csv, json };

Format parse_format(const CompareArguments& arguments) {
  if (arguments.json) return Format::json;
  return choose<Format>(
      "--format", arguments.format,
      {{"text", Format::text}, {"markdown", Format::markdown}, {"csv", Format::csv}, {"json", Format::json}});
}

std::vector<std::string> split_at_commas(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream stream(list);
  for (std::string word; std::getline(stream, word, ',');)
    if (!trim(word).empty()) words.emplace_back(trim(word));
  return words;
}

std::vector<std::string> read_order(const std::string& path) {
  if (path.empty()) return {};
  constexpr std::uintmax_t largest = 1 << 26;
  std::istringstream lines(read_file(path, largest, ExitCode::usage));
  std::vector<std::string> keys;
  for (std::string line; std::getline(lines, line);)
    if (!trim(line).empty()) keys.emplace_back(trim(line));
  return keys;
}

void run_compare(CompareArguments& arguments) {
  const auto format = parse_format(arguments);
  arguments.options.measures = split_at_commas(arguments.measures);
  const auto columns = split_at_commas(arguments.columns);
  if (!columns.empty() && format != Format::markdown)
    throw Error(ExitCode::usage, "--columns is for --format markdown; choose measures with --metrics");
  if (!columns.empty() && arguments.options.measures.empty()) arguments.options.measures = measures_of_columns(columns);
  auto found = find_runs(arguments.runs);
  for (const auto& problem : found.problems) log::warning("{}", problem);
  const auto export_runs = [&] { export_results(arguments.export_file, found.runs, read_order(arguments.order_file)); };
  if (arguments.export_only) return export_runs();
  const auto comparison = compare_runs(found.runs, arguments.options);  // its errors come before a file is changed
  if (!arguments.export_file.empty()) export_runs();
  for (const auto& note : comparison.notes) log::warning("{}", note);
  if (!arguments.figures.empty()) {
    FigureFolder files(arguments.figures);
    for (const auto& [name, figure] : figures_of(comparison)) files.write(name, figure);
  }
  switch (format) {
    case Format::text:
      return print_lines(to_text(comparison));
    case Format::markdown:
      return print_lines(to_markdown(comparison, columns));
    case Format::csv:
      return print(to_csv(comparison));
    case Format::json:
      return print_json(to_json(comparison));
  }
}

void add_output_options(CLI::App& command, CompareArguments& arguments) {
  command.add_option("--format", arguments.format, "how to print the comparison")
      ->type_name("text|markdown|csv|json")
      ->capture_default_str();
  command.add_flag("--json", arguments.json, "the same as --format json");
  command
      .add_option("--columns", arguments.columns,
                  "columns of the Markdown table, separated by commas: MEASURE, MEASURE:difference, "
                  "MEASURE:equivalent, MEASURE:worst, MEASURE:values, mcnemar, settings")
      ->type_name("LIST");
  command
      .add_option("--figures", arguments.figures,
                  "folder for the values and the differences of every measure as pictures (SVG and PDF)")
      ->type_name("DIR");
  auto* file = command
                   .add_option("--export", arguments.export_file,
                               "also write the runs into this CSV file of results; rows of other runs stay in it")
                   ->type_name("FILE");
  command
      .add_option("--order", arguments.order_file,
                  "with --export: a file with keys of runs, one on a line, by which the rows are sorted")
      ->type_name("FILE")
      ->needs(file);
  command.add_flag("--export-only", arguments.export_only, "print no comparison")->needs(file);
}

}  // namespace

void add_compare_command(CLI::App& app) {
  auto& command = *app.add_subcommand("compare", "compare finished runs: mean over seeds, paired differences, tests");
  auto arguments = std::make_shared<CompareArguments>();
  command
      .add_option("runs", arguments->runs,
                  "folders of runs, folders that contain runs, quoted patterns of these, or CSV files of results")
      ->type_name("RUN...")
      ->required();
  command
      .add_option(
          "--reference", arguments->options.reference,
          "group to compare with: its name or number in the table, one of its runs, or its config; default: the first")
      ->type_name("GROUP");
  command
      .add_option("--by", arguments->options.by,
                  "compare only groups with equal values of this config key, each set with its own reference")
      ->type_name("KEY");
  command
      .add_option("--metrics", arguments->measures,
                  "measures to compare, separated by commas; default: those of the task")
      ->type_name("LIST");
  command
      .add_option("--margin", arguments->options.margin,
                  "equivalence: whether the 95% interval lies inside plus/minus this, in the unit of the table")
      ->transform(number_in(positive))
      ->type_name("M");
  add_output_options(command, *arguments);
  command.footer(
      "Groups are runs that differ only in train.seed. Differences are paired by seed; intervals and p values are\n"
      "Student's t. Runs that are unfinished, diverged, of other data or given twice are named on stderr and left "
      "out.\n"
      "Examples:\n"
      "  metaformer compare runs/a runs/b\n"
      "  metaformer compare 'runs/sweep-*' --reference runs/sweep-a --margin 0.02\n"
      "  metaformer compare runs/shakespeare_cpu --export results.csv\n"
      "  metaformer compare results.csv --metrics val_loss --figures paper/figures\n"
      "  metaformer compare results.csv --format markdown --columns val_loss,val_loss:difference,parameters");
  command.callback([arguments] { run_compare(*arguments); });
}

}  // namespace metaformer
