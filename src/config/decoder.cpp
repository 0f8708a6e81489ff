#include "config/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "config/experiment_config.h"
#include "config/writer.h"
#include "config/yaml.h"

namespace metaformer {

// A source of a config that names another task or another model than the sources before it.

// Resets the section whose kind changes to that kind's defaults. Kept of the earlier sources: with another task the
// data keys that both tasks have, with another model its context and what has an effect on both models.
void switch_kinds(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance);

namespace {

struct ForeignName {
  std::string_view names;  // of nanoGPT, Hugging Face and the like, a space between them
  std::string_view key;    // ours; an option begins with --
};

constexpr ForeignName foreign_names[] = {
    {"lr max_lr", "train.learning_rate"},
    {"min_lr", "train.schedule.floor"},
    {"batch bs micro_batch_size train_batch_size per_device_train_batch_size", "train.batch_size"},
    {"max_iters max_steps num_steps epochs num_epochs num_train_epochs", "train.steps"},
    {"warmup warmup_iters num_warmup_steps warmup_ratio", "train.schedule.warmup_steps"},
    {"gradient_accumulation_steps grad_accum accumulate_grad_batches", "train.accumulate"},
    {"decay_lr scheduler lr_scheduler lr_scheduler_type", "train.schedule"},
    {"beta1 beta2 adam_beta1 adam_beta2", "train.optimizer.betas"},
    {"optim adam adamw", "train.optimizer"},
    {"grad_clip max_grad_norm gradient_clip_val", "train.clip"},
    {"dtype torch_dtype fp16 bf16 mixed_precision", "train.precision"},
    {"eval_iters", "train.evaluation.batches"},
    {"eval_steps", "train.eval_interval"},
    {"save_steps", "train.checkpoint_interval"},
    {"model_name_or_path pretrained_model_name_or_path", "train.init_from"},
    {"n_layer n_layers num_layers num_hidden_layers", "model.layers"},
    {"n_head n_heads num_heads num_attention_heads nhead", "model.heads"},
    {"n_embd d_model hidden_size embed_dim embedding_dim dim", "model.width"},
    {"block_size n_ctx n_positions context_length max_length max_seq_len max_position_embeddings", "model.context"},
    {"dropout_rate resid_pdrop hidden_dropout_prob attention_dropout", "model.dropout"},
    {"intermediate_size n_inner d_ff dim_feedforward mlp_ratio", "model.feed_forward.ratio"},
    {"hidden_act activation_function", "model.feed_forward.activation"},
    {"tie_word_embeddings", "model.embedding.tie"},
    {"attention attn attention_type", "model.mixer"},
    {"vocab_size", "data.tokenizer.vocabulary"},
    {"dataset dataset_name", "data.corpus"},
    {"text_column", "data.text_field"},
    {"label_column", "data.label_field"},
    {"out_dir output_dir", "--out"},
    {"device", "--device"},
    {"resume resume_from_checkpoint", "--resume"},
};

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

const std::vector<FieldHelp>& every_field() {
  static const auto fields = explain_config();
  return fields;
}

// Every key and section; those nested least come first.
std::vector<std::string> every_path() {
  std::vector<std::string> paths;
  for (const auto& field : every_field())
    for (auto end = field.path.find('.');; end = field.path.find('.', end + 1)) {
      paths.push_back(field.path.substr(0, end));
      if (end == std::string::npos) break;
    }
  const auto depth = [](const std::string& path) { return std::count(path.begin(), path.end(), '.'); };
  std::stable_sort(paths.begin(), paths.end(), [&](const auto& a, const auto& b) { return depth(a) < depth(b); });
  return paths;
}

// "train: {steps: ...}" for "train.steps".
std::string nested(std::string_view path) {
  const auto dot = path.find('.');
  if (dot == std::string_view::npos) return fmt::format("{}: ...", path);
  return fmt::format("{}: {{{}}}", path.substr(0, dot), nested(path.substr(dot + 1)));
}

// "; only train.schedule: cosine or linear have it" for a key of other kinds than the chosen one; else "".
std::string kinds_with(const std::string& path) {
  KindCondition found;
  for (const auto& field : every_field()) {
    if (field.conditions.empty() || (field.path != path && !field.path.starts_with(path + "."))) continue;
    if (found.section.empty()) found.section = field.conditions.back().section;
    for (const auto& [section, kinds] : field.conditions)
      for (const auto& kind : kinds)
        if (section == found.section && std::find(found.kinds.begin(), found.kinds.end(), kind) == found.kinds.end())
          found.kinds.push_back(kind);
  }
  const auto* verb = found.kinds.size() == 1 ? "has" : "have";
  return found.kinds.empty() ? ""
                             : fmt::format("; only {}: {} {} it", found.section, join_alternatives(found.kinds), verb);
}

}  // namespace

std::string full_key(std::string_view name) {
  for (const auto& path : every_path())
    if (last_part(path) == name) return path;
  for (const auto& [names, key] : foreign_names)
    if (fmt::format(" {} ", names).find(fmt::format(" {} ", name)) != std::string::npos) return std::string(key);
  return "";
}

std::string suggest_key(const std::string& path, const std::vector<std::string>& known) {
  const auto name = last_part(path);
  auto key = full_key(name);
  if (const auto sibling = closest_match(name, known); key.empty() && !sibling.empty())
    key = path.substr(0, path.size() - name.size()) + sibling;
  if (key.empty()) {
    std::vector<std::string> names;
    for (const auto& other : every_path()) names.emplace_back(last_part(other));
    key = full_key(closest_match(name, names));
  }
  return key.empty() ? "" : fmt::format("; did you mean '{}'?", key);
}

void refuse_unknown_key(const ConfigKey& key, const std::string& path, const std::string& context,
                        const std::vector<std::string>& known) {
  auto advice = "; a key has no dots: write " + printable(nested(path));
  if (key.name.find('.') == std::string::npos) {
    const auto kinds = kinds_with(path);
    advice = kinds.empty() ? suggest_key(path, known) : context + kinds;
    if (advice.empty()) advice = fmt::format("{} (keys here: {})", context, fmt::join(known, ", "));
  }
  throw Error(ExitCode::usage, fmt::format("{}: {}: unknown key{}", key.location.str(), printable(path), advice));
}

namespace {

// The kind that a source gives to a section, as the kind's defaults; nothing where it names none that exists.
template <class V>
std::optional<V> named_kind(const ConfigNode& source, std::string_view section) {
  const auto* node = source.find(section);
  if (node != nullptr && node->kind == ConfigNode::Kind::map) node = node->find("kind");
  if (node == nullptr || node->kind != ConfigNode::Kind::scalar) return std::nullopt;
  return make_kind<V>(node->scalar);
}

void forget_section(Provenance& provenance, const std::string& section) {
  std::erase_if(provenance, [&](const auto& entry) { return entry.first.starts_with(section + "."); });
}

bool has_key(const nlohmann::ordered_json& section, std::string_view path) {
  const auto dot = path.find('.');
  const auto found = section.find(std::string(path.substr(0, dot)));
  if (found == section.end()) return false;
  return dot == std::string_view::npos || (found->is_object() && has_key(*found, path.substr(dot + 1)));
}

void forget_absent_keys(const ExperimentConfig& config, Provenance& provenance) {
  const auto json = config_to_json(config);
  std::erase_if(provenance, [&](const auto& entry) { return !has_key(json, entry.first); });
}

bool names_tokenizer(const Provenance& provenance) {
  return std::any_of(provenance.begin(), provenance.end(),
                     [](const auto& entry) { return entry.first.starts_with("data.tokenizer."); });
}

// Each task has its own default tokenizer.
void keep_data(const DataConfig& before, DataConfig& now, const Provenance& provenance) {
  const auto usual = std::exchange(now, before);
  if (!names_tokenizer(provenance)) now.tokenizer = usual.tokenizer;
}

void switch_task(TaskConfig task, ExperimentConfig& config, Provenance& provenance) {
  if (const auto* before = data_of(config))
    std::visit(
        [&](auto& now) {
          if constexpr (requires { now.data; }) keep_data(*before, now.data, provenance);
        },
        task);
  const auto* before = text_data_of(config.task);
  if (auto* now = text_data_of(task); before != nullptr && now != nullptr) *now = *before;
  config.task = std::move(task);
  forget_section(provenance, "task");
}

// The options of a classifier that a linear model does not have are reset, too.
void reset_network_options(ClassificationConfig& task, Provenance& provenance) {
  const auto before = std::exchange(task, ClassificationConfig{});
  task.truncation = before.truncation;
  task.selection_metric = before.selection_metric;
  task.data = before.data;
  std::erase_if(provenance, [](const auto& entry) {
    const auto& key = entry.first;
    return key.starts_with("task.") && key != "task.kind" && key != "task.truncation" && key != "task.selection_metric";
  });
}

void switch_model(ModelConfig model, ExperimentConfig& config, Provenance& provenance) {
  std::visit([&](auto& now) { now.context = context_of(config.model); }, model);
  config.model = std::move(model);
  std::erase_if(provenance,
                [](const auto& entry) { return entry.first.starts_with("model.") && entry.first != "model.context"; });
  if (!is<LinearConfig>(config.model)) return;
  const LinearTrainConfig kept = config.train;
  config.train = TrainConfig{};
  static_cast<LinearTrainConfig&>(config.train) = kept;
  if (auto* task = std::get_if<ClassificationConfig>(&config.task)) reset_network_options(*task, provenance);
}

}  // namespace

void switch_kinds(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance) {
  auto task = named_kind<TaskConfig>(source, "task");
  auto model = named_kind<ModelConfig>(source, "model");
  const bool other_task = task && task->index() != config.task.index();
  const bool other_model = model && model->index() != config.model.index();
  if (other_task) switch_task(std::move(*task), config, provenance);
  if (other_model) switch_model(std::move(*model), config, provenance);
  if (other_task || other_model) forget_absent_keys(config, provenance);
}

namespace {

[[noreturn]] void fail(const ConfigNode& node, const std::string& path, const std::string& what) {
  throw Error(ExitCode::usage, fmt::format("{}: {}: {}", node.location.str(), path, what));
}

[[noreturn]] void fail_type(const ConfigNode& node, const std::string& path, const std::string& expected) {
  fail(node, path, fmt::format("expected {}, got {}", expected, node.describe()));
}

bool parse_number(const std::string& text, double& value) {
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  return error == std::errc() && stop == end && begin != end;
}

const std::string& scalar_of(const ConfigNode& node, const std::string& path, const std::string& expected) {
  if (node.kind != ConfigNode::Kind::scalar) fail_type(node, path, expected);
  return node.scalar;
}

void decode(const ConfigNode& node, const std::string& path, std::int64_t& value) {
  if (parse_whole_number(scalar_of(node, path, "an integer"), value) != WholeNumber::valid)
    fail_type(node, path, "an integer");
}

void decode(const ConfigNode& node, const std::string& path, double& value) {
  if (!parse_number(scalar_of(node, path, "a number"), value)) fail_type(node, path, "a number");
}

void decode(const ConfigNode& node, const std::string& path, bool& value) {
  const auto& text = scalar_of(node, path, "true or false");
  if (text != "true" && text != "false") fail_type(node, path, "true or false");
  value = text == "true";
}

// A name. Empty ones are errors everywhere, so that an unset variable of a shell never means a default.
void decode(const ConfigNode& node, const std::string& path, std::string& value) {
  if (node.is_empty()) fail(node, path, "is empty; expected a text");
  value = scalar_of(node, path, "a text");
}

void decode(const ConfigNode& node, const std::string& path, PathText& value) {
  if (node.is_empty()) fail(node, path, "is empty; expected a path");
  value = scalar_of(node, path, "a path");
}

void decode(const ConfigNode& node, const std::string& path, FreeText& value) {
  if (node.is_missing) fail(node, path, "is empty; expected a text, which is written \"\" if it has no characters");
  value = scalar_of(node, path, "a text");
}

void decode(const ConfigNode& node, const std::string& path, TextValue& value) {
  const auto& text = scalar_of(node, path, value.expected);
  if (!value.is_allowed(text)) fail_type(node, path, value.expected);
  value.text = text;
}

template <class T>
std::string_view described() {
  if constexpr (std::is_same_v<T, PathText>) return "a path";
  if constexpr (std::is_same_v<T, std::string>) return "a text";
  if constexpr (std::is_same_v<T, std::int64_t>) return "an integer";
  return "a number";
}

template <class T>
void decode(const ConfigNode& node, const std::string& path, std::optional<T>& value) {
  if (node.is_empty()) fail(node, path, fmt::format("is empty; expected {}, or null for none", described<T>()));
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

void decode(const ConfigNode& node, const std::string& path, Choice& value) {
  const auto& names = value.names;
  const auto& text = scalar_of(node, path, join_alternatives(names));
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end())
    fail(node, path,
         fmt::format("unknown value {}; expected {}{}", in_quotes(text), join_alternatives(names),
                     did_you_mean(text, names)));
  value.index = static_cast<std::size_t>(found - names.begin());
}

template <class E>
requires std::is_enum_v<E>
void decode(const ConfigNode& node, const std::string& path, E& value) {
  Choice choice{names_of<E>(), static_cast<std::size_t>(value)};
  decode(node, path, choice);
  value = static_cast<E>(choice.index);
}

class SectionDecoder {
 public:
  SectionDecoder(const ConfigNode& section, std::string path, Provenance& provenance)
      : section_(section), path_(std::move(path)), provenance_(provenance) {}

