#include "cli/command_line.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <ranges>
#include <thread>

#include "base/child_process.h"
#include "base/json.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/signals.h"
#include "config/explain.h"
#include "data/tables.h"
#include "distributed/launch.h"
#include "ops/device.h"

static bool working_folder_is_gone = false;  // when the program started
static char path[PATH_MAX];

// LibTorch's MKL ends the process if there is no working folder, before main() can report that, so this runs earlier.
// No sanitizer has started yet, hence a system call and no variable on the stack.
__attribute__((no_sanitize_address)) static void look_before_libraries_start(int, char**, char**) {
  if (syscall(SYS_getcwd, path, sizeof(path)) >= 0) return;
  working_folder_is_gone = chdir("/") == 0;
}

__attribute__((section(".preinit_array"), used)) static void (*entry)(int, char**,
                                                                      char**) = look_before_libraries_start;

namespace metaformer {

namespace {

// Lists an option once, also when it may be given by position.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_positionals(const CLI::App* app) const override {
    const auto options = app->get_options(
        [](const CLI::Option* option) { return option->get_positional() && !option->nonpositional(); });
    return options.empty() ? "" : make_group(get_label("Positionals"), true, options);
  }

  // An option whose name may be left out: "CONFIG or --config CONFIG".
  std::string make_option_usage(const CLI::Option* option) const override {
    if (!option->nonpositional()) return Formatter::make_option_usage(option);
    const auto type = option->get_type_name();
    const auto usage = fmt::format("{} or {} {}", type, option->get_name(), type);
    return option->get_required() ? usage : "[" + usage + "]";
  }
};

// The words that lead to a command: "metaformer config".
std::string words_of(const CLI::App& app) {
  const auto* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : words_of(*parent) + " " + app.get_name();
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* command : subcommands_of(app)) names.push_back(command->get_name());
  return names;
}

std::string describe_unknown_command(const CLI::App& app, const std::string& word) {
  const auto commands = commands_of(app);
  std::error_code ignored;
  if (app.get_name() == "init" && std::filesystem::exists(word, ignored)) {
    const auto format = format_by_name(word);
    return fmt::format("text, table or pairs is missing: metaformer init {} {} (see metaformer init --help)",
                       format == TableFormat::csv || format == TableFormat::tsv ? "table" : "text", shell_word(word));
  }
  const auto suggestion = did_you_mean(word, commands);
  return fmt::format("unknown command {}{} commands are {} (see {} --help)", in_quotes(word),
                     suggestion.empty() ? "; the" : suggestion + " The", fmt::join(commands, ", "), words_of(app));
}

std::string suggest_option(const CLI::App& app, const std::string& argument) {
  const auto word = argument.substr(0, argument.find('='));
  if (!word.starts_with("--")) return "";
  std::vector<std::string> names;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  auto name = word.substr(2);
  std::replace(name.begin(), name.end(), '-', '_');
  const auto key = full_key(name);
  if (!key.empty() && !key.starts_with("--") && std::find(names.begin(), names.end(), "--set") != names.end())
    return fmt::format("; did you mean '--set {}=VALUE'?", key);
  if (std::ranges::find(names, key) != names.end()) return fmt::format("; did you mean '{}'?", key);
  return did_you_mean(word, names);
}

std::string describe_extras(const CLI::App& app, const std::vector<std::string>& extras) {
  const auto& first = extras.front();
  if (!first.starts_with('-') && app.get_require_subcommand_min() > 0) return describe_unknown_command(app, first);
  return fmt::format("unexpected argument{} {}{} (see {} --help)", extras.size() == 1 ? "" : "s", quoted_list(extras),
                     suggest_option(app, first), words_of(app));
}

std::string help_of(const CLI::App& program, const std::vector<std::string>& words) {
  const auto* app = &program;
  for (const auto& word : words) {
    const auto commands = subcommands_of(*app);
    if (commands.empty())
      fail_usage("help: {} has no commands, and {} is unexpected (see {} --help)", words_of(*app), in_quotes(word),
                 words_of(*app));
    const auto next = std::ranges::find_if(commands, [&](const auto* each) { return each->get_name() == word; });
    if (next == commands.end()) fail_usage("{}", describe_unknown_command(*app, word));
    app = *next;
  }
  return program.get_formatter()->make_help(app, words_of(*app), CLI::AppFormatMode::Normal);
}

// `metaformer help [COMMAND...]`. Keeps a reference to the program.
void add_help_command(CLI::App& program) {
  auto& command = *program.add_subcommand("help", "help for a command: metaformer help config dump");
  auto words = std::make_shared<std::vector<std::string>>();
  command.add_option("command", *words, "words of the command; default: the program");
  command.callback([&program, words] { print(help_of(program, *words)); });
}

