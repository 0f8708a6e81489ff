#include "base/files.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "data/first_look.h"
#include "ops/device.h"
#include "train/starting_config.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

struct InitArguments {
  std::string kind;  // the subcommand
  std::string path, targets;
  std::string out;  // "": a name from the data; "-": standard output
  std::optional<std::string> first, second;
  std::string device = "auto";
  bool force = false, json = false;

  GivenColumns columns() const { return {.first = first, .second = second}; }
};

// "reviews" for data/reviews.csv.gz.
std::string stem_of(const std::string& path) {
  const auto whole = fs::absolute(path).lexically_normal();
  auto name = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  return is_folder(path) || name.stem().empty() ? name.string() : name.stem().string();
}

// Errors (exit code 2): the file would replace the data or, without --force, any other file.
void require_free(const std::string& out, const InitArguments& arguments) {
  std::error_code error;
  for (const auto& data : {arguments.path, arguments.targets})
    if (fs::equivalent(out, data, error)) fail_usage("{}: holds the data; -o names another file for the config", out);
  if (!arguments.force && fs::symlink_status(out, error).type() != fs::file_type::not_found)
    fail_usage("{}: exists already; --force replaces it, and -o names another file", out);
  file_to_write(out);  // throws if it cannot be written
}

std::vector<std::string> commands_for(const std::string& config, const std::string& use, const std::string& device) {
  std::vector<std::string> commands = {"metaformer train --config " + shell_word(config), "metaformer evaluate", use};
  if (device != "auto")
    for (auto& command : commands) command += " --device " + device;
  return commands;
}

// A command that uses the trained model.
std::string use_of(const TextLook& look) {
  const auto prompt = look.first_word.empty() ? "" : " --prompt " + shell_word(look.first_word);
  return "metaformer sample" + prompt + " --tokens 300";
}
std::string use_of(const TableLook&) { return "echo 'A new text' | metaformer predict"; }
std::string use_of(const PairsLook&) { return "echo 'A new source' | metaformer predict"; }

nlohmann::ordered_json to_json(const StartingConfig& config) {
  nlohmann::ordered_json json = {{"parameters", config.parameters},
                                 {"memory_bytes", config.memory},
                                 {"seconds", config.seconds()},
                                 {"chosen", nlohmann::ordered_json::object()},
                                 {"suggested", nlohmann::ordered_json::object()}};
  for (const auto& [key, value, reason, is_suggestion] : config.keys)
    json[is_suggestion ? "suggested" : "chosen"][key] = {{"value", value}, {"reason", reason}};
  return json;
}

template <class Look>
void report_as_json(const std::string& out, const std::string& yaml, const Look& look, const StartingConfig& config,
                    const std::vector<std::string>& commands) {
  nlohmann::ordered_json json = {{"config", nullptr}, {"found", to_json(look)}, {"warnings", look.warnings}};
  json.update(to_json(config));
  json["commands"] = commands;
  if (out == "-")
    json["yaml"] = yaml;
  else
    json["config"] = out;
  print_json(json);
}

// Chooses a config for the data, and writes it.
template <class LookAt>
void run_init(const InitArguments& arguments, LookAt look_at) {
  const auto name = stem_of(arguments.path) + ".yaml";
  const auto out = arguments.out.empty() ? name : arguments.out;
  std::error_code ignored;
  if (out != "-" && fs::exists(arguments.path, ignored)) require_free(out, arguments);  // else look_at() throws
  const auto machine = machine_of(select_device(arguments.device));
  const auto look = look_at();
  const auto config = choose_config(look, machine);
  const auto estimate = describe(config, machine);
  const auto commands = commands_for(out == "-" ? name : out, use_of(look), arguments.device);

  auto facts = describe(look);
  for (const auto& fact : facts) log::info("{}", fact);
  for (const auto& warning : look.warnings) log::warning("{}", warning);
  log::info("chosen: {} (rough estimates)", estimate);
  std::vector<std::string> head = {
      commands.front(),
      fmt::format("Written by metaformer init {}; metaformer config explain KEY describes a key.", arguments.kind)};
  for (auto& fact : facts) head.push_back("- " + std::move(fact) + ".");
  for (const auto& warning : look.warnings) head.push_back("- Warning: " + warning + ".");
  head.push_back(fmt::format("- Rough estimates: {}.", estimate));
  const auto yaml = to_yaml(config, head);

  if (out != "-") write_file_atomically(file_to_write(out), yaml);
  if (arguments.json) return report_as_json(out, yaml, look, config, commands);
  out == "-" ? print(yaml) : print_lines("{}\n", out);
  log::info("next:");
  for (const auto& command : commands) log::info("  {}", command);
}

