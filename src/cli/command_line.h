#pragma once
// The command line: usage, input and output, subcommands.

#include <fmt/format.h>
#include <unistd.h>

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
#include "config/loader.h"
#include "distributed/process_group.h"
#include "infer/beam_search.h"
#include "run/load_run.h"
#include "run/run_directory.h"

namespace metaformer {

// JSON as one line. Bytes that are not UTF-8 are replaced, and control characters are escaped.
std::string to_line(const nlohmann::ordered_json& json);

// A result for programs: one line of JSON on stdout.
void print_json(const nlohmann::ordered_json& json);

// Writes text to stdout. Throws Error when that fails, for example on a full disk.
void print(const std::string& text);
template <class... Values>
void print(fmt::format_string<Values...> text, Values&&... values) {
  print(fmt::format(text, std::forward<Values>(values)...));
}

// The same with control characters escaped, except line breaks and tabs.
void print_lines(const std::string& text);
template <class... Values>
void print_lines(fmt::format_string<Values...> text, Values&&... values) {
  print_lines(fmt::format(text, std::forward<Values>(values)...));
}

// A descriptor of a file or of standard input.
class InputFile {
 public:
  // "-": standard input. Errors: exit code 3.
  explicit InputFile(const std::string& path);

  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }  // for messages

  // Reads a file to its end, a pipe until it is closed. Errors: exit code 3. Throws Interrupted when a signal asks to
  // stop.
  std::string read_to_end() const;

 private:
  std::string name_;
  int descriptor_ = STDIN_FILENO;
};

// All subcommands, in the order in which they were added.
std::vector<const CLI::App*> subcommands_of(const CLI::App& app);

// Parses, runs, and turns every error into one line on stderr and an exit code (docs/commands.md lists them).
int run_command_line(int argc, char** argv);

// Each adds a subcommand: its options and the code that runs it.
void add_init_command(CLI::App& app);
void add_train_command(CLI::App& app);
void add_evaluate_command(CLI::App& app);
void add_sample_command(CLI::App& app);
void add_predict_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_export_command(CLI::App& app);
void add_compare_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_runs_command(CLI::App& app);
void add_config_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_info_command(CLI::App& app);
void add_completion_command(CLI::App& program);
void add_man_command(CLI::App& program);
void add_sweep_functions_command(CLI::App& app);
void add_bench_command(CLI::App& app);

// scripts/lib/messages.sh and experiments/lib/sweep.sh, as the build read them (cmake/EmbedFiles.cmake).
namespace embedded {
extern const std::string_view sweep_functions;
}

// For transform(): a whole number within bounds, which may be written as 1e3, and a number in a range.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);
CLI::Validator number_in(const Range& range);

// Allows an empty value of the option. For other options it is an error, usually an unset variable of the shell.
CLI::Option* may_be_empty(CLI::Option* option);

// An option that may be repeated and takes one value each time.
void add_repeatable(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                    const std::string& value_name, const std::string& help);

// A whole number between the bounds, which may be written as 1e3; help shows the default.
template <class Number>
CLI::Option* add_whole_number(CLI::App& command, const std::string& name, Number& value, std::int64_t low,
                              std::int64_t high, const std::string& help) {
  return command.add_option(name, value, help)->capture_default_str()->transform(whole_number(low, high));
}

// A file, a folder or another word; `value_name` stands for it in the help.
template <class Text>
CLI::Option* add_text(CLI::App& command, const std::string& name, Text& value, const std::string& value_name,
                      const std::string& help) {
  return command.add_option(name, value, help)->type_name(value_name);
}

// The enumerator of the name that was given to an option. Throws Error (exit code 2) listing the names.
template <class E>
E choose(const std::string& option, const std::string& name) {
  const auto names = names_of<E>();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) fail_usage("{} {}: expected {}", option, name, join_alternatives(names));
  return static_cast<E>(found - names.begin());
}

// An option that takes the name of an enumerator.
template <class E>
CLI::Option* add_choice(CLI::App& command, const std::string& name, E& value, const std::string& help) {
  const auto set = [&value, name](const std::string& given) { value = choose<E>(name, given); };
  return command.add_option_function<std::string>(name, set, help)
      ->type_name(fmt::format("{}", fmt::join(names_of<E>(), "|")))
      ->default_str(std::string(to_string(value)));
}

void add_device(CLI::App& command, std::string& device);
void add_json(CLI::App& command, bool& json, const std::string& help = "one line of JSON on stdout");
void add_offline(CLI::App& command, bool& offline);

// --watch and --every, which set `seconds`. Returns --watch.
CLI::Option* add_watch(CLI::App& command, std::optional<double>& seconds, const std::string& help);

// --beam, --alpha, --further-tokens, --no-graph.
void add_beam(CLI::App& command, BeamOptions& beam);
const std::vector<std::string> beam_flags = {"--beam", "--alpha", "--further-tokens", "--no-graph"};

// The options among `names` that are on the command line.
std::vector<std::string> given_flags(const CLI::App& command, std::vector<std::string> names);

// Errors (exit code 2): an option is given that has no meaning for the run's task.
void require_no_flags(const std::vector<std::string>& given, const LoadedRun& run);

// Throws Error (exit code 2) if the file is a run: the option --run was left out.
void require_no_run(const std::string& file);

// Options that several subcommands share.
struct ConfigChoice {
  std::string config;
  std::vector<std::string> overrides;
  void add_to(CLI::App& command, bool required = true);
  Experiment load() const;  // the defaults if there is no file
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
  LoadedRun load(const std::string& on_device) const { return load_run(run, checkpoint, on_device, changes); }
  LoadedRun load() const { return load(device); }
};

// Commands whose work several processes may share.

// The command line of this process.
std::vector<std::string> process_arguments();

struct ProcessChoice {
  int processes = 1, timeout_seconds = 600;

  void add_to(CLI::App& command);

  // With --processes: starts the processes that do the work, and throws ProcessesFailed if one fails. Otherwise this
  // process does the work, alone or in the group that a launcher has started. A process that fails sends its group the
  // reason. Errors: exit code 2, --processes under a launcher; exit code 6, the others do not come within the timeout.
  void run(const std::function<void(ProcessGroup&)>& work) const;
};

// The device of that name. "auto" and "cuda" give each of several processes on a machine its own: "cuda:1" to the
// second. Errors (exit code 2): there are fewer devices than processes.
std::string device_for(const ProcessGroup& group, const std::string& name);

}  // namespace metaformer