// An error of CLI11 about the number of values of an option or argument, in plainer words.
std::string describe_values(const CLI::App& app, const std::string& error) {
  for (const auto* option : app.get_options()) {
    const auto name = option->get_name(), type = option->get_type_name();
    if (error == name + " is required" && option->get_positional() && !option->nonpositional())
      return "missing argument: " + type;
    if (error.starts_with(name + ": At Most 1 required"))
      return name + ": is given more than once, and takes one value";
    if (error == fmt::format("{}: 1 required {} missing", name, type))
      return fmt::format("{}: needs a value, {}", name, type);
  }
  return error;
}

// One line with the wrong argument, a suggestion, and the help to read. `program` has tried to parse the arguments.
std::string describe_usage_error(const CLI::App& program, const CLI::ParseError& error) {
  const auto* app = &program;  // then each command that was recognised
  for (;; app = app->get_subcommands().front()) {
    if (const auto extras = app->remaining(); !extras.empty()) return describe_extras(*app, extras);
    if (app->get_subcommands().empty()) break;
  }
  if (app->get_require_subcommand_min() > 0)
    return fmt::format("a command is missing; expected {} (see {} --help)", join_alternatives(commands_of(*app)),
                       words_of(*app));
  return fmt::format("{} (see {} --help)", describe_values(*app, error.what()), words_of(*app));
}

int report(ExitCode code, const std::string& message) {
  log::write_error(message);  // escapes characters that a terminal would act on
  return static_cast<int>(code);
}

constexpr const char* free_text = "free text";  // name of the validator of options that may be empty

bool is_free_text(CLI::Option& option) try {
  return option.get_validator(free_text) != nullptr;
} catch (const CLI::OptionNotFound&) {
  return false;
}

void refuse_empty_values(CLI::App& app) {
  for (auto* option : app.get_options())
    if (option->get_items_expected_max() > 0 && !is_free_text(*option))
      option->check([](const std::string& value) -> std::string {
        return value.empty() ? "is empty, and needs a value; is a variable of the shell not set?" : "";
      });
  for (auto* command : app.get_subcommands([](CLI::App*) { return true; })) refuse_empty_values(*command);
}

// Splits "--out=" into "--out" and an empty value: CLI11 would take the next word as the value.
std::vector<std::string> split_words(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    const bool is_empty = word.starts_with("--") && word.size() > 3 && word.find('=') + 1 == word.size();
    if (is_empty) word.pop_back();
    words.push_back(std::move(word));
    if (is_empty) words.emplace_back();
  }
  return words;
}

void set_up(CLI::App& app) {
  app.name("metaformer");
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("metaformer ") + std::string(build_info().version));
  app.set_help_all_flag("--help-all", "help for every command");
  for (const auto add : {add_init_command, add_train_command, add_evaluate_command, add_sample_command,
                         add_predict_command, add_inspect_command, add_export_command, add_compare_command,
                         add_report_command, add_runs_command, add_config_command, add_data_command, add_bench_command,
                         add_sweep_functions_command, add_info_command, add_completion_command, add_man_command})
    add(app);
  add_help_command(app);
  refuse_empty_values(app);
  app.footer(  // set last, because subcommands inherit it
      "Examples:\n"
      "  metaformer train --config shakespeare_metric.yaml\n"
      "  metaformer train --config shakespeare_quadratic.yaml --set train.steps=5000 --out runs/quadratic\n"
      "  metaformer evaluate --run runs/latest --json\n"
      "  metaformer sample --run runs/latest --prompt \"ROMEO:\" --tokens 500\n"
      "  metaformer predict --run runs/reviews < reviews.txt\n"
      "  metaformer config explain model.mixer\n"
      "Exit codes: 0 ok, 1 failure, 2 usage or config, 3 data, 4 diverged, 5 out of memory,\n"
      "            6 another process lost, 128+n stopped by signal n");
}

void parse_and_run(CLI::App& app, int argc, char** argv) try {
  auto words = split_words(argc, argv);
  std::reverse(words.begin(), words.end());  // the order that CLI11 expects
  app.parse(std::move(words));
} catch (const CLI::CallForHelp&) {
  print(app.help());
} catch (const CLI::CallForAllHelp&) {
  print(app.help("", CLI::AppFormatMode::All));
} catch (const CLI::CallForVersion& version) {
  print(std::string(version.what()) + "\n");
} catch (const CLI::ParseError& error) {
  fail_usage("{}", describe_usage_error(app, error));
}

void do_with(ProcessGroup& group, const std::function<void(ProcessGroup&)>& work) try {
  work(group);
} catch (const Interrupted& interrupted) {
  group.announce_failure(fmt::format("signal {}", interrupted.signal));
  throw;
} catch (const Error& error) {
  if (group.announce_failure(error.what())) throw;
  log::record(error.what());  // in the log of this rank; the first one prints it
  throw ProcessesFailed(static_cast<int>(error.code()));
} catch (const std::exception& error) {
  group.announce_failure(is_out_of_memory(error) ? "out of memory: " + describe_out_of_memory(error)
                                                 : first_line(error));
  throw;
}

}  // namespace

