#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "config/explain.h"
#include "config/json_schema.h"
#include "config/search_space.h"
#include "config/writer.h"
#include "data/statistics.h"
#include "model/memory_estimate.h"
#include "model/model_costs.h"
#include "run/huggingface/model_folder.h"

namespace metaformer {

namespace {

struct ConfigArguments {
  ConfigChoice choice;
  bool json = false, changes = false, digest = false;
  std::string key;
};

struct DrawArguments {
  std::string space;
  std::uint64_t index = 0, seed = 0;
  bool json = false;
};

void run_dump(const ConfigArguments& arguments) {
  const auto config = arguments.choice.load().config;
  if (arguments.digest) return print(config_digest(config) + "\n");
  if (!arguments.changes) return arguments.json ? print_json(config_to_json(config)) : print(config_to_yaml(config));
  const auto changes = flattened(config_changes(config));
  if (arguments.json) return print_json(changes);
  for (const auto& [key, value] : changes) print_lines("{}: {}\n", key, value);
}

void warn_of_missing_files(Experiment experiment) {
  for (const auto& [key, path] : paths_in(experiment.config)) {
    if (path == nullptr) continue;
    const auto place = with_seed(*path, experiment.config.train);
    std::error_code ignored;
    if (!std::filesystem::exists(place, ignored))
      log::warning("{}: {}: {}: no such file or folder", experiment.provenance[key].str(), key, place);
  }
}

void run_check(const ConfigArguments& arguments) {
  const auto experiment = arguments.choice.load();
  for (const auto& warning : config_warnings(experiment.config, experiment.provenance)) log::warning("{}", warning);
  warn_of_missing_files(experiment);
  const auto [counted, classes] = count_data(experiment.config);
  const auto memory =
      estimate_memory(experiment.config, {.vocabulary = counted.value_or(0), .classes = classes.value_or(0)});
  const auto machine = machine_memory();
  const auto mixers = mixer_figures(experiment.config);
  if (arguments.json) {
    nlohmann::ordered_json json = {{"valid", true},
                                   {"name", experiment.name},
                                   {"parameters", memory.parameters},
                                   {counted ? "vocabulary" : "assumed_vocabulary", memory.vocabulary},
                                   {"memory_bytes", memory.total()},
                                   {"machine_memory_bytes", machine}};
    if (mixers) {
      json["mixer"] = {{"kind", mixers->kind},
                       {"parameters", mixers->parameters},
                       {"operations_per_token", mixers->costs.operations_per_token}};
      if (mixers->costs.state_bytes) json["mixer"]["state_bytes"] = *mixers->costs.state_bytes;
    }
    return print_json(json);
  }
  print_lines("{}: valid\n",
              arguments.choice.config.empty() ? "the defaults" : find_config(arguments.choice.config).string());
  print_lines("  parameters  about {} (with {} of {} tokens)\n", human_count(static_cast<double>(memory.parameters)),
              counted ? "the data's vocabulary" : "an assumed vocabulary", memory.vocabulary);
  if (mixers)
    print_lines("  mixers      {}: {} parameters, {} operations per token{}\n", mixers->kind,
                human_count(static_cast<double>(mixers->parameters)), human_count(mixers->costs.operations_per_token),
                mixers->costs.state_bytes
                    ? fmt::format(", {} of state after {} tokens",
                                  human_bytes(static_cast<std::uint64_t>(*mixers->costs.state_bytes)),
                                  context_of(experiment.config.model))
                    : std::string());
  print_lines(
      "  memory      about {}: weights {}, gradients {}, optimiser {}, activations {}, the program {}; this machine "
      "has {}\n",
      human_bytes(memory.total()), human_bytes(memory.weights), human_bytes(memory.gradients),
      human_bytes(memory.optimizer), human_bytes(memory.activations), human_bytes(memory.program),
      human_bytes(machine));
  if (memory.total() > machine)
    log::warning(
        "this will not fit into the memory of this machine on the CPU; lower train.batch_size (and raise "
        "train.accumulate), model.context or model.width");
}

// The keys at or below `key`. It need not start at the top: "mixer" means "model.mixer". "model.mixer.kind" is the key
// "model.mixer" itself.
std::vector<FieldHelp> fields_below(const std::string& key) {
  auto all = explain_config();
  if (key.empty()) return all;
  if (constexpr std::string_view kind = ".kind"; key.ends_with(kind)) {
    const auto section = "." + key.substr(0, key.size() - kind.size());
    std::erase_if(all,
                  [&](const auto& field) { return field.kinds.empty() || !("." + field.path).ends_with(section); });
    return all;
  }
  std::vector<FieldHelp> from_top, anywhere;
  for (auto& field : all) {
    const auto path = "." + field.path + ".", wanted = "." + key + ".";
    if (path.starts_with(wanted)) from_top.push_back(field);
    if (path.find(wanted) != std::string::npos) anywhere.push_back(std::move(field));
  }
  return from_top.empty() ? anywhere : from_top;
}

[[noreturn]] void fail_no_key(const std::string& key) {
  std::vector<std::string> names;
  for (const auto& field : explain_config())
    for (const auto& name : {field.path, field.path.substr(0, field.path.rfind('.'))}) names.push_back(name);
  const auto near = did_you_mean(key, names);
  fail_usage("config explain: no key {}{}", in_quotes(key), near.empty() ? suggest_key(key, {}) : near);
}

nlohmann::ordered_json to_json(const FieldHelp& field) {
  nlohmann::ordered_json json = {{"key", field.path},
                                 {"applies", applies_to(field)},
                                 {"expected", field.expected},
                                 {"default", field.fallback},
                                 {"meaning", field.meaning}};
  for (const auto& kind : field.kinds) json["kinds"][kind.name] = kind.summary;
  return json;
}

void run_explain(const ConfigArguments& arguments) {
  const auto fields = fields_below(arguments.key);
  if (fields.empty()) fail_no_key(arguments.key);
  auto list = nlohmann::ordered_json::array();
  for (const auto& field : fields) {
    list.push_back(to_json(field));
    if (arguments.json) continue;
    const auto applies = applies_to(field);
    print_lines("{}{}\n    {}\n    {}; default {}\n", field.path,
                applies.empty() ? "" : fmt::format("  (with {})", applies), field.meaning, field.expected,
                field.fallback);
    for (const auto& kind : field.kinds) print_lines("      {}: {}\n", kind.name, kind.summary);
  }
  if (arguments.json) print_json(list);
}

void run_draw(const DrawArguments& arguments) {
  const auto values = draw(read_search_space(arguments.space), arguments.seed, arguments.index);
  nlohmann::ordered_json json;
  for (const auto& [key, value] : values) {
    const auto plain = parse_json<nlohmann::ordered_json>(value);  // a number, true, false or null
    json[key] = plain.is_discarded() ? nlohmann::ordered_json(value) : plain;
    if (!arguments.json) print_lines("--set {}={}\n", key, value);
  }
  if (arguments.json) print_json(json);
}

void add_draw_command(CLI::App& config) {
  auto arguments = std::make_shared<DrawArguments>();
  auto& draw = *config.add_subcommand("draw", "print a draw from a space of configs, as --set arguments");
  add_text(draw, "--space", arguments->space, "FILE",
           "YAML file of keys with one of {uniform: [a, b]}, {log_uniform: [a, b]}, {uniform_integer: [a, b]}, "
           "{log_uniform_integer: [a, b]}, {choice: [x, y, ...]}")
      ->required();
  draw.add_option("--index", arguments->index,
                  "number of the draw, from 0; a value is a function of seed, key and index")
      ->transform(whole_number(0, std::int64_t{1} << 53))
      ->type_name("I")
      ->required();
  add_whole_number(draw, "--seed", arguments->seed, 0, std::int64_t{1} << 53, "seed of the draws");
  add_json(draw, arguments->json, "JSON on stdout");
  draw.footer(
      "Examples:\n"
      "  metaformer config draw --space space.yaml --index 3\n"
      "  metaformer train --config my.yaml $(metaformer config draw --space space.yaml --index 3)");
  draw.callback([arguments] { run_draw(*arguments); });
}

struct ImportArguments {
  std::string folder, out;
  bool json = false;
};

void run_import(const ImportArguments& arguments) {
  const auto& given = arguments.folder;
  std::error_code ignored;
  if (!std::filesystem::is_directory(given, ignored))
    fail_data("{}: {}; expected a folder with config.json, model.safetensors and a tokenizer. {}", given,
              std::filesystem::exists(given, ignored) ? "not a folder" : "no such folder", download_advice);
  const auto folder = std::filesystem::absolute(given).lexically_normal().string();  // for any working folder
  const auto model = read_huggingface(folder, /*with_tensors=*/false);
  ExperimentConfig config;
  config.model = model.config;
  config.train.init_from = folder;
  if (model.tokenizer)
    language_model(config).data.tokenizer = PretrainedTokenizerOptions{.path = folder};
  else
    log::warning("{} has no tokenizer, which training needs", given);
  check_config(config, {});
  const auto changes = config_changes(config);
  const auto text = arguments.json
                        ? json_text(changes) + "\n"
                        : fmt::format("# The model of {}, for further training: set data.path to your text.\n{}",
                                      printable(given), json_to_yaml(changes));
  if (arguments.out.empty()) return print(text);
  write_file_atomically(file_to_write(arguments.out), text);
  log::info("saved {}", arguments.out);
}

void add_import_command(CLI::App& config) {
  auto& command = *config.add_subcommand(
      "import",
      "print a config for the GPT-2, LLaMA or exported model in a Hugging Face folder, from whose weights it starts");
  auto arguments = std::make_shared<ImportArguments>();
  add_text(command, "folder", arguments->folder, "FOLDER", "folder with config.json, model.safetensors and a tokenizer")
      ->required();
  add_json(command, arguments->json, "JSON on stdout");
  command.add_option("--out", arguments->out,
                     "file to write in place of stdout; unchanged if the folder cannot be read");
  command.footer("Examples:\n  metaformer config import gpt2 --out my_gpt2.yaml");
  command.callback([arguments] { run_import(*arguments); });
}

void run_schema(const std::string& out) {
  const auto text = config_schema().dump(1) + "\n";
  if (out.empty()) return print(text);
  write_file_atomically(file_to_write(out), text);
  log::info("saved {}", out);
}

void add_schema_command(CLI::App& config) {
  auto& command = *config.add_subcommand("schema", "print the JSON schema of configs, for editors");
  auto out = std::make_shared<std::string>();
  command.add_option("--out", *out, "file to write in place of stdout");
  command.footer(
      "An editor with a YAML language server then completes and checks a config that begins with the line\n"
      "  # yaml-language-server: $schema=metaformer.schema.json\n"
      "Examples:\n  metaformer config schema --out metaformer.schema.json");
  command.callback([out] { run_schema(*out); });
}

}  // namespace

void add_config_command(CLI::App& app) {
  auto& config = *app.add_subcommand("config", "show, check, explain, draw and import configs");
  config.require_subcommand(1);
  auto arguments = std::make_shared<ConfigArguments>();

  auto& dump = *config.add_subcommand("dump", "print the resolved config: every key with its value");
  arguments->choice.add_to(dump, /*required=*/false);
  add_json(dump, arguments->json, "JSON on stdout");
  auto* changes = dump.add_flag("--changes", arguments->changes, "only the values that are not defaults");
  dump.add_flag("--digest", arguments->digest,
                "a digest of the values that are not defaults: the key of a run in results")
      ->excludes(changes);
  dump.footer("Examples:\n  metaformer config dump --config shakespeare_metric.yaml --set train.steps=100 > mine.yaml");
  dump.callback([arguments] { run_dump(*arguments); });

  auto& check = *config.add_subcommand(
      "check", "check a config: exit code 0 if it is valid, else 2 and one line with the reason");
  arguments->choice.add_to(check, /*required=*/false);
  add_json(check, arguments->json, "JSON on stdout");
  check.footer(
      "Examples:\n  metaformer config check my.yaml\n  metaformer config check my.yaml --set model.width=1024");
  check.callback([arguments] { run_check(*arguments); });

  auto& explain = *config.add_subcommand("explain", "explain all keys, or those below one: range, default and meaning");
  add_text(explain, "key", arguments->key, "KEY", "for example train, mixer, or model.mixer.constraint");
  add_json(explain, arguments->json, "JSON on stdout");
  explain.footer(
      "Examples:\n"
      "  metaformer config explain train\n"
      "  metaformer config explain mixer\n"
      "  metaformer config explain model.mixer.constraint");
  explain.callback([arguments] { run_explain(*arguments); });

  add_draw_command(config);
  add_import_command(config);
  add_schema_command(config);

  config.footer("Examples:\n  metaformer config check my.yaml\n  metaformer config explain model.mixer");
}

}  // namespace metaformer