  template <class T>
  void operator()(const char* name, T& value, const char*) {
    field(name, value);
  }
  template <class T>
  void operator()(const char* name, T& value, const Range& range, const char*) {
    if constexpr (std::is_same_v<T, std::int64_t>) refuse_too_large(name, range);
    field(name, value);
  }
  template <class V, class Section>
  void section_of(const char* name, const char* owner, V& variant, const Section& section) {
    visit_section_of(variant, section, [&](auto& value) {
      know(name);
      if (const auto* node = section_.find(name))
        decode_section(*node, full(name), value, fmt::format(" for {} '{}'", owner, kind_of(variant)));
    });
  }

  // A key that no field took: of another kind, or misspelt.
  void refuse_unknown_keys() const {
    for (const auto& [key, value] : section_.entries)
      if (std::find(known_.begin(), known_.end(), key.name) == known_.end())
        refuse_unknown_key(key, full(key.name), context_, known_);
  }

  void know(const char* name) { known_.emplace_back(name); }
  void set_context(std::string context) { context_ = std::move(context); }

 private:
  std::string full(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }

  // A number outside its type: it cannot be stored for a later source to correct.
  void refuse_too_large(const char* name, const Range& range) const {
    const auto* node = section_.find(name);
    std::int64_t ignored = 0;
    if (node != nullptr && node->kind == ConfigNode::Kind::scalar &&
        parse_whole_number(node->scalar, ignored) == WholeNumber::too_large)
      fail(*node, full(name), fmt::format("{} is out of range; must be {}", printable(node->scalar), range.str()));
  }