void print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw Error(ExitCode::failure, "cannot write to standard output");
}

void print_lines(const std::string& text) { print(escaped_lines(text)); }

std::string to_line(const nlohmann::ordered_json& json) { return escaped(json_text(json)); }

void print_json(const nlohmann::ordered_json& json) { print(to_line(json) + "\n"); }

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

int run_command_line(int argc, char** argv) {
  reserve_standard_streams();
  catch_signals();
  CLI::App app("Train, evaluate and sample transformers that differ in their token mixer.");
  set_up(app);
  try {
    if (working_folder_is_gone) fail_usage("the working folder was deleted; change to another one");
    parse_and_run(app, argc, argv);
    return static_cast<int>(ExitCode::ok);
  } catch (const Error& error) {
    return report(error.code(), error.what());
  } catch (const Interrupted& interrupted) {
    return 128 + interrupted.signal;
  } catch (const ProcessesFailed& failed) {
    return failed.code;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) return report(ExitCode::failure, first_line(error));
    return report(ExitCode::out_of_memory,
                  fmt::format("out of memory: {}; ask for less at once: fewer or shorter texts, a smaller model",
                              describe_out_of_memory(error)));
  }
}

CLI::Option* may_be_empty(CLI::Option* option) {
  return option->check(CLI::Validator([](std::string&) { return std::string(); }, "", free_text));
}

void add_repeatable(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                    const std::string& value_name, const std::string& help) {
  command.add_option(name, values, help + "; may be repeated")
      ->type_name(value_name)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_device(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "auto, cpu, cuda or cuda:N")->capture_default_str();
}

void add_json(CLI::App& command, bool& json, const std::string& help) { command.add_flag("--json", json, help); }

void add_offline(CLI::App& command, bool& offline) {
  command.add_flag("--offline", offline, "never download a corpus");
}

CLI::Option* add_watch(CLI::App& command, std::optional<double>& seconds, const std::string& help) {
  static constexpr double usual = 2;
  auto* watch = command.add_flag_callback(
      "--watch", [&seconds] { seconds = seconds.value_or(usual); }, help);
  add_text(command, "--every", seconds, "SECONDS", "seconds between two looks at the runs with --watch")
      ->default_str(fmt::format("{}", usual))
      ->transform(number_in(between(0.1, 86400)))
      ->needs(watch);
  return watch;
}

void add_beam(CLI::App& command, BeamOptions& beam) {
  constexpr std::int64_t most = 1 << 20;
  add_whole_number(command, "--beam", beam.beam, 1, most, "sequence_to_sequence: width of the beam; 1: greedy search");
  command.add_option("--alpha", beam.alpha, "exponent of the length penalty ((5 + tokens) / 6)^alpha; 0: no penalty")
      ->transform(number_in(between(0, 10)))
      ->capture_default_str();
  add_whole_number(command, "--further-tokens", beam.further_tokens, 0, most,
                   "largest number of tokens of a target beyond those of its source");
  command.add_flag_callback(
      "--no-graph", [&beam] { beam.graphs = false; },
      "on a GPU, start every operation of a token from the host, with the same cache (for comparison)");
}

std::vector<std::string> given_flags(const CLI::App& command, std::vector<std::string> names) {
  std::erase_if(names, [&](const auto& name) { return command.count(name) == 0; });
  return names;
}

void require_no_flags(const std::vector<std::string>& given, const LoadedRun& run) {
  if (!given.empty())
    fail_usage("{}: has no meaning for --run {}, whose task is {}: leave it out", given.front(),
               run.directory.path().string(), kind_of(run.experiment.config.task));
}

void require_no_run(const std::string& file) {
  if (RunDirectory::is_run(file)) fail_usage("{0} is a run: give --run {0}", file);
}

void ConfigChoice::add_to(CLI::App& command, bool required) {
  const std::string help = "config file, or the name of one in configs/";
  add_text(command, "--config,config", config, "CONFIG", help + (required ? "" : "; default: the built-in defaults"))
      ->required(required);
  add_repeatable(command, "--set", overrides, "KEY=VALUE", "sets a key of the config: section.key=value");
}

