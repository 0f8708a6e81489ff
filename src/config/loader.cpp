#include "config/loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <set>
#include <sstream>

#include "base/platform.h"
#include "base/text.h"
#include "config/explain.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

// The kind that a source names for a section, with its default options; nothing if it names no existing kind.
template <class V>
std::optional<V> named_kind(const ConfigNode& source, std::string_view section) {
  const auto* node = source.find(section);
  if (node != nullptr && node->kind == ConfigNode::Kind::map) node = node->find("kind");
  if (node == nullptr || node->kind != ConfigNode::Kind::scalar) return std::nullopt;
  return make_kind<V>(node->scalar);
}

// Removes the keys for which `is_forgotten(key)` is true.
void forget(Provenance& provenance, const auto& is_forgotten) {
  std::erase_if(provenance, [&](const auto& entry) { return is_forgotten(entry.first); });
}

void forget_section(Provenance& provenance, const std::string& section) {
  forget(provenance, [&](const std::string& key) { return key.starts_with(section + "."); });
}

void forget_absent_keys(ExperimentConfig& config, Provenance& provenance) {
  std::set<std::string> keys;
  for (const auto& [path, field] : rows_of(config))
    keys.insert(std::holds_alternative<Kinds>(field.value) ? path + ".kind" : path);
  forget(provenance, [&](const std::string& key) { return !keys.contains(key); });
}

void switch_task(TaskConfig task, ExperimentConfig& config, Provenance& provenance) {
  const auto before = config;
  config.task = std::move(task);
  const auto* data = data_of(before);
  if (auto* now = data_of(config); data != nullptr && now != nullptr) {
    const auto usual = std::exchange(*now, *data);  // each task has its own default tokenizer
    if (std::ranges::none_of(provenance, [](const auto& entry) { return entry.first.starts_with("data.tokenizer."); }))
      now->tokenizer = usual.tokenizer;
  }
  const auto* text = text_data_of(before.task);
  if (auto* now = text_data_of(config.task); text != nullptr && now != nullptr) *now = *text;
  forget_section(provenance, "task");
}

void switch_model(ModelConfig model, ExperimentConfig& config, Provenance& provenance) {
  std::visit([&](auto& now) { now.context = context_of(config.model); }, model);
  config.model = std::move(model);
  forget(provenance, [](const std::string& key) { return key.starts_with("model.") && key != "model.context"; });
  if (!is<LinearConfig>(config.model)) return;
  const LinearTrainConfig kept = config.train;
  config.train = TrainConfig{};
  static_cast<LinearTrainConfig&>(config.train) = kept;
  auto* task = std::get_if<ClassificationConfig>(&config.task);
  if (task == nullptr) return;
  // The options of a classifier that a linear model does not have are reset, too.
  const auto before = std::exchange(*task, ClassificationConfig{});
  task->truncation = before.truncation;
  task->selection_metric = before.selection_metric;
  task->data = before.data;
  forget(provenance, [](const std::string& key) {
    return key.starts_with("task.") && key != "task.kind" && key != "task.truncation" && key != "task.selection_metric";
  });
}

// If a source names another task or model than the sources before it, this section gets the new kind's defaults.
// Another task keeps the data keys that both tasks have; another model keeps model.context and the keys that have an
// effect on both models.
void switch_kinds(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance) {
  auto task = named_kind<TaskConfig>(source, "task");
  auto model = named_kind<ModelConfig>(source, "model");
  const bool other_task = task && task->index() != config.task.index();
  const bool other_model = model && model->index() != config.model.index();
  if (other_task) switch_task(std::move(*task), config, provenance);
  if (other_model) switch_model(std::move(*model), config, provenance);
  if (other_task || other_model) forget_absent_keys(config, provenance);
}

// train.steps and train.epochs both give the length of a training: a source that sets only one of them replaces the
// other one of the sources before.
void replace_length(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance) {
  const auto* train = source.find("train");
  const auto sets = [&](const char* key) {
    const auto* node = train == nullptr ? nullptr : train->find(key);
    return node != nullptr && node->kind != ConfigNode::Kind::null;
  };
  if (sets("steps") == sets("epochs")) return;
  if (sets("steps")) return config.train.epochs.reset();
  config.train.steps = TrainConfig{}.steps;
  provenance.erase("train.steps");
}

