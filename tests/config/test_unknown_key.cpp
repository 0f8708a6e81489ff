// Which key a message for an unknown one proposes.

#include <sstream>

#include "config/complaint.h"
#include "config/explain.h"

namespace metaformer {

TEST_CASE("an unknown key is one line with the place, the key and the nearest name", "[keys]") {
  const auto [yaml, expected] = GENERATE(table<std::string, std::string>({
      {"train: {learning_rat: 3}\n", "train.learning_rat: unknown key; did you mean 'train.learning_rate'?"},
      {"learning_rat: 3\n", "learning_rat: unknown key; did you mean 'train.learning_rate'?"},
      {"train: {label_smothing: 0.1}\n", "train.label_smothing: unknown key; did you mean 'task.label_smoothing'?"},
      {"model: {embedding: {zebra: 1}}\n", "model.embedding.zebra: unknown key (keys here: "},
  }));
  const auto message = complaint(yaml);
  CHECK_THAT(message, Catch::Matchers::StartsWith("a.yaml:1:") && ContainsSubstring(": " + expected));
  CHECK(message.find('\n') == std::string::npos);
}

TEST_CASE("a key in the wrong section names the right one, the least nested of several", "[keys]") {
  const auto [given, ours] = GENERATE(table<std::string, std::string>({
      {"train.floor", "train.schedule.floor"},
      {"train.warmup_steps", "train.schedule.warmup_steps"},
      {"betas", "train.optimizer.betas"},
      {"train.optimizer.learning_rate", "train.learning_rate"},
      {"model.weight_decay", "train.optimizer.weight_decay"},
      {"data.length", "task.length"},
      {"task.tokenizer", "data.tokenizer"},
      {"dropout", "model.dropout"},
      {"optimizer", "train.optimizer"},
  }));
  CHECK_THAT(complaint("", {given + "=1"}), ContainsSubstring("unknown key; did you mean '" + ours + "'?"));
}

TEST_CASE("keys of nanoGPT and Hugging Face suggest ours, wherever they stand", "[keys]") {
  const auto [given, ours] = GENERATE(table<std::string, std::string>({
      {"lr", "train.learning_rate"},
      {"train.optimizer.lr", "train.learning_rate"},
      {"batch", "train.batch_size"},
      {"model.n_layer", "model.layers"},
      {"num_hidden_layers", "model.layers"},
      {"model.num_attention_heads", "model.heads"},
      {"block_size", "model.context"},
      {"max_iters", "train.steps"},
      {"train.gradient_accumulation_steps", "train.accumulate"},
      {"tie_word_embeddings", "model.embedding.tie"},
      {"device", "--device"},
      {"out_dir", "--out"},
  }));
  CHECK_THAT(complaint("", {given + "=1"}), ContainsSubstring("unknown key; did you mean '" + ours + "'?"));
}

TEST_CASE("names of other programs lead to keys that exist", "[keys]") {
  std::vector<std::string> ours;
  for (const auto& field : explain_config()) ours.push_back(field.path);
  std::istringstream names(
      "lr min_lr batch max_iters warmup grad_accum scheduler beta1 optim grad_clip dtype eval_iters eval_steps "
      "save_steps "
      "model_name_or_path n_layer n_head n_embd n_ctx resid_pdrop d_ff hidden_act tie_word_embeddings attn vocab_size "
      "dataset text_column");
  for (std::string name; names >> name;) {
    INFO(name);
    CHECK_THAT(ours, Catch::Matchers::VectorContains(full_key(name)));
  }
  CHECK(full_key("kind").empty());
  CHECK(full_key("zebra").empty());
}

TEST_CASE("a key of another kind names the kinds that have it", "[keys]") {
  const auto [yaml, expected] = GENERATE(table<std::string, std::string>({
      {"task: {label_smoothing: 0.1}\n",
       "a.yaml:1:8: task.label_smoothing: unknown key for task 'language_model'; only task: classification or "
       "sequence_to_sequence have it"},
      {"task: classification\nmodel: {kind: linear, mixer: metric}\n",
       "a.yaml:2:23: model.mixer: unknown key for model 'linear'; only model: transformer or encoder_decoder have it"},
      {"task: classification\nmodel: linear\ntrain: {steps: 3}\n",
       "a.yaml:3:9: train.steps: unknown key for model 'linear'; only model: transformer, encoder_decoder, lstm, gru "
       "or feed_forward have it"},
      {"train: {schedule: {kind: constant, floor: 0}}\n",
       "a.yaml:1:36: train.schedule.floor: unknown key for kind 'constant'; only train.schedule: cosine, linear or "
       "trapezoid have it"},
      {"train: {divergence: {action: {factor: 0.5}}}\n",
       "a.yaml:1:31: train.divergence.action.factor: unknown key for kind 'stop'; only train.divergence.action: "
       "rollback has it"},
  }));
  CHECK(complaint(yaml) == expected);
}

TEST_CASE("a key with dots is told how to nest", "[keys]") {
  const auto [yaml, expected] = GENERATE(table<std::string, std::string>({
      {"train.steps: 30\n", "a.yaml:1:1: train.steps: unknown key; a key has no dots: write train: {steps: ...}"},
      {"train: {schedule.warmup_steps: 10}\n",
       "a.yaml:1:9: train.schedule.warmup_steps: unknown key; a key has no dots: write train: {schedule: "
       "{warmup_steps: ...}}"},
  }));
  CHECK(complaint(yaml) == expected);
  CHECK_THAT(complaint("", {"train={schedule.warmup_steps: 10}"}), ContainsSubstring("write train: {schedule: {"));
  CHECK_THAT(complaint(std::string(99, '.') + ": 3\n"), ContainsSubstring("...: unknown key"));
}

}  // namespace metaformer
