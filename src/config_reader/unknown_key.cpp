#include "config_reader/unknown_key.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/writer.h"

namespace metaformer {

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

}  // namespace metaformer