Experiment ConfigChoice::load() const {
  return config.empty() ? default_experiment(overrides) : load_experiment(config, overrides);
}

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  const auto range = between(static_cast<double>(low), static_cast<double>(high));
  return {[low, high, range](std::string& text) -> std::string {
            std::int64_t value = 0;
            const auto parsed = parse_whole_number(text, value);
            if (parsed == WholeNumber::malformed) return fmt::format("{} is not a whole number", in_quotes(text));
            if (parsed == WholeNumber::too_large || value < low || value > high)
              return fmt::format("{} is out of range; must be {}", printable(text), range.str());
            text = std::to_string(value);
            return "";
          },
          "", "whole number"};
}

CLI::Validator number_in(const Range& range) {
  return {[range](std::string& text) -> std::string {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            if (text.empty() || *end != '\0') return fmt::format("{} is not a number", in_quotes(text));
            return range.contains(value) ? ""
                                         : fmt::format("{} is out of range; must be {}", printable(text), range.str());
          },
          "", "number"};
}

void RunChoice::add_checkpoint_to(CLI::App& command) {
  add_text(command, "--run", run, "RUN", "run folder; default: the newest run of this folder that has a checkpoint")
      ->capture_default_str();
  add_text(command, "--checkpoint", checkpoint, "CHECKPOINT", "best, last, step-N, or a checkpoint folder")
      ->capture_default_str();
}

void RunChoice::add_to(CLI::App& command) {
  add_checkpoint_to(command);
  add_device(command, device);
}

void RunChoice::add_context_to(CLI::App& command) {
  command
      .add_option("--context", changes.context,
                  "tokens that the model sees at once, instead of the run's model.context; not for learned positions")
      ->transform(whole_number(1, 1 << 20));
}

void RunChoice::add_options_to(CLI::App& command) {
  add_repeatable(command, "--set", changes.options, "KEY=VALUE",
                 "sets keys on which no weight depends: options of the mixer, such as model.mixer.rounds=8, "
                 "model.memory, model.same_length, model.positions.clamp_length, model.carry_state; rows of a recall "
                 "task, such as task.length=256; and data.path and other paths of data that have moved");
}

std::vector<std::string> process_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

void ProcessChoice::add_to(CLI::App& command) {
  add_whole_number(
      command, "--processes", processes, 1, 1024,
      "number of processes on this machine that share the work; not with torchrun, srun or mpirun, which set it");
  add_whole_number(command, "--process-timeout", timeout_seconds, 1, 1 << 20,
                   "seconds without an answer after which a process counts as lost");
}

std::string device_for(const ProcessGroup& group, const std::string& name) {
  if (group.size() == 1 || (name != "auto" && name != "cuda") || !torch::cuda::is_available()) return name;
  const auto devices = static_cast<int>(torch::cuda::device_count());
  if (group.local_rank() >= devices)
    fail_usage(
        "--device {}: this machine has {} CUDA device{}, and more processes; start as many processes as devices, or "
        "give --device cpu",
        name, devices, devices == 1 ? "" : "s");
  return fmt::format("cuda:{}", group.local_rank());
}

void ProcessChoice::run(const std::function<void(ProcessGroup&)>& work) const {
  const std::chrono::seconds timeout(timeout_seconds);
  const auto launch = find_launch();
  if (!launch && processes == 1) return work(one_process());
  if (!launch) {
    set_stop_notice(nullptr);
    const int code = run_local_processes(processes, process_arguments(), timeout);
    if (code != 0) throw ProcessesFailed(code);
    return;
  }
  if (launch->launcher == "--processes")
    end_with_parent(launch->parent);
  else if (processes > 1)
    fail_usage("--processes {}: {} has already started {} processes", processes, launch->launcher, launch->size);
  if (std::getenv("OMP_NUM_THREADS") == nullptr)  // divides the processors of a machine among its processes
    at::set_num_threads(std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / launch->local_size));
  if (launch->rank > 0) {  // only the first process logs everything; the others log only errors
    log::set_errors_only();
    set_stop_notice(nullptr);
  }
  do_with(*make_c10d_group(*launch, timeout), work);
}

InputFile::InputFile(const std::string& path) : name_(path == "-" ? "standard input" : path) {
  if (path != "-") descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail_data("{}: {}", in_quotes(path), std::strerror(errno));
}

InputFile::~InputFile() {
  if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
}

std::string InputFile::read_to_end() const {
  constexpr int patience = 200;  // ms; a signal just before waiting begins is noticed after this time
  constexpr std::size_t piece = 1 << 20;
  std::string content;
  pollfd request = {.fd = descriptor_, .events = POLLIN, .revents = 0};
  for (;;) {
    throw_if_stopped();
    if (::poll(&request, 1, patience) <= 0) continue;
    const auto before = content.size();
    content.resize(before + piece);
    const auto count = ::read(descriptor_, content.data() + before, piece);
    content.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) return content;
    if (count < 0 && errno != EINTR && errno != EAGAIN)
      fail_data("{}: cannot be read: {}", name_, std::strerror(errno));
  }
}

}  // namespace metaformer
