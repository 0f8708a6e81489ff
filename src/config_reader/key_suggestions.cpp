#include "config_reader/key_suggestions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/text.h"
#include "config_reader/key_notation.h"
#include "config_reader/moved_keys.h"

namespace metaformer {

namespace {

struct ForeignName {
  std::string_view names;  // of nanoGPT, Hugging Face and the like, a space between them
  std::string_view key;    // ours
};

constexpr ForeignName foreign_names[] = {
    {"lr max_lr base_lr peak_lr learning_rate_init", "train.learning_rate"},
    {"min_lr lr_min final_lr", "train.schedule.floor"},
    {"batch bs bsz micro_batch_size train_batch_size per_device_train_batch_size per_gpu_train_batch_size",
     "train.batch_size"},
    {"max_iters max_steps num_steps n_steps total_steps iterations iters num_iterations lr_decay_iters epochs n_epochs "
     "num_epochs max_epochs num_train_epochs",
     "train.steps"},
    {"warmup warmup_iters num_warmup_steps warmup_ratio", "train.schedule.warmup_steps"},
    {"gradient_accumulation_steps grad_accum accumulation_steps accumulate_grad_batches accum_steps",
     "train.accumulate"},
    {"decay_lr scheduler lr_scheduler lr_scheduler_type lr_schedule", "train.schedule"},
    {"wd l2", "train.optimizer.weight_decay"},
    {"beta1 beta2 adam_beta1 adam_beta2 adam_betas", "train.optimizer.betas"},
    {"optim optimiser adam adamw sgd muon", "train.optimizer"},
    {"eps adam_eps adam_epsilon", "train.optimizer.epsilon"},
    {"ema ema_decay use_ema", "train.weight_average.decay"},
    {"grad_clip max_grad_norm gradient_clip_val clip_grad_norm grad_norm_clip", "train.clip"},
    {"dtype fp16 bf16 tf32 mixed_precision amp torch_dtype", "train.precision"},
    {"eval_iters", "train.evaluation.batches"},
    {"eval_steps evaluation_steps eval_every", "train.eval_interval"},
    {"logging_steps log_every", "train.log_interval"},
    {"save_steps save_interval save_every checkpoint_every", "train.checkpoint_interval"},
    {"save_total_limit", "train.keep_checkpoints"},
    {"random_seed manual_seed", "train.seed"},
    {"pretrained pretrained_model model_name_or_path pretrained_model_name_or_path", "train.init_from"},
    {"frozen freeze_layers frozen_layers", "train.freeze"},
    {"layer_decay llrd layerwise_lr_decay layer_wise_lr_decay", "train.layer_rate_decay"},
    {"lr_mult lr_multiplier lr_multipliers param_groups", "train.rate_factors"},
    {"label_smoothing_factor", "task.label_smoothing"},
    {"early_stopping_patience", "train.patience"},
    {"metric_for_best_model", "task.selection_metric"},
    {"n_layer n_layers num_layers num_hidden_layers depth num_blocks n_blocks", "model.layers"},
    {"n_head n_heads num_heads num_attention_heads nhead", "model.heads"},
    {"n_embd n_embed d_model hidden_size hidden_dim embed_dim embedding_dim dim model_dim", "model.width"},
    {"block_size n_ctx n_positions ctx_len context_length context_size max_length max_seq_len max_seq_length seq_len "
     "seq_length sequence_length max_position_embeddings model_max_length",
     "model.context"},
    {"drop dropout_rate resid_pdrop embd_pdrop attn_pdrop hidden_dropout_prob attention_dropout "
     "attention_probs_dropout_prob classifier_dropout",
     "model.dropout"},
    {"intermediate_size n_inner ffn_dim d_ff dim_feedforward mlp_ratio", "model.feed_forward.ratio"},
    {"hidden_act activation_function act_fn", "model.feed_forward.activation"},
    {"tie_word_embeddings tie_weights weight_tying", "model.embedding.tie"},
    {"initializer_range init_std", "model.embedding.std"},
    {"use_bias", "model.bias"},
    {"position_embedding_type pos_embedding", "model.positions"},
    {"attention attn attention_type attn_type attn_implementation token_mixer", "model.mixer"},
    {"vocab vocab_size vocabulary_size", "data.tokenizer.vocabulary"},
    {"tokenizer_type tokenizer_name", "data.tokenizer"},
    {"dataset dataset_name", "data.corpus"},
    {"train_file data_file data_path data_dir input_file", "data.path"},
    {"validation_file eval_file val_file val_path", "data.validation_path"},
    {"test_file", "data.test_path"},
    {"val_fraction val_split validation_split", "data.validation_fraction"},
    {"text_column text_column_name", "data.text_field"},
    {"label_column label_column_name", "data.label_field"},
};

struct Explanation {
  std::string_view names;
  std::string_view text;
};

constexpr Explanation explanations[] = {
    {"out_dir output_dir", "; the run folder is no key but an option: --out"},
    {"device devices accelerator", "; the device is no key but an option: --device"},
    {"resume resume_from_checkpoint", "; that is no key but an option: --resume"},
};

bool names_it(std::string_view names, std::string_view name) {
  const auto spaced = " " + std::string(names) + " ";
  return spaced.find(" " + std::string(name) + " ") != std::string::npos;
}

// "Batch-Size" as "batch_size".
std::string normalised(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  return text;
}

const std::vector<FieldHelp>& every_field() {
  static const auto fields = explain_config();
  return fields;
}

// Every key and section, each once.
const std::vector<std::string>& every_path() {
  static const auto all = [] {
    std::vector<std::string> paths;
    const auto add = [&](const std::string& path) {
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
    };
    for (const auto& field : every_field()) {
      for (auto dot = field.path.find('.'); dot != std::string::npos; dot = field.path.find('.', dot + 1))
        add(field.path.substr(0, dot));
      add(field.path);
    }
    return paths;
  }();
  return all;
}

std::ptrdiff_t depth(std::string_view path) { return std::count(path.begin(), path.end(), '.'); }

// Keys that have that name, but for `path` itself; those nested least come first.
std::vector<std::string> keys_named(std::string_view name, std::string_view path) {
  std::vector<std::string> found;
  std::copy_if(every_path().begin(), every_path().end(), std::back_inserter(found),
               [&](const auto& key) { return last_part(key) == name && key != path; });
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return depth(a) < depth(b); });
  return found;
}

