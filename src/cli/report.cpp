#include "report/report.h"

#include <algorithm>
#include <ranges>

#include "base/files.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "cli/command_line.h"
#include "report/comparison.h"
#include "report/frontier.h"
#include "report/json.h"
#include "report/page_server.h"
#include "report/pictures.h"
#include "report/run_records.h"

namespace metaformer {

enum class CompareFormat { text, markdown, csv, json };
constexpr std::array<std::string_view, 4> enum_names(CompareFormat) { return {"text", "markdown", "csv", "json"}; }

namespace {

struct CompareArguments {
  std::vector<std::string> runs;
  ComparisonOptions options;
  std::string measures, columns;  // separated by commas
  CompareFormat format = CompareFormat::text;
  std::string export_file, order_file, figures;
  bool json = false, export_only = false;
};

// The words between the separators, trimmed; empty ones are left out.
std::vector<std::string> words_of(const std::string& text, char separator) {
  std::vector<std::string> words;
  for (const auto part : text | std::views::split(separator))
    if (const auto word = trim({part.begin(), part.end()}); !word.empty()) words.emplace_back(word);
  return words;
}

std::vector<std::string> read_order(const std::string& path) {
  constexpr std::uintmax_t largest = 1 << 26;
  return path.empty() ? std::vector<std::string>{} : words_of(read_file(path, largest, ExitCode::usage), '\n');
}

void run_compare(CompareArguments& arguments) {
  const auto format = arguments.json ? CompareFormat::json : arguments.format;
  arguments.options.measures = words_of(arguments.measures, ',');
  const auto columns = words_of(arguments.columns, ',');
  if (!columns.empty() && format != CompareFormat::markdown)
    fail_usage("--columns is for --format markdown; choose measures with --metrics");
  if (!columns.empty() && arguments.options.measures.empty()) arguments.options.measures = measures_of_columns(columns);
  const auto& wanted_frontier = arguments.options.frontier;
  if (!wanted_frontier.empty() && (!columns.empty() || format == CompareFormat::csv || arguments.export_only))
    fail_usage("--frontier: has no effect with {}", arguments.export_only ? "--export-only"
                                                    : columns.empty()     ? "--format csv"
                                                                          : "--columns");
  auto found = find_runs(arguments.runs);
  for (const auto& problem : found.problems) log::warning("{}", problem);
  const auto export_runs = [&] { export_results(arguments.export_file, found.runs, read_order(arguments.order_file)); };
  if (arguments.export_only) return export_runs();
  const auto comparison = compare_runs(found.runs, arguments.options);  // its errors come before a file is changed
  std::optional<Frontier> frontier;
  if (!wanted_frontier.empty()) frontier = frontier_of(comparison, wanted_frontier[0], wanted_frontier[1]);
  if (!arguments.export_file.empty()) export_runs();
  for (const auto& note : comparison.notes) log::warning("{}", note);
  if (!arguments.figures.empty()) {
    FigureFolder files(arguments.figures);
    for (const auto& [name, figure] : figures_of(comparison)) files.write(name, figure);
    if (frontier) files.write("frontier", figure_of(*frontier, comparison));
  }
  if (format == CompareFormat::json) {
    auto json = to_json(comparison);
    if (frontier) json["frontier"] = to_json(*frontier, comparison);
    return print_json(json);
  }
  if (frontier && format == CompareFormat::markdown) return print_lines(to_markdown(*frontier, comparison));
  if (format == CompareFormat::csv) return print(to_csv(comparison));
  print_lines(format == CompareFormat::text ? to_text(comparison) : to_markdown(comparison, columns));
  if (frontier) print_lines(to_text(*frontier, comparison));
}

void add_comparison_options(CLI::App& command, ComparisonOptions& options) {
  add_repeatable(
      command, "--reference", options.references, "GROUP",
      "group to compare with: its name or number in the table, one of its runs, or its config; default: the first");
  add_text(command, "--margin", options.margin, "M",
           "equivalence: whether the 95% interval of the difference lies within plus/minus M, in the unit of the table")
      ->transform(number_in(positive));
  add_text(command, "--frontier", options.frontier, "X Y",
           "also mark the groups that no other group beats in these two measures, such as state_bytes val_loss")
      ->expected(2);
}

void add_output_options(CLI::App& command, CompareArguments& arguments) {
  add_choice(command, "--format", arguments.format, "format of the comparison");
  command.add_flag("--json", arguments.json, "the same as --format json");
  add_text(command, "--columns", arguments.columns, "LIST",
           "columns of the Markdown table, separated by commas: MEASURE, MEASURE:difference, MEASURE:equivalent, "
           "MEASURE:worst, MEASURE:values, mcnemar, settings");
  add_text(command, "--figures", arguments.figures, "DIR",
           "folder for the values and the differences of every measure as pictures (SVG and PDF)");
  auto* file = add_text(command, "--export", arguments.export_file, "FILE",
                        "also write the runs into this CSV file of results; rows of other runs stay in it");
  add_text(command, "--order", arguments.order_file, "FILE",
           "with --export: a file with the keys of runs, one per line, that gives the order of the rows")
      ->needs(file);
  command.add_flag("--export-only", arguments.export_only, "print no comparison")->needs(file);
}

struct ReportArguments {
  ReportOptions options;
  std::string out = "report.html";
  int port = 0;
  bool json = false;
};

// The name of the only run; or the number of runs, and the folder that contains all of them.
std::string default_title(const std::vector<std::string>& runs) {
  const auto last_name = [](const std::filesystem::path& path) {
    return std::filesystem::weakly_canonical(path).filename().string();
  };
  if (runs.size() == 1) return last_name(runs.front());
  const auto folder = std::filesystem::path(runs.front()).parent_path();
  const bool together =
      std::ranges::all_of(runs, [&](const std::filesystem::path& run) { return run.parent_path() == folder; });
  return fmt::format("{} runs{}", runs.size(),
                     together ? " of " + last_name(folder.empty() ? std::filesystem::current_path() : folder) : "");
}

// Waits until the runs differ from `known`, and returns their state. Waits on while they cannot be read.
std::string next_state(const ReportOptions& options, const std::string& known) {
  for (;;) {
    wait_unless_stopped(*options.watch);
    try {
      if (auto state = state_of_runs(options.runs); state != known) return state;
    } catch (const Error&) {
    }
  }
}

// Ends only by a signal.
void serve_report(const ReportArguments& arguments) {
  const auto& options = arguments.options;
  PageServer server(static_cast<std::uint16_t>(arguments.port));
  RepeatedReport source(options);
  std::vector<std::string> reported;  // problems
  auto state = state_of_runs(options.runs);
  const auto publish = [&] {
    auto report = source.make();
    for (const auto& problem : report.problems)
      if (std::ranges::find(reported, problem) == reported.end()) log::warning("{}", problem);
    reported = std::move(report.problems);
    server.publish(std::move(report.html), std::move(report.data));
  };
  publish();
  print_lines("{}\n", server.url());
  log::info("the page follows the runs until Ctrl-C");
  for (;;) {
    state = next_state(options, state);
    try {
      publish();
    } catch (const Error& error) {
      log::warning("the page stays as it is: {}", error.what());
    }
  }
}

void run_report(ReportArguments& arguments) {
  auto& options = arguments.options;
  if (options.title.empty()) options.title = default_title(options.runs);
  for (auto* text : {&options.prompt.prompt, &options.text})
    if (*text) drop_byte_order_mark(**text);
  if (options.watch) return serve_report(arguments);
  file_to_write(arguments.out);  // errors come before the work
  const auto report = make_report(options);
  for (const auto& problem : report.problems) log::warning("{}", problem);
  write_file_atomically(file_to_write(arguments.out), report.html);
  if (arguments.json)
    return print_json({{"page", arguments.out},
                       {"bytes", report.html.size()},
                       {"runs", report.runs},
                       {"groups", report.groups},
                       {"figures", report.figures},
                       {"problems", report.problems}});
  print_lines("{}: {} in {}, {}\n", arguments.out, with_noun(static_cast<std::int64_t>(report.runs), "run"),
              with_noun(static_cast<std::int64_t>(report.groups), "group"), human_bytes(report.html.size()));
  if (report.figures > 0) print_lines("{}: {} figures\n", options.figures.string(), report.figures);
}

void add_output_options(CLI::App& command, ReportArguments& arguments) {
  auto* out = add_text(command, "--out,-o", arguments.out, "FILE", "HTML file to write")->capture_default_str();
  auto* figures =
      add_text(command, "--figures", arguments.options.figures, "DIR", "folder for every plot as SVG and PDF");
  auto* json = command.add_flag("--json", arguments.json, "one line of JSON about the page on stdout");
  auto* watch = add_watch(command, arguments.options.watch,
                          "serve the page to browsers on this machine until Ctrl-C instead of writing it, and update "
                          "it while runs are trained")
                    ->excludes(out, figures, json);
  add_whole_number(command, "--port", arguments.port, 0, 65535, "port on 127.0.0.1 for --watch; 0: any free one")
      ->needs(watch);
}

void add_content_options(CLI::App& command, ReportArguments& arguments) {
  auto& options = arguments.options;
  may_be_empty(command.add_option("--title", options.title, "title of the page; default: the runs"));
  add_comparison_options(command, options.comparison);
  auto* prompt = may_be_empty(command.add_option("--prompt", options.prompt.prompt,
                                                 "prompt of all runs; default: a line break, for sorters a list, for "
                                                 "classifiers and translators a text of the validation split"));
  add_whole_number(command, "--tokens", options.prompt.tokens, 1, 1 << 20, "tokens that language models generate");
  command
      .add_flag_callback(
          "--no-samples", [&options] { options.with_texts = false; }, "leave out the texts: faster")
      ->excludes(prompt);
  auto* text =
      may_be_empty(command.add_option("--text", options.text,
                                      "text whose attention is shown; default: the prompt, which language models "
                                      "continue, or without --prompt a text of the validation split"));
  command
      .add_flag_callback(
          "--no-heads", [&options] { options.with_insides = false; },
          "leave out attention, forms, distances and norms: faster, smaller")
      ->excludes(text);
}

}  // namespace

void add_compare_command(CLI::App& app) {
  auto& command = *app.add_subcommand("compare", "compare finished runs: mean over seeds, paired differences, tests");
  auto arguments = std::make_shared<CompareArguments>();
  add_text(command, "runs", arguments->runs, "RUN...",
           "folders of runs, folders that contain runs, quoted patterns of these, or CSV files of results")
      ->required();
  add_comparison_options(command, arguments->options);
  add_text(
      command, "--by", arguments->options.by, "KEY",
      "compare only groups with equal values of this config key, each set with its own reference: the first, or one of "
      "those given");
  add_text(command, "--metrics", arguments->measures, "LIST",
           "measures to compare, separated by commas; default: those of the task");
  add_output_options(command, *arguments);
  command.footer(
      "Groups are runs that differ only in train.seed. Differences are paired by seed; intervals and p values are\n"
      "Student's t. Runs that are unfinished, diverged, of other data or given twice are left out, with a warning.\n"
      "Examples:\n"
      "  metaformer compare runs/a runs/b\n"
      "  metaformer compare 'runs/sweep-*' --reference runs/sweep-a --margin 0.02\n"
      "  metaformer compare runs/shakespeare_cpu --export results.csv\n"
      "  metaformer compare results.csv --metrics val_loss --figures paper/figures\n"
      "  metaformer compare results.csv --frontier state_bytes val_loss\n"
      "  metaformer compare results.csv --format markdown --columns val_loss,val_loss:difference,parameters");
  command.callback([arguments] { run_compare(*arguments); });
}

void add_report_command(CLI::App& app) {
  auto& command = *app.add_subcommand("report", "write one HTML page with curves, tables, attention and texts of runs");
  auto arguments = std::make_shared<ReportArguments>();
  add_text(command, "runs", arguments->options.runs, "RUN...",
           "runs: folders, folders of runs, patterns; results files (CSV) beside them add rows to the tables")
      ->required();
  add_output_options(command, *arguments);
  add_content_options(command, *arguments);
  add_device(command, arguments->options.device);
  command.footer(
      "The page contains everything that it shows and loads no other files. docs/report.md describes it.\n"
      "Examples:\n"
      "  metaformer report runs/latest\n"
      "  metaformer report \"runs/ablation/*\" --reference shakespeare_scaled_dot_product.yaml -o ablation.html\n"
      "  metaformer report runs/a runs/b --prompt \"ROMEO:\" --figures paper/figures\n"
      "  metaformer report \"runs/ablation/*\" --watch                          prints the address of the page");
  command.callback([arguments] { run_report(*arguments); });
}

}  // namespace metaformer