  template <class T>
  void field(const char* name, T& value) {
    know(name);
    const auto* node = section_.find(name);
    if (node == nullptr) return;
    const auto path = full(name);
    if constexpr (has_kinds<T>) {
      decode_kind(*node, path, value);
    } else if constexpr (requires(SectionDecoder & d) { visit(d, value); }) {
      decode_section(*node, path, value, "");
    } else {
      decode(*node, path, value);
      provenance_[path] = node->location;
    }
  }

  template <class T>
  void decode_section(const ConfigNode& node, const std::string& path, T& value, std::string context) {
    if (node.kind != ConfigNode::Kind::map) refuse_plain_value(node, path, value);
    SectionDecoder inner(node, path, provenance_);
    inner.set_context(std::move(context));
    visit(inner, value);
    inner.refuse_unknown_keys();
  }

  template <class T>
  [[noreturn]] void refuse_plain_value(const ConfigNode& node, const std::string& path, T& section) const {
    const ConfigNode nothing;
    SectionDecoder keys(nothing, path, provenance_);
    visit(keys, section);
    const bool is_override = node.location.line == 0;
    fail(node, path,
         fmt::format("expected a {}, got {} (keys here: {})", is_override ? "section" : "section of 'key: value' lines",
                     node.describe(), fmt::join(keys.known_, ", ")));
  }

