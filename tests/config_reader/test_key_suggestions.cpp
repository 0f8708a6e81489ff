#include <algorithm>

#include "config/writer.h"
#include "config_reader/key_suggestions.h"
#include "config_reader/loader.h"
#include "support/catch.h"
#include "support/failure.h"

namespace metaformer {

namespace {

std::string complaint(const std::string& override_text) {
  const auto [code, message] = failure([&] { default_experiment({override_text}); });
  CHECK(code == ExitCode::usage);
  return message;
}

}  // namespace

TEST_CASE("keys of nanoGPT and Hugging Face suggest ours, wherever they stand", "[keys]") {
  const auto [given, ours] = GENERATE(table<std::string, std::string>({
      {"lr", "train.learning_rate"},
      {"train.lr", "train.learning_rate"},
      {"batch", "train.batch_size"},
      {"batch_size", "train.batch_size"},
      {"n_layer", "model.layers"},
      {"model.n_layer", "model.layers"},
      {"model.n_head", "model.heads"},
      {"n_embd", "model.width"},
      {"block_size", "model.context"},
      {"max_iters", "train.steps"},
      {"weight_decay", "train.optimizer.weight_decay"},
      {"model.weight_decay", "train.optimizer.weight_decay"},
      {"num_hidden_layers", "model.layers"},
      {"model.num_attention_heads", "model.heads"},
      {"hidden_size", "model.width"},
      {"per_device_train_batch_size", "train.batch_size"},
      {"train.gradient_accumulation_steps", "train.accumulate"},
      {"min_lr", "train.schedule.floor"},
      {"warmup_iters", "train.schedule.warmup_steps"},
      {"grad_clip", "train.clip"},
      {"dtype", "train.precision"},
      {"dropout", "model.dropout"},
      {"seed", "train.seed"},
      {"mixer", "model.mixer"},
      {"tokenizer", "data.tokenizer"},
      {"learning_rat", "train.learning_rate"},
      {"optimizer", "train.optimizer"},
      {"optim", "train.optimizer"},
      {"train.optimizer.lr", "train.learning_rate"},
      {"eval_iters", "train.evaluation.batches"},
      {"label_smoothing_factor", "task.label_smoothing"},
      {"tie_word_embeddings", "model.embedding.tie"},
      {"adam_beta1", "train.optimizer.betas"},
      {"init_from", "train.init_from"},
      {"model_name_or_path", "train.init_from"},
      {"llrd", "train.layer_rate_decay"},
  }));
  CHECK_THAT(complaint(given + "=1"), ContainsSubstring("unknown key; did you mean '" + ours + "'"));
}

TEST_CASE("what is no key here is said to be something else", "[keys]") {
  CHECK_THAT(complaint("device=cuda"), ContainsSubstring("--device"));
  CHECK_THAT(complaint("out_dir=x"), ContainsSubstring("--out"));
}

TEST_CASE("a name that others use leads to a key that exists, and is none of ours", "[keys]") {
  std::vector<std::string> ours;
  for (const auto& field : explain_config()) ours.push_back(field.path);
  for (const auto* name :
       {"lr",      "min_lr",     "batch",      "max_iters",  "warmup",     "grad_accum",    "scheduler",  "wd",
        "beta1",   "grad_clip",  "dtype",      "eval_iters", "eval_steps", "logging_steps", "save_steps", "n_layer",
        "n_head",  "n_embd",     "block_size", "drop",       "d_ff",       "hidden_act",    "attn",       "vocab_size",
        "dataset", "train_file", "val_file",   "test_file",  "val_split",  "text_column"}) {
    INFO(name);
    CHECK_THAT(ours, Catch::Matchers::VectorContains(full_key(name)));
  }
  CHECK(full_key("dropout") == "model.dropout");  // model.embedding.dropout lies deeper
  CHECK(full_key("min_learning_rate") == "train.schedule.floor");
  CHECK(full_key("kind").empty());
  CHECK(full_key("zebra").empty());
}

}  // namespace metaformer
