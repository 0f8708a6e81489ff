#include "report/report.h"

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/command_line.h"

namespace metaformer {

namespace {

struct ReportArguments {
  ReportOptions options;
  std::string out = "report.html";
  bool json = false;
};

// The run, or the folder that all of them are in.
std::string default_title(const std::vector<std::string>& runs) {
  const auto last_name = [](const std::filesystem::path& path) {
    return std::filesystem::weakly_canonical(path).filename().string();
  };
  if (runs.size() == 1) return last_name(runs.front());
  const auto folder = std::filesystem::path(runs.front()).parent_path();
  const bool together = std::all_of(runs.begin(), runs.end(), [&](const std::string& run) {
    return std::filesystem::path(run).parent_path() == folder;
  });
  return fmt::format("{} runs{}", runs.size(),
                     together ? " of " + last_name(folder.empty() ? std::filesystem::current_path() : folder) : "");
}

void run_report(ReportArguments& arguments) {
  auto& options = arguments.options;
  if (options.title.empty()) options.title = default_title(options.runs);
  for (auto* text : {&options.prompt.prompt, &options.text})
    if (*text) drop_byte_order_mark(**text);
  file_to_write(arguments.out);  // before the work
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
  print_lines("{}: {} runs in {} groups, {}\n", arguments.out, report.runs, report.groups,
              human_bytes(report.html.size()));
  if (report.figures > 0) print_lines("{}: {} figures\n", options.figures.string(), report.figures);
}

void add_content_options(CLI::App& command, ReportArguments& arguments) {
  auto& options = arguments.options;
  may_be_empty(command.add_option("--title", options.title, "title of the page; default: the runs"));
  command.add_option("--reference", options.comparison.reference,
                     "group that the others are compared with: its name or number in the table, one of its runs, or "
                     "its config; default: the first");
  command
      .add_option("--margin", options.comparison.margin,
                  "differences inside plus and minus this margin count as equivalent, in the unit that is shown")
      ->transform(number_in(positive));
  auto* prompt =
      may_be_empty(command.add_option("--prompt", options.prompt.prompt,
                                      "what all runs answer, and language models go on with where attention is shown; "
                                      "default: a line break, a list of a sorter, a text of the validation split"));
  add_whole_number(command, "--tokens", options.prompt.tokens, 1, 1 << 20, "tokens that language models generate");
  command
      .add_flag_callback(
          "--no-samples", [&options] { options.with_texts = false; }, "no texts: faster")
      ->excludes(prompt);
  auto* text = may_be_empty(command.add_option(
      "--text", options.text,
      "text whose attention is shown; default: what the first language model writes from the prompt, or the prompt"));
  command
      .add_flag_callback(
          "--no-heads", [&options] { options.with_insides = false; },
          "no attention, forms, distances and norms: faster, smaller")
      ->excludes(text);
}

}  // namespace

void add_report_command(CLI::App& app) {
  auto& command = *app.add_subcommand("report", "one HTML page with curves, tables, attention and texts of runs");
  auto arguments = std::make_shared<ReportArguments>();
  add_text(command, "runs", arguments->options.runs, "RUN...",
           "runs: folders, folders of runs, patterns; results files (CSV) beside them add rows to the tables")
      ->required();
  add_text(command, "--out,-o", arguments->out, "FILE", "the page")->capture_default_str();
  add_text(command, "--figures", arguments->options.figures, "DIR", "folder for every plot as SVG and PDF");
  add_content_options(command, *arguments);
  add_device(command, arguments->options.device);
  command.add_flag("--json", arguments->json, "one line of JSON about the page on stdout");
  command.footer(
      "The page holds everything that it shows and loads nothing. docs/report.md describes it.\n"
      "Examples:\n"
      "  metaformer report runs/latest\n"
      "  metaformer report \"runs/ablation/*\" --reference shakespeare_scaled_dot_product.yaml -o ablation.html\n"
      "  metaformer report runs/a runs/b --prompt \"ROMEO:\" --figures paper/figures");
  command.callback([arguments] { run_report(*arguments); });
}

}  // namespace metaformer