// The names of earlier versions and of other programs.
std::string foreign_key(std::string_view name) {
  if (auto moved = moved_key_named(name); !moved.empty()) return moved;
  for (const auto& foreign : foreign_names)
    if (names_it(foreign.names, name)) return std::string(foreign.key);
  return "";
}

// The nearest key elsewhere by its last part.
std::string nearest_elsewhere(std::string_view name, std::string_view path) {
  std::vector<std::string> names;
  for (const auto& key : every_path())
    if (key != path) names.emplace_back(last_part(key));
  const auto nearest = closest_match(name, names);
  const auto keys = nearest.empty() ? std::vector<std::string>{} : keys_named(nearest, path);
  return keys.size() == 1 ? keys.front() : "";
}

// How many of the outermost conditions are of the same sections in all fields.
std::size_t common_conditions(const std::vector<const FieldHelp*>& fields) {
  if (fields.empty()) return 0;
  const auto& first = fields.front()->conditions;
  auto common = first.size();
  for (const auto* field : fields) {
    const auto differing = std::mismatch(first.begin(), first.end(), field->conditions.begin(), field->conditions.end(),
                                         [](const auto& a, const auto& b) { return a.section == b.section; });
    common = std::min(common, static_cast<std::size_t>(differing.first - first.begin()));
  }
  return common;
}

std::string ask(const std::string& key) { return key.empty() ? "" : fmt::format("; did you mean '{}'?", key); }

}  // namespace

std::string full_key(std::string_view name) {
  const auto wanted = normalised(name);
  const auto keys = keys_named(wanted, "");
  if (keys.empty()) return foreign_key(wanted);
  return keys.size() == 1 || depth(keys[0]) < depth(keys[1]) ? keys.front() : "";
}

std::string suggest_key(const std::string& path, const std::vector<std::string>& here) {
  constexpr std::size_t most = 3;
  const auto name = normalised(last_part(path));
  const auto elsewhere = keys_named(name, path);
  if (!elsewhere.empty() && elsewhere.size() <= most)
    return fmt::format("; did you mean '{}'?", fmt::join(elsewhere, "' or '"));
  if (const auto key = foreign_key(name); !key.empty() && key != path) return ask(key);
  for (const auto& [names, text] : explanations)
    if (names_it(names, name)) return std::string(text);
  if (const auto near = closest_match(last_part(path), here); !near.empty())
    return ask(path.substr(0, path.size() - last_part(path).size()) + near);
  return ask(nearest_elsewhere(name, path));
}

std::optional<KindCondition> kinds_with(const std::string& path) {
  std::vector<const FieldHelp*> fields;
  for (const auto& field : every_field())
    if (field.path == path) fields.push_back(&field);
  if (fields.empty())
    for (const auto& field : every_field())
      if (field.path.starts_with(path + ".")) fields.push_back(&field);
  const auto common = common_conditions(fields);
  if (common == 0) return std::nullopt;
  KindCondition condition{fields.front()->conditions[common - 1].section, {}};
  for (const auto* field : fields)
    for (const auto& kind : field->conditions[common - 1].kinds)
      if (std::find(condition.kinds.begin(), condition.kinds.end(), kind) == condition.kinds.end())
        condition.kinds.push_back(kind);
  return condition;
}

std::vector<KindCondition> unmet_conditions(const std::string& path, const ExperimentConfig& config) {
  const auto json = config_to_json(config);
  const auto is_met = [&](const KindCondition& condition) {
    auto pointer = "/" + condition.section + "/kind";
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    const nlohmann::ordered_json::json_pointer place(pointer);
    const auto kind = json.contains(place) ? json.at(place).get<std::string>() : "";
    return std::find(condition.kinds.begin(), condition.kinds.end(), kind) != condition.kinds.end();
  };
  std::optional<std::vector<KindCondition>> fewest;  // of the several meanings that a key may have
  for (const auto& field : every_field()) {
    if (field.path != path) continue;
    auto unmet = field.conditions;
    std::erase_if(unmet, is_met);
    if (!fewest || unmet.size() < fewest->size()) fewest = std::move(unmet);
  }
  return fewest.value_or(std::vector<KindCondition>{});
}

std::string only_have(const KindCondition& condition) {
  return fmt::format("only {}: {} {}", condition.section, join_alternatives(condition.kinds),
                     condition.kinds.size() == 1 ? "has" : "have");
}

std::string kind_below(const std::string& section, const std::string& kind) {
  for (const auto& field : every_field())
    if (field.path.starts_with(section + "."))
      for (const auto& choice : field.kinds)
        if (choice.name == kind) return ", which is a kind of " + field.path;
  return "";
}

}  // namespace metaformer