// Tokens in files have a tokenizer and are no texts to be read: a source that names them replaces the keys of the
// sources before that say where texts come from and how they are read. In the same way a source's path replaces a
// mixture.
void replace_texts(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance) {
  const auto* section = source.find("data");
  auto* data = text_data_of(config.task);
  if (section == nullptr || data == nullptr) return;
  const TextDataConfig usual;
  const auto replace = [&](const char* key, auto member) {
    if (section->find(key) != nullptr) return;
    data->*member = usual.*member;
    provenance.erase(std::string("data.") + key);
    forget_section(provenance, std::string("data.") + key);
  };
  const auto *mixture = section->find("mixture"), *path = section->find("path");
  const bool has_mixture = mixture != nullptr && !mixture->items.empty();
  const bool has_path = path != nullptr && !path->scalar.empty();
  if (has_mixture)
    replace("path", &TextDataConfig::path);
  else if (has_path)
    replace("mixture", &TextDataConfig::mixture);
  if (has_mixture || (has_path && has_own_tokenizer(path->scalar))) replace("tokenizer", &TextDataConfig::tokenizer);
  if (!has_mixture && !(has_path && is_token_folder(path->scalar))) return;
  replace("corpus", &TextDataConfig::corpus);
  replace("validation_path", &TextDataConfig::validation_path);
  replace("validation_fraction", &TextDataConfig::validation_fraction);
  replace("format", &TextDataConfig::format);
  replace("text_field", &TextDataConfig::text_field);
  replace("malformed_limit", &TextDataConfig::malformed_limit);
}

// How a message names a plain value.
template <class T>
constexpr const char* expected_of() {
  if (std::is_same_v<T, bool>) return "true or false";
  if (std::is_same_v<T, std::int64_t>) return "an integer";
  if (std::is_same_v<T, double>) return "a number";
  return std::is_same_v<T, PathText> ? "a path" : "a text";
}

// Returns false if the text is not such a value.
template <class T>
bool read(const std::string& text, T& value) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return parse_whole_number(text, value) == WholeNumber::valid;
  } else if constexpr (std::is_same_v<T, double>) {
    const auto number = as_number<double>(std::string_view(text).substr(text.starts_with('+') ? 1 : 0));
    value = number.value_or(value);
    return number.has_value();
  } else if constexpr (std::is_same_v<T, bool>) {
    value = text == "true";
    return value || text == "false";
  } else {
    value = text;
    return true;
  }
}

// Empty texts are errors nearly everywhere, so that an unset variable of a shell never means a default.
template <class T>
void decode(const ConfigNode& node, const std::string& path, T& value) {
  constexpr bool may_be_empty = std::is_same_v<T, FreeText>;
  if (std::is_base_of_v<std::string, T> && (may_be_empty ? node.is_missing : node.is_empty()))
    fail_at(node.location, "{}: is empty; expected {}{}", path, expected_of<T>(),
            may_be_empty ? ", which is written \"\" if it has no characters" : "");
  if (node.kind != ConfigNode::Kind::scalar || !read(node.scalar, value)) fail_type(node, path, expected_of<T>());
}

template <class T>
void decode(const ConfigNode& node, const std::string& path, std::optional<T>& value) {
  if (node.is_empty()) fail_at(node.location, "{}: is empty; expected {}, or null for none", path, expected_of<T>());
  if (node.kind == ConfigNode::Kind::null) return value.reset();
  decode(node, path, value.emplace());
}

void decode(const ConfigNode& node, const std::string& path, std::array<double, 2>& value) {
  if (node.kind != ConfigNode::Kind::sequence || node.items.size() != 2) fail_type(node, path, "a list of 2 numbers");
  for (std::size_t i = 0; i < 2; ++i) decode(node.items[i], path, value[i]);
}

void decode(const ConfigNode& node, const std::string& path, std::vector<std::string>& value) {
  if (node.kind != ConfigNode::Kind::sequence) fail_type(node, path, "a list of texts");
  value.clear();
  for (const auto& item : node.items) decode(item, path, value.emplace_back());
}

// The index of the node's name in `names`.
std::size_t decode_name(const ConfigNode& node, const std::string& path, const std::vector<std::string>& names) {
  if (node.kind != ConfigNode::Kind::scalar) fail_type(node, path, join_alternatives(names));
  const auto found = std::find(names.begin(), names.end(), node.scalar);
  if (found == names.end())
    fail_at(node.location, "{}: unknown value {}; expected {}{}", path, in_quotes(node.scalar),
            join_alternatives(names), suggest_value(node.scalar, names));
  return static_cast<std::size_t>(found - names.begin());
}

