#pragma once
// The command line: usage, output, subcommands.

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/schema.h"
#include "run/load_run.h"
#include "run/run_directory.h"

namespace metaformer {

// JSON as one line. Bytes that are not UTF-8 are replaced, and control characters are escaped.
std::string to_line(const nlohmann::ordered_json& json);

// A result for programs: one line of JSON on stdout.
void print_json(const nlohmann::ordered_json& json);

// Writes text to stdout. Throws Error when that fails, for example on a full disk.
void print(const std::string& text);

// The same with control characters escaped, except line breaks and tabs.
void print_lines(const std::string& text);

// All subcommands, in the order in which they were added.
std::vector<const CLI::App*> subcommands_of(const CLI::App& app);

// Parses, runs, and turns every error into one line on stderr and an exit code (docs/commands.md lists them).
int run_command_line(int argc, char** argv);

// Each adds a subcommand: its options and the code that runs it.
void add_train_command(CLI::App& app);
void add_evaluate_command(CLI::App& app);
void add_sample_command(CLI::App& app);
void add_predict_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_export_command(CLI::App& app);
void add_compare_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_config_command(CLI::App& app);
void add_config_import_command(CLI::App& config);
void add_data_command(CLI::App& app);
void add_data_stats_command(CLI::App& data);
void add_data_tokenizer_command(CLI::App& data);
void add_info_command(CLI::App& app);
void add_completion_command(CLI::App& program);
void add_bench_command(CLI::App& app);
void add_bench_attention_command(CLI::App& bench);
void add_bench_kernels_command(CLI::App& bench);
void add_bench_step_command(CLI::App& bench);

// For transform(): a whole number within bounds, which may be written as 1e3, and a number in a range.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);
CLI::Validator number_in(const Range& range);

// An option whose value may be empty. An empty value of any other option is an error: it is usually an unset variable
// of the shell.
CLI::Option* may_be_empty(CLI::Option* option);

// An option that may be repeated and takes one value each time.
void add_repeatable(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                    const std::string& value_name, const std::string& help);

// The value that has the name given to an option. Throws Error (exit code 2) listing the names.
template <class Value>
Value choose(const std::string& option, const std::string& name,
             const std::vector<std::pair<std::string, Value>>& choices) {
  std::vector<std::string> names;
  for (const auto& [known, value] : choices) {
    if (known == name) return value;
    names.push_back(known);
  }
  throw Error(ExitCode::usage, option + " " + name + ": expected " + join_alternatives(names));
}

// Options that several subcommands share.
struct ConfigChoice {
  std::string config;
  std::vector<std::string> overrides;
  void add_to(CLI::App& command);
};

struct RunChoice {
  std::string run = latest_run;
  std::string checkpoint = "best";
  std::string device = "auto";
  ModelChanges changes;
  void add_to(CLI::App& command);
  void add_checkpoint_to(CLI::App& command);  // without a device
  void add_context_to(CLI::App& command);
  void add_options_to(CLI::App& command);
};

}  // namespace metaformer
