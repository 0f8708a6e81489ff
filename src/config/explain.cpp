#include "config/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <regex>

#include "base/text.h"
#include "config/experiment_config.h"
#include "config/writer.h"

namespace metaformer {

namespace {

std::string type_of(const bool*) { return "true or false"; }
std::string type_of(const std::int64_t*) { return "integer"; }
std::string type_of(const double*) { return "number"; }
std::string type_of(const std::string*) { return "text"; }
std::string type_of(const PathText*) { return "path"; }
std::string type_of(const std::array<double, 2>*) { return "list of 2 numbers"; }
std::string type_of(const std::vector<std::string>*) { return "list of texts"; }
template <class T>
std::string type_of(const std::optional<T>*) {
  return type_of(static_cast<const T*>(nullptr)) + " or null";
}
std::string type_of(const TextForm& value) { return value.type; }
std::string type_of(const Enumeration& value) { return join_alternatives(value.names); }
std::string type_of(const Kinds& value) { return join_alternatives(value.names()); }
std::string type_of(const Section&) { return "section"; }

std::vector<std::string> choices_of(const Field::Value& value) {
  if (std::holds_alternative<bool*>(value)) return {"true", "false"};
  if (const auto* names = std::get_if<Enumeration>(&value)) return names->names;
  const auto* kinds = std::get_if<Kinds>(&value);
  return kinds != nullptr ? kinds->names() : std::vector<std::string>{};
}

std::vector<FieldHelp> explain(const std::vector<Field>& section, const std::string& prefix);

// The help that keys() returns for every kind. A key that several kinds have with the same meaning is one entry; a key
// that every kind has gets no condition.
std::vector<FieldHelp> explain_kinds(const Kinds& kinds, const std::string& section,
                                     const std::function<std::vector<FieldHelp>()>& keys) {
  std::vector<FieldHelp> all;
  std::vector<KindCondition> conditions;  // of each entry of `all`
  const auto chosen = kinds.current();
  const auto names = kinds.names();
  for (const auto& kind : names) {
    kinds.select(kind);
    for (const auto& key : keys()) {
      const auto place = static_cast<std::size_t>(std::ranges::find(all, key) - all.begin());
      if (place == all.size()) {
        all.push_back(key);
        conditions.push_back({section, {}});
      }
      conditions[place].kinds.push_back(kind);
    }
  }
  kinds.select(chosen);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (conditions[i].kinds.size() < names.size()) all[i].conditions.insert(all[i].conditions.begin(), conditions[i]);
  return all;
}

FieldHelp explain(const Field& field, const std::string& path, const Kinds* kinds) {
  const auto type = std::visit([](const auto& value) { return type_of(value); }, field.value);
  return {.path = path,
          .expected = field.range ? fmt::format("{}, {}", type, field.range->str()) : type,
          .fallback = kinds != nullptr ? kinds->current() : yaml_value(json_value(field)),
          .meaning = field.help,
          .choices = choices_of(field.value),
          .kinds = kinds != nullptr ? kinds->kinds : std::vector<KindHelp>{},
          .conditions = {}};
}

std::vector<FieldHelp> explain(const std::vector<Field>& section, const std::string& prefix) {
  std::vector<FieldHelp> all;
  for (const auto& field : section) {
    const auto path = prefix + field.name;
    const auto* inner = std::get_if<Section>(&field.value);
    const auto* kinds = std::get_if<Kinds>(&field.value);
    const auto keys = [&] { return explain(inner != nullptr ? inner->fields() : kinds->fields(), path + "."); };
    std::vector<FieldHelp> more;
    if (inner == nullptr) all.push_back(explain(field, path, kinds));
    if (kinds != nullptr) {
      more = explain_kinds(*kinds, path, keys);
    } else if (inner != nullptr) {
      const auto owner = std::ranges::find(section, inner->owner, &Field::name);
      more = owner == section.end() ? keys() : explain_kinds(std::get<Kinds>(owner->value), owner->name, keys);
    }
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

struct ForeignName {
  std::string_view names;  // in nanoGPT, Hugging Face and the like, separated by spaces
  std::string_view key;    // ours; an option begins with --
};

constexpr ForeignName foreign_names[] = {
    {"lr max_lr", "train.learning_rate"},
    {"min_lr", "train.schedule.floor"},
    {"batch bs micro_batch_size train_batch_size per_device_train_batch_size", "train.batch_size"},
    {"max_iters max_steps num_steps", "train.steps"},
    {"max_epochs num_epochs num_train_epochs", "train.epochs"},
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
    {"processes nproc_per_node", "--processes"},
    {"max_new_tokens", "--tokens"},
    {"resume resume_from_checkpoint", "--resume"},
};

// Keys of other programs without a counterpart.
constexpr std::pair<std::string_view, std::string_view> needless_names[] = {
    {"compile torch_compile", "the program is compiled already: leave it out"},
    {"wandb wandb_log wandb_project wandb_run_name report_to",
     "every run writes metrics.jsonl and files for TensorBoard: leave it out"},
};

// Values of other programs.
struct ForeignValue {
  std::string_view names;
  std::string_view among;      // a value of the same key
  std::string_view suggested;  // that value, or another key with its value
};

constexpr ForeignValue foreign_values[] = {
    {"attention mha softmax self_attention", "scaled_dot_product", "scaled_dot_product"},
    {"rope", "rotary", "rotary"},
    {"bfloat16", "bf16", "bf16"},
    {"float16", "fp16", "fp16"},
    {"swiglu", "gated", "gated"},
    {"swiglu", "silu", "model.feed_forward=gated"},
};

// Whether a list of names, separated by spaces, has this one.
bool has_name(std::string_view names, std::string_view name) {
  return fmt::format(" {} ", names).find(fmt::format(" {} ", name)) != std::string::npos;
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// Every key and section; those nested least come first.
std::vector<std::string> every_path() {
  std::vector<std::string> paths;
  for (const auto& field : explain_config())
    for (auto end = field.path.find('.');; end = field.path.find('.', end + 1)) {
      paths.push_back(field.path.substr(0, end));
      if (end == std::string::npos) break;
    }
  std::ranges::stable_sort(paths, {}, [](const std::string& path) { return std::ranges::count(path, '.'); });
  return paths;
}

// "train: {steps: ...}" for "train.steps".
std::string nested(std::string_view path) {
  const auto dot = path.find('.');
  if (dot == std::string_view::npos) return fmt::format("{}: ...", path);
  return fmt::format("{}: {{{}}}", path.substr(0, dot), nested(path.substr(dot + 1)));
}

// "model.mixer.rank" for "model.mixer.0.mixer.rank": the key of a list's item as that of a single mixer.
std::string without_items(const std::string& path) {
  static const std::regex item("\\.[0-9]+\\.mixer\\b");
  return std::regex_replace(path, item, "");
}

// "; only train.schedule: cosine or linear have it" for a key of other kinds than the chosen one; else "".
std::string kinds_with(const std::string& path) {
  KindCondition found;
  for (const auto& field : explain_config()) {
    if (field.conditions.empty() || (field.path != path && !field.path.starts_with(path + "."))) continue;
    if (found.section.empty()) found.section = field.conditions.back().section;
    for (const auto& [section, kinds] : field.conditions)
      for (const auto& kind : kinds)
        if (section == found.section && std::ranges::find(found.kinds, kind) == found.kinds.end())
          found.kinds.push_back(kind);
  }
  const auto* verb = found.kinds.size() == 1 ? "has" : "have";
  return found.kinds.empty() ? ""
                             : fmt::format("; only {}: {} {} it", found.section, join_alternatives(found.kinds), verb);
}

}  // namespace

const std::vector<FieldHelp>& explain_config() {
  static const auto fields = [] {
    ExperimentConfig defaults;
    return explain(fields_of(defaults), "");
  }();
  return fields;
}

std::string applies_to(const FieldHelp& field) {
  std::string text;
  for (const auto& [section, kinds] : field.conditions)
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", section, join_alternatives(kinds));
  return text;
}

std::string full_key(std::string_view name) {
  for (const auto& path : every_path())
    if (last_part(path) == name) return path;
  for (const auto& [names, key] : foreign_names)
    if (has_name(names, name)) return std::string(key);
  return "";
}

std::string suggest_value(const std::string& given, const std::vector<std::string>& known) {
  for (const auto& [names, among, suggested] : foreign_values)
    if (has_name(names, given) && std::ranges::find(known, among) != known.end())
      return fmt::format("; did you mean '{}'?", suggested);
  return did_you_mean(given, known);
}

std::string suggest_key(const std::string& path, const std::vector<std::string>& known) {
  const auto name = last_part(path);
  for (const auto& [names, why] : needless_names)
    if (has_name(names, name)) return fmt::format("; {}", why);
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
    const auto kinds = kinds_with(without_items(path));
    advice = kinds.empty() ? suggest_key(path, known) : context + kinds;
    if (advice.empty()) advice = fmt::format("{} (keys here: {})", context, fmt::join(known, ", "));
  }
  fail_at(key.location, "{}: unknown key{}", printable(path), advice);
}

}  // namespace metaformer