void decode_value(const ConfigNode& node, const std::string& path, const Field& field) {
  const bool is_scalar = node.kind == ConfigNode::Kind::scalar;
  std::int64_t ignored = 0;
  // A number that its type cannot hold is an error at once: it cannot be stored for a later source to correct.
  if (std::holds_alternative<std::int64_t*>(field.value) && is_scalar &&
      parse_whole_number(node.scalar, ignored) == WholeNumber::too_large)
    fail_at(node.location, "{}: {} is out of range; must be {}", path, printable(node.scalar), field.range->str());
  if (const auto* names = std::get_if<Enumeration>(&field.value))
    return names->set(decode_name(node, path, names->names));
  if (const auto* form = std::get_if<TextForm>(&field.value)) {
    if (!is_scalar || !form->read(node.scalar)) fail_type(node, path, form->expected);
    return;
  }
  const auto decode_plain = [&](const auto& target) {
    if constexpr (requires { *target; }) decode(node, path, *target);
  };
  std::visit(decode_plain, field.value);
}

struct Decoder {
  Provenance& provenance;

  // `context` follows an unknown key in messages: " for kind 'metric'", or "". `known`: valid keys that are not fields.
  void decode_section(const ConfigNode& node, const std::string& path, const std::vector<Field>& fields,
                      const std::string& context, std::vector<std::string> known = {}) {
    std::vector<const Field*> present;
    for (const auto& field : fields) {
      const auto* section = std::get_if<Section>(&field.value);
      if (section != nullptr && section->fields().empty()) continue;
      present.push_back(&field);
      known.push_back(field.name);
    }
    if (node.kind != ConfigNode::Kind::map)
      fail_at(node.location, "{}: expected a {}, got {} (keys here: {})", path,
              node.location.line == 0 ? "section" : "section of 'key: value' lines", node.describe(),
              fmt::join(known, ", "));
    for (const auto* field : present)
      if (const auto* value = node.find(field->name)) decode_field(*value, path, *field, fields);
    for (const auto& [key, value] : node.entries)
      if (std::ranges::find(known, key.name) == known.end())
        refuse_unknown_key(key, join(path, key.name), context, known);
  }

  static std::string join(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
  }

  static std::string for_kind(const std::string& section, const Kinds& kinds) {
    return fmt::format(" for {} '{}'", section, kinds.current());
  }

  void decode_field(const ConfigNode& node, const std::string& section, const Field& field,
                    const std::vector<Field>& siblings) {
    const auto path = join(section, field.name);
    if (const auto* kinds = std::get_if<Kinds>(&field.value)) {
      decode_kind(node, path, *kinds, section.empty() ? path : "kind");
    } else if (const auto* inner = std::get_if<Section>(&field.value)) {
      const auto owner = std::ranges::find(siblings, inner->owner, &Field::name);
      decode_section(node, path, inner->fields(),
                     owner == siblings.end() ? "" : for_kind(owner->name, std::get<Kinds>(owner->value)));
    } else {
      decode_value(node, path, field);
      provenance[path] = node.location;
    }
  }

  // `mixer: metric` is short for `mixer: {kind: metric}`.
  void decode_kind(const ConfigNode& node, const std::string& path, const Kinds& kinds, const std::string& named) {
    const auto names = kinds.names();
    if (kinds.resize && node.kind == ConfigNode::Kind::sequence) return decode_list(node, path, kinds);
    const auto* list = node.kind == ConfigNode::Kind::map ? node.find("kind") : nullptr;
    if (kinds.resize && list != nullptr && list->kind == ConfigNode::Kind::sequence) {  // a list, and options of items
      decode_list(*list, path, kinds);
      return decode_section(node, path, kinds.items(), "; " + path + " is a list", {"kind"});
    }
    if (kinds.is_list()) {
      const bool replaces = node.kind != ConfigNode::Kind::map || node.find("kind") != nullptr;
      if (!replaces) return decode_section(node, path, kinds.items(), "; " + path + " is a list");
      kinds.resize(0);
      forget_section(provenance, path);
    }
    if (node.kind == ConfigNode::Kind::scalar) return choose_kind(node, path, path, kinds);
    if (node.kind != ConfigNode::Kind::map)
      fail_type(node, path, fmt::format("{}, or a section like {{kind: {}}}", join_alternatives(names), names.front()));
    if (const auto* kind = node.find("kind")) choose_kind(*kind, path, path + ".kind", kinds);
    decode_section(node, path, kinds.fields(), for_kind(named, kinds), {"kind"});
  }

