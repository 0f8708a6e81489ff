// Frequent mistakes in a first config; the keys that messages suggest for unknown ones.

#include "config/complaint.h"
#include "config/explain.h"

namespace metaformer::test_messages {

TEST_CASE("the error for a text or table in the place of a config gives the right command", "[config]") {
  const TemporaryFolder folder;
  const auto message_for = [&](const std::string& path) {
    const auto message = message_of(ExitCode::usage, [&] { load_experiment(path, {}); });
    CHECK(message.find('\n') == std::string::npos);
    return message;
  };
  const std::string long_text(3 << 20, 'a');
  for (const auto& [name, content] : {std::pair<std::string, std::string>{"own.txt", long_text},
                                      {"novel", long_text},
                                      {"small.txt", "First Citizen:\nBefore we proceed any further, hear me speak.\n"},
                                      {"small.text", "plain words\n"},
                                      {"lines.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n"},
                                      {"packed.txt.gz", "\x1f\x8b\x08"},
                                      {"reviews.csv", "text,label\nfine,good\n"}}) {
    const bool is_table = name.ends_with(".csv");
    const auto path = folder.write(name, content).string();
    CHECK_THAT(message_for(path), ContainsSubstring(is_table ? "is a table" : "is a text") &&
                                      Catch::Matchers::EndsWith(std::string("metaformer train --config ") +
                                                                (is_table ? "text_classifier" : "shakespeare_metric") +
                                                                ".yaml --set data.path=" + path));
  }
  CHECK_THAT(message_for(folder.write("a.yaml", "train: {stepz: 3}\n").string()), !ContainsSubstring("is a text"));
  CHECK_THAT(message_for(folder.path().string()), Mentions("a folder|YAML"));
  const auto config = folder.write("config.txt", "train: {steps: 3}\n").string();
  CHECK(load_experiment(config, {}).config.train.steps == 3);
  CHECK_THAT(failure([&] { load_experiment(config, {"train.stepz=3"}); }).second, Mentions("train.stepz: unknown"));
}

TEST_CASE("white space is kept by default if the model writes text", "[config]") {
  const auto kind = GENERATE(as<std::string>{}, "word", "bpe", "unigram");
  const auto drops = [&](const std::string& yaml, const std::vector<std::string>& overrides = {}) {
    auto config = config_of(yaml, overrides);
    return drops_whitespace(data_of(config)->tokenizer);
  };
  const auto tokenizer = "data: {tokenizer: {kind: " + kind + "}}\n";
  CHECK_FALSE(drops(tokenizer));
  CHECK_FALSE(drops("", {"data.tokenizer=" + kind}));
  CHECK_FALSE(drops(tokenizer + "task: language_model\n"));
  for (const std::string task : {"masked_language_model", "classification"}) {
    CHECK(drops(tokenizer + "task: " + task + "\n"));
    CHECK_FALSE(drops(tokenizer, {"task=" + task, "data.tokenizer.whitespace=kept"}));
  }
  CHECK_THAT(complaint(tokenizer, {"data.tokenizer.whitespace=dropped"}), Mentions("spaces|" + kind + "|kept"));
}

TEST_CASE("the error for a tab or an open bracket names it", "[config]") {
  const auto [yaml, expected] = GENERATE(table<std::string, std::string>({
      {"train:\n\tsteps: 3\n", "a.yaml:2:1: indented|tab"},
      {"train:\n  steps: 3\n\tseed: 1\n", "a.yaml:3:1: indented|tab"},
      {"train:\n  schedule:\n  \tkind: cosine\n", "a.yaml:3:3: indented|tab"},
      {"train: [1, 2\n", "a.yaml:2:1:|'['|closed"},
      {"train: {steps: 3\nmodel: {layers: 2}\n", "a.yaml:2:6:|'{'|closed"},
      {"train: {steps: 3\n\tseed: 1\n", "a.yaml:2:6:|'{'|closed"},
      {"train: {betas: [1, 2}\n", "a.yaml:1:21:|'['|closed"},
      {"train: [1, {a: 2]\n", "a.yaml:1:17:|'{'|closed"},
      {"a: 1\n b: 2\n", "a.yaml:2:3:|illegal map"},
  }));
  CHECK_THAT(complaint(yaml), Mentions(expected));
}

TEST_CASE("a pretrained tokenizer needs a path, and paths become absolute", "[config]") {
  CHECK_THAT(complaint("data:\n  tokenizer: pretrained\n"), Mentions("a.yaml:2:14: data.tokenizer.path:|missing"));
  const auto here = [](const char* name) { return (std::filesystem::current_path() / name).string(); };
  const auto pretrained = default_experiment({"data.tokenizer={kind: pretrained, path: ./gpt2/}"}).config;
  CHECK(std::get<PretrainedTokenizerOptions>(language_model(pretrained).data.tokenizer).path == here("gpt2"));
  const auto config =
      default_experiment({"task=sequence_to_sequence", "model=encoder_decoder", "data.path=a", "data.target_path=b",
                          "data.validation_path=c", "data.validation_target_path=d", "data.test_path=e",
                          "data.test_target_path=f"})
          .config;
  const auto& data = std::get<SequenceToSequenceConfig>(config.task).data;
  for (const auto& [path, name] : {std::pair{data.path, "a"},
                                   {data.target_path, "b"},
                                   {data.validation_path, "c"},
                                   {data.validation_target_path, "d"},
                                   {data.test_path, "e"},
                                   {data.test_target_path, "f"}})
    CHECK(path == here(name));
}

TEST_CASE("a valid but probably unintended value gives a warning", "[config]") {
  const auto [overrides, expected] = GENERATE(table<Overrides, Overrides>({
      {Overrides(), {}},
      {{"train.steps=101"}, {}},
      {{"train.steps=100"}, {"--set train.steps=100: train.steps:|train.schedule.warmup_steps 100"}},
      {{"train.schedule={kind: constant, warmup_steps: 3000}"},
       {"default: train.steps: 2000|train.schedule.warmup_steps 3000"}},
      {{"task=classification", "model=linear"}, {}},
      {{"model=lstm", "train.steps=50", "train.loss_chunks=5000"},
       {"train.steps: 50|above", "train.loss_chunks: 5000 is above"}},
      {{"train.loss_chunks=768", "model.feed_forward.chunks=768"}, {}},  // 12 rows of 64 tokens
      {{"train.loss_chunks=769", "model.feed_forward.chunks=800"},
       {"--set train.loss_chunks=769: train.loss_chunks:|769|768",
        "--set model.feed_forward.chunks=800:|model.feed_forward.chunks: 800|768"}},
  }));
  const auto experiment = default_experiment(overrides);
  const auto warnings = config_warnings(experiment.config, experiment.provenance);
  REQUIRE(warnings.size() == expected.size());
  for (std::size_t i = 0; i < warnings.size(); ++i) CHECK_THAT(warnings[i], Mentions(expected[i]));
}

TEST_CASE("the error for an unknown key is one line with its place and the nearest key or all keys", "[keys]") {
  const auto [yaml, expected] = GENERATE(table<std::string, std::string>({
      {"learning_rat: 3\n", "learning_rat: unknown key;|'train.learning_rate'?"},
      {"train: {label_smothing: 0.1}\n", "train.label_smothing: unknown|'task.label_smoothing'?"},
      {"model: {embedding: {zebra: 1}}\n", "model.embedding.zebra: unknown key (keys here: "},
      {"train.steps: 30\n", "train.steps: unknown key;|train: {steps:"},
      {"train: {schedule.warmup_steps: 10}\n", "train: {schedule: {warmup_steps:"},
      {std::string(99, '.') + ": 3\n", "...: unknown key"},
  }));
  const auto message = complaint(yaml);
  CHECK_THAT(message, Catch::Matchers::StartsWith("a.yaml:1:") && Mentions(expected));
  CHECK(message.find('\n') == std::string::npos);
  CHECK_THAT(complaint("", {"train={schedule.warmup_steps: 10}"}), ContainsSubstring("write train: {schedule: {"));
  CHECK_THAT(complaint("", {"train.divergence=rollback"}), Mentions("train.divergence:|'rollback'|action, spikes"));
  CHECK_THAT(complaint("", {"train=30"}), Mentions("train:|section|'30'|steps"));
}

TEST_CASE("the error for a key in the wrong section, of nanoGPT or of Hugging Face suggests our least nested key",
          "[keys]") {
  std::istringstream keys(
      "train.floor train.schedule.floor train.warmup_steps train.schedule.warmup_steps betas train.optimizer.betas "
      "train.optimizer.learning_rate train.learning_rate model.weight_decay train.optimizer.weight_decay "
      "data.length task.length task.tokenizer data.tokenizer dropout model.dropout optimizer train.optimizer "
      "lr train.learning_rate train.optimizer.lr train.learning_rate batch train.batch_size model.n_layer model.layers "
      "num_hidden_layers model.layers model.num_attention_heads model.heads block_size model.context "
      "max_iters train.steps train.gradient_accumulation_steps train.accumulate tie_word_embeddings "
      "model.embedding.tie "
      "device --device out_dir --out train.processes --processes");
  for (std::string given, ours; keys >> given >> ours;)
    CHECK_THAT(complaint("", {given + "=1"}), ContainsSubstring("unknown key; did you mean '" + ours + "'?"));
}

TEST_CASE("the error for a value that other programs use suggests ours, and keys without a counterpart say so",
          "[keys]") {
  for (const auto& [given, ours] : std::vector<std::pair<std::string, std::string>>{
           {"model.mixer=attention", "scaled_dot_product"},
           {"model.mixer.kind=mha", "scaled_dot_product"},
           {"model.mixer=softmax", "scaled_dot_product"},
           {"model.mixer=self_attention", "scaled_dot_product"},
           {"model.positions=rope", "rotary"},
           {"train.precision=bfloat16", "bf16"},
           {"train.precision=float16", "fp16"},
           {"model.feed_forward=swiglu", "gated"},
           {"model.feed_forward.activation=swiglu", "model.feed_forward=gated"},
           {"model.mixer=metrik", "metric"}})
    CHECK_THAT(complaint("", {given}), ContainsSubstring("; did you mean '" + ours + "'?"));
  CHECK_THAT(complaint("", {"compile=true"}), ContainsSubstring("compile: unknown key; the program is compiled"));
  CHECK_THAT(complaint("", {"train.wandb_log=true"}), ContainsSubstring("TensorBoard"));
}

TEST_CASE("names of other programs are mapped to existing keys", "[keys]") {
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

TEST_CASE("the error for a key of another kind names the kinds that have it", "[keys]") {
  const auto [yaml, of, kinds] = GENERATE(table<std::string, std::string, std::string>({
      {"task: {label_smoothing: 0.1}\n", "a.yaml:1:8: task.label_smoothing: unknown|'language_model'",
       "task: classification or sequence_to_sequence"},
      {"task: classification\nmodel: {kind: linear, mixer: metric}\n", "a.yaml:2:23: model.mixer: unknown|'linear'",
       "model: transformer or encoder_decoder"},
      {"task: classification\nmodel: linear\ntrain: {steps: 3}\n", "a.yaml:3:9: train.steps: unknown|'linear'",
       "model: transformer|encoder_decoder|lstm|gru|feed_forward"},
      {"train: {schedule: {kind: constant, floor: 0}}\n", "a.yaml:1:36: train.schedule.floor: unknown|'constant'",
       "train.schedule: cosine|linear|trapezoid"},
      {"train: {divergence: {action: {factor: 0.5}}}\n", "a.yaml:1:31: train.divergence.action.factor: unknown|'stop'",
       "train.divergence.action: rollback has it"},
  }));
  CHECK_THAT(complaint(yaml), Mentions(of + "|; only " + kinds));
}

}  // namespace metaformer::test_messages