  // `mixer: metric` is short for `mixer: {kind: metric}`.
  template <class V>
  void decode_kind(const ConfigNode& node, const std::string& path, V& value) {
    const auto kinds = kinds_of<V>();
    if (node.kind == ConfigNode::Kind::scalar) return choose_kind(node, path, path, value);
    if (node.kind != ConfigNode::Kind::map)
      fail_type(node, path, fmt::format("{}, or a section like {{kind: {}}}", join_alternatives(kinds), kinds.front()));
    if (const auto* kind = node.find("kind")) choose_kind(*kind, path, path + ".kind", value);
    SectionDecoder inner(node, path, provenance_);
    inner.know("kind");
    inner.set_context(fmt::format(" for {} '{}'", path_.empty() ? path : "kind", kind_of(value)));
    visit_kind(value, [&](auto& options) { visit(inner, options); });
    inner.refuse_unknown_keys();
  }

  template <class V>
  void choose_kind(const ConfigNode& node, const std::string& section, const std::string& path, V& value) {
    const auto kinds = kinds_of<V>();
    const auto& name = scalar_of(node, path, join_alternatives(kinds));
    auto made = make_kind<V>(name);
    if (!made)
      fail(node, path,
           fmt::format("unknown value {}; expected {}{}", in_quotes(name), join_alternatives(kinds),
                       did_you_mean(name, kinds)));
    if (kind_of(*made) != kind_of(value)) {
      value = *made;
      forget(section);
    }
    provenance_[section + ".kind"] = node.location;
  }

  // The options of the kind that was replaced are gone, and so is who set them.
  void forget(const std::string& path) {
    std::erase_if(provenance_, [&](const auto& entry) { return entry.first.starts_with(path + "."); });
  }

  const ConfigNode& section_;
  std::string path_;
  Provenance& provenance_;
  std::vector<std::string> known_;
  std::string context_;
};

}  // namespace

void apply_source(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance) {
  switch_kinds(source, config, provenance);
  SectionDecoder decoder(source, "", provenance);
  decoder.know("base");  // taken out of the source by the loader; here only so that it is suggested
  visit(decoder, config);
  decoder.refuse_unknown_keys();
}

}  // namespace metaformer