  // Items are sections. An item may also be written as the value of its first key, which has kinds.
  void decode_list(const ConfigNode& node, const std::string& path, const Kinds& kinds) {
    if (node.items.empty()) fail_at(node.location, "{}: is an empty list; expected at least one item", path);
    kinds.resize(node.items.size());
    forget_section(provenance, path);
    provenance[path + ".kind"] = node.location;
    const auto sections = kinds.items();
    for (std::size_t i = 0; i < sections.size(); ++i) {
      const auto fields = std::get<Section>(sections[i].value).fields();
      const auto& item = node.items[i];
      const auto inner = join(path, sections[i].name);
      if (item.kind == ConfigNode::Kind::map && item.find("kind") == nullptr)
        decode_section(item, inner, fields, "");
      else
        decode_field(item, inner, fields.front(), fields);
    }
  }

  void choose_kind(const ConfigNode& node, const std::string& section, const std::string& path, const Kinds& kinds) {
    const auto names = kinds.names();
    const auto& name = names[decode_name(node, path, names)];
    if (name != kinds.current()) {
      kinds.select(name);
      forget_section(provenance, section);  // the options of the kind that was replaced are gone
    }
    provenance[section + ".kind"] = node.location;
  }
};

bool is_bare_name(const std::string& name) { return !name.empty() && name.find('/') == std::string::npos; }

// `path` if it is a file, else `path`.yaml if that is one; else empty.
fs::path with_ending(const fs::path& path) {
  std::error_code ignored;
  for (const auto& found : {path, fs::path(path.string() + ".yaml")})
    if (fs::is_regular_file(found, ignored)) return found;
  return {};
}

std::vector<std::string> config_names(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const auto& folder : folders) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().extension() == ".yaml") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void fail_not_found(const std::string& prefix, const std::string& name) {
  const auto error = [&](const std::string& what) { return Error(ExitCode::usage, prefix + name + ": " + what); };
  std::error_code ignored;
  if (fs::is_directory(name, ignored))
    throw error(
        "a folder, and a config is a YAML file; to train on the texts in it: metaformer train --config "
        "shakespeare_metric.yaml --set data.path=" +
        name);
  if (!is_bare_name(name) && fs::exists(name, ignored)) throw error("not a file; a config is a YAML file");
  if (!is_bare_name(name))
    throw error("no such config file" +
                did_you_mean(fs::path(name).filename().string(), config_names({fs::path(name).parent_path()})));
  auto folders = config_folders();
  std::string looked = "in the working folder";
  for (const auto& folder : folders)
    looked += fmt::format("{} in {}", &folder == &folders.back() ? " and" : ",", folder.string());
  folders.insert(folders.begin(), fs::path("."));
  throw error("no such config; looked " + looked + did_you_mean(name, config_names(folders)));
}

// Whether a file has the name of a text or a table, and is not YAML with a section of a config.
bool is_named_as_data(const fs::path& path) {
  constexpr std::array endings = {".txt", ".text", ".csv", ".tsv", ".jsonl", ".ndjson", ".gz"};
  if (std::ranges::find(endings, path.extension()) == endings.end()) return false;
  try {
    const auto root = read_yaml_file(path);
    return std::ranges::none_of(std::array{"base", "task", "data", "model", "train"},
                                [&](const char* section) { return root.find(section) != nullptr; });
  } catch (const Error&) {
    return true;
  }
}

// Advice for a text or a table that was given in place of a config.
std::string data_advice(const fs::path& path) {
  const auto inner = path.extension() == ".gz" ? path.stem() : path;
  const bool is_table = inner.extension() == ".csv" || inner.extension() == ".tsv";
  return fmt::format(
      "this is {}, and a config is a YAML file; to train on it: metaformer train --config {} --set data.path={}",
      is_table ? "a table" : "a text", is_table ? "text_classifier.yaml" : "shakespeare_metric.yaml", path.string());
}

// `prefix` of errors: the place where the name is written, or "".
fs::path look_up(const std::string& name, const std::string& prefix) {
  if (auto found = with_ending(name); !found.empty()) return found;
  if (is_bare_name(name))
    for (const auto& folder : config_folders())
      if (auto found = with_ending(folder / name); !found.empty()) return found;
  fail_not_found(prefix, name);
}

// Looks for a base beside the file that names it, then as for any other name of a config.
fs::path find_base(const ConfigNode& base, const fs::path& from) {
  if (base.kind != ConfigNode::Kind::scalar) fail_type(base, "base", "the name of a config, or a list of names");
  if (base.scalar.empty()) fail_at(base.location, "base: is empty; expected the name of a config");
  const fs::path named = base.scalar;
  if (named.is_relative())
    if (auto found = with_ending(from.parent_path() / named); !found.empty()) return found;
  return look_up(base.scalar, base.location.str() + ": base: ");
}