CLI::App& add_kind(CLI::App& init, const std::string& kind, const std::string& help, const std::string& path_help,
                   const std::shared_ptr<InitArguments>& arguments) {
  auto& command = *init.add_subcommand(kind, help);
  arguments->kind = kind;
  add_text(command, "path", arguments->path, "FILE", path_help)->required();
  add_text(command, "--out,-o", arguments->out, "CONFIG",
           "config to write; -: standard output; default: the name of the data with .yaml, in the working folder");
  add_device(command, arguments->device);
  command.add_flag("--force", arguments->force, "replace an existing config");
  add_json(command, arguments->json, "what was found and chosen, as one line of JSON on stdout");
  return command;
}

void add_text_kind(CLI::App& init) {
  const auto arguments = std::make_shared<InitArguments>();
  auto& command =
      add_kind(init, "text", "a language model of texts",
               "plain text, JSON lines or Parquet, compressed (gzip, zstd) or not; or a folder of them", arguments);
  add_text(command, "--text", arguments->first, "MEMBER",
           "member of JSON lines, or column of a Parquet file, that holds the text; default: `text`, else the member "
           "with the longest texts");
  command.footer(
      "Examples:\n"
      "  metaformer init text book.txt\n"
      "  metaformer init text posts.jsonl.gz --text body -o posts.yaml");
  command.callback(
      [arguments] { run_init(*arguments, [&] { return look_at_text(arguments->path, arguments->first); }); });
}

void add_table_kind(CLI::App& init) {
  const auto arguments = std::make_shared<InitArguments>();
  auto& command = add_kind(init, "table", "a classifier of the texts in a table",
                           "table of texts and labels (CSV, TSV, JSON lines), compressed or not", arguments);
  constexpr auto column = "COLUMN";
  add_text(command, "--text", arguments->first, column,
           "column of the texts: its name, or its number counted from 1; default: by its name (text, review, ...), "
           "else the column with the longest texts");
  add_text(command, "--label", arguments->second, column,
           "column of the labels, in the same form; default: by its name (label, class, rating, ...), else the column "
           "with the fewest "
           "distinct values");
  command.footer(
      "Examples:\n"
      "  metaformer init table reviews.csv\n"
      "  metaformer init table tickets.jsonl --text subject --label team --json");
  command.callback(
      [arguments] { run_init(*arguments, [&] { return look_at_table(arguments->path, arguments->columns()); }); });
}

void add_pairs_kind(CLI::App& init) {
  const auto arguments = std::make_shared<InitArguments>();
  auto& command =
      add_kind(init, "pairs", "an encoder and decoder that writes a target for a source",
               "table of sources and targets (TSV, CSV, JSON lines), or a file with a source on each line", arguments);
  add_text(command, "targets", arguments->targets, "TARGETS", "file with the target of each line of the sources");
  constexpr auto column = "COLUMN";
  add_text(command, "--source", arguments->first, column,
           "column of the sources: its name, or its number counted from 1; default: by its name (source, question, "
           "...), else the first column of texts");
  add_text(command, "--target", arguments->second, column,
           "column of the targets, in the same form; default: by its name (target, answer, ...), else the second "
           "column of texts");
  command.footer(
      "Examples:\n"
      "  metaformer init pairs sentences.tsv\n"
      "  metaformer init pairs train.de train.en -o de-en.yaml");
  command.callback([arguments] {
    const auto targets = arguments->targets.empty() ? std::nullopt : std::optional<fs::path>(arguments->targets);
    run_init(*arguments, [&] { return look_at_pairs(arguments->path, targets, arguments->columns()); });
  });
}

}  // namespace

void add_init_command(CLI::App& app) {
  auto& init = *app.add_subcommand("init", "look at your data, and write a config that trains on them");
  init.require_subcommand(1);
  add_text_kind(init);
  add_table_kind(init);
  add_pairs_kind(init);
  init.footer(
      "Prints what it has found on stderr, and the path of the config on stdout. docs/your_own_data.md shows the way\n"
      "from a file to a trained model.\n"
      "Examples:\n"
      "  metaformer init text book.txt\n"
      "  metaformer init table reviews.csv\n"
      "  metaformer init pairs train.de train.en");
}

}  // namespace metaformer