// Collects the sources of a file in the order in which they apply: those of its bases, then its own. A file that is a
// base of several is applied only once, at its first place: a second time would undo the changes of the files between.
struct SourceCollector {
  std::vector<fs::path> applied;
  std::vector<ConfigNode> sources;

  void collect(const fs::path& path, std::vector<fs::path> chain) {
    constexpr std::size_t longest_chain = 32;
    const auto canonical = fs::weakly_canonical(path);
    if (std::ranges::find(applied, canonical) != applied.end()) return;
    auto source = read_yaml_file(path);
    chain.push_back(canonical);
    std::vector<ConfigNode> bases;
    if (const auto* base = source.find("base"))
      bases = base->kind == ConfigNode::Kind::sequence ? base->items : std::vector{*base};
    for (const auto& name : bases) {
      const auto found = find_base(name, path);
      if (std::ranges::find(chain, fs::weakly_canonical(found)) != chain.end())
        fail_at(name.location, "base: {} extends itself (a loop)", found.string());
      if (chain.size() >= longest_chain)
        fail_at(name.location, "base: more than {} files extend one another", longest_chain);
      collect(found, chain);
    }
    std::erase_if(source.entries, [](const auto& entry) { return entry.key.name == "base"; });
    applied.push_back(canonical);
    sources.push_back(std::move(source));
  }
};

ConfigNode read_overrides(const std::vector<std::string>& overrides) {
  auto source = tree_from_overrides(overrides);
  if (const auto* base = source.find("base"))
    fail_at(base->location, "base: belongs in a config file; pass that file with --config");
  return source;
}

Experiment resolve(const std::string& name, const std::vector<ConfigNode>& sources) {
  Experiment experiment{.name = name, .config = {}, .provenance = {}};
  for (const auto& source : sources) apply_source(source, experiment.config, experiment.provenance);
  derive_defaults(experiment.config, experiment.provenance);
  check_config(experiment.config, experiment.provenance);
  const auto absolute = [](const std::string& path) {
    const auto whole = fs::absolute(path).lexically_normal();
    return (whole.has_filename() ? whole : whole.parent_path()).string();  // without the slash behind a folder
  };
  for (const auto& [key, path] : paths_in(experiment.config))
    if (path != nullptr) *path = absolute(*path);
  if (auto* text = text_data_of(experiment.config.task))
    for (auto& entry : text->mixture) {
      const auto weight = entry.substr(entry.rfind('='));
      entry = absolute(entry.substr(0, entry.rfind('='))) + weight;
    }
  return experiment;
}

}  // namespace

void apply_source(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance) {
  switch_kinds(source, config, provenance);
  replace_length(source, config, provenance);
  replace_texts(source, config, provenance);
  // The loader has removed `base` from the source. It is a known key here only so that messages can suggest it.
  Decoder{provenance}.decode_section(source, "", fields_of(config), "", {"base"});
}

std::vector<fs::path> config_folders() {
  std::vector<fs::path> folders;
  if (const char* listed = std::getenv("METAFORMER_CONFIG_PATH")) {
    std::istringstream stream(listed);
    for (std::string folder; std::getline(stream, folder, ':');)
      if (!folder.empty()) folders.emplace_back(folder);
  }
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  const auto installed = program.parent_path().parent_path() / "share/metaformer/configs";
  folders.push_back(!error && fs::is_directory(installed, error) ? installed : fs::path(build_info().source_configs));
  return folders;
}

fs::path find_config(const std::string& name) { return look_up(name, ""); }

Experiment load_experiment(const std::string& name, const std::vector<std::string>& overrides) {
  constexpr std::uintmax_t largest_config = 1 << 20;
  const auto path = find_config(name);
  try {
    SourceCollector collector;
    collector.collect(path, {});
    collector.sources.push_back(read_overrides(overrides));
    return resolve(path.stem().string(), collector.sources);
  } catch (const Error& error) {
    const bool is_data = is_named_as_data(path);
    std::error_code ignored;
    if (!is_data && fs::file_size(path, ignored) <= largest_config) throw;
    throw Error(error.code(), fmt::format("{} {}", is_data ? path.string() + ":" : std::string(error.what()) + ";",
                                          data_advice(path)));
  }
}

Experiment default_experiment(const std::vector<std::string>& overrides) {
  return resolve("default", {read_overrides(overrides)});
}

Experiment load_run_experiment(const fs::path& file, const std::vector<std::string>& overrides) {
  return resolve(file.stem().string(), {read_yaml_file(file), read_overrides(overrides)});
}

}  // namespace metaformer
