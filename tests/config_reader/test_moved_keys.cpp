// Keys under the names and in the places that they had in earlier versions.

#include <set>

#include "config/writer.h"
#include "config_reader/complaint.h"
#include "config_reader/moved_keys.h"
#include "support/mixer_options.h"

namespace metaformer {

namespace {

std::filesystem::path earlier_version() { return METAFORMER_TESTS "/config_reader/earlier_version"; }

bool is_one_line(const std::string& message) { return message.find('\n') == std::string::npos; }

// "model.embedding.std" and the like, of the keys of a YAML text.
void collect_keys(const ConfigNode& section, const std::string& prefix, std::set<std::string>& keys) {
  for (const auto& [key, value] : section.entries) {
    keys.insert(prefix + key.name);
    collect_keys(value, prefix + key.name + ".", keys);
  }
}

}  // namespace

TEST_CASE("a key under its old name is one line that names the new one", "[config][moved]") {
  const auto [yaml, expected] = GENERATE(table<std::string, std::string>({
      {"train: {label_smoothing: 0.1}\n",
       "a.yaml:1:9: train.label_smoothing: moved; write task.label_smoothing (task: {kind: classification, "
       "label_smoothing: ...})"},
      {"task: classification\ntrain:\n  steps: 3\n  class_weights: balanced\n",
       "a.yaml:4:3: train.class_weights: moved; write task.class_weights (task: {kind: classification, class_weights: "
       "...})"},
      {"task: classification\ntrain: {token_removal: 0.1}\n",
       "a.yaml:2:9: train.token_removal: moved; write task.token_removal (task: {kind: classification, token_removal: "
       "...})"},
      {"task: classification\ntrain: {token_unknown: 0.1}\n",
       "a.yaml:2:9: train.token_unknown: moved; write task.token_unknown (task: {kind: classification, token_unknown: "
       "...})"},
      {"task: classification\ntrain: {bucketing: 50}\n",
       "a.yaml:2:9: train.bucketing: moved; write task.bucketing (task: {kind: classification, bucketing: ...})"},
      {"task: classification\ntrain: {selection_metric: auc}\n",
       "a.yaml:2:9: train.selection_metric: moved; write task.selection_metric (task: {kind: classification, "
       "selection_metric: ...})"},
      {"task: classification\ntrain: {baselines: false}\n",
       "a.yaml:2:9: train.baselines: moved; write task.baselines (task: {kind: classification, baselines: ...})"},
      {"task: classification\ndata: {truncation: tail}\n",
       "a.yaml:2:8: data.truncation: moved; write task.truncation (task: {kind: classification, truncation: ...})"},
      {"task: classification\nmodel: {head: first_token}\n",
       "a.yaml:2:9: model.head: moved; write task.head (task: {kind: classification, head: ...})"},
      {"task: classification\nmodel: {recalibrate: true}\n",
       "a.yaml:2:9: model.recalibrate: moved; write task.head.recalibrate (task: {kind: classification, head: "
       "{recalibrate: ...}})"},
      {"task: sort\ndata: {sort: {length: 6, digits: 3}}\n",
       "a.yaml:2:15: data.sort.length: moved; write task.length (task: {kind: sort, length: ...})"},
      {"data:\n  sort:\n    digits: 3\n",
       "a.yaml:3:5: data.sort.digits: moved; write task.digits (task: {kind: sort, digits: ...})"},
      {"train: {sample_interval: 100}\n",
       "a.yaml:1:9: train.sample_interval: moved; write task.sample_interval (task: {kind: language_model, "
       "sample_interval: ...})"},
      {"task: classification\nmodel: {kind: linear, linear: {ngrams: 3}}\n",
       "a.yaml:2:32: model.linear.ngrams: moved; write model.ngrams (model: {kind: linear, ngrams: ...})"},
      {"task: classification\nmodel: {linear: {cost: 3}}\n",
       "a.yaml:2:18: model.linear.cost: moved; write model.cost (model: {kind: linear, cost: ...})"},
      {"model: {embedding_std: 0.1}\n",
       "a.yaml:1:9: model.embedding_std: moved; write model.embedding.std (model: {embedding: {std: ...}})"},
      {"model: {embedding_dropout: 0.1}\n",
       "a.yaml:1:9: model.embedding_dropout: moved; write model.embedding.dropout (model: {embedding: {dropout: "
       "...}})"},
      {"model: {embedding_scale: none}\n",
       "a.yaml:1:9: model.embedding_scale: moved; write model.embedding.scale (model: {embedding: {scale: ...}})"},
      {"model: {ngram_embedding: {order: 2}}\n",
       "a.yaml:1:27: model.ngram_embedding.order: moved; write model.embedding.ngrams.order (model: {embedding: "
       "{ngrams: {order: ...}}})"},
      {"model: {tie_embeddings: false}\n",
       "a.yaml:1:9: model.tie_embeddings: moved; write model.embedding.tie (model: {embedding: {tie: ...}})"},
      {"train: {min_learning_rate: 0}\n",
       "a.yaml:1:9: train.min_learning_rate: moved; write train.schedule.floor (train: {schedule: {floor: ...}})"},
      {"train: {schedule: cosine, warmup_steps: 5}\n",
       "a.yaml:1:27: train.warmup_steps: moved; write train.schedule.warmup_steps (train: {schedule: {warmup_steps: "
       "...}})"},
      {"train: {betas: [0.9, 0.95]}\n",
       "a.yaml:1:9: train.betas: moved; write train.optimizer.betas (train: {optimizer: {betas: ...}})"},
      {"train: {weight_decay: 0.1}\n",
       "a.yaml:1:9: train.weight_decay: moved; write train.optimizer.weight_decay (train: {optimizer: {weight_decay: "
       "...}})"},
      {"train: {eval_mode: random}\n",
       "a.yaml:1:9: train.eval_mode: moved; write train.evaluation (train: {evaluation: ...})"},
      {"train: {eval_batches: 5}\n",
       "a.yaml:1:9: train.eval_batches: moved; write train.evaluation.batches (train: {evaluation: {kind: random, "
       "batches: ...}})"},
      {"train: {on_divergence: rollback}\n",
       "a.yaml:1:9: train.on_divergence: moved; write train.divergence.action (train: {divergence: {action: ...}})"},
      {"train: {rollback_factor: 0.1}\n",
       "a.yaml:1:9: train.rollback_factor: moved; write train.divergence.action.factor (train: {divergence: {action: "
       "{kind: rollback, factor: ...}}})"},
      {"train: {spike_threshold: 6}\n",
       "a.yaml:1:9: train.spike_threshold: moved; write train.divergence.spikes.threshold (train: {divergence: "
       "{spikes: {threshold: ...}}})"},
      {"train: {on_spike: skip}\n",
       "a.yaml:1:9: train.on_spike: moved; write train.divergence.spikes.action (train: {divergence: {spikes: {action: "
       "...}}})"},
  }));
  const auto message = complaint(yaml);
  CHECK(message == expected);
  CHECK(is_one_line(message));
}

TEST_CASE("a section that is gone names all its keys", "[config][moved]") {
  const auto yaml = GENERATE(as<std::string>(), "data: {sort: {size: 6}}\n", "data: {sort: 6}\n", "data: {sort: }\n");
  CHECK(complaint(yaml) ==
        "a.yaml:1:8: data.sort: moved; write task.length, task.digits (task: {kind: sort, length: ..., digits: ...})");
}

TEST_CASE("an old key on the command line names the arguments that set the new one", "[config][moved]") {
  const auto [overrides, expected] = GENERATE(table<std::vector<std::string>, std::string>({
      {{"train.warmup_steps=7"}, "--set train.warmup_steps=7: moved; write --set train.schedule.warmup_steps=7"},
      {{"train.betas=[0.9, 0.95]"}, "--set train.betas=[0.9, 0.95]: moved; write --set train.optimizer.betas=..."},
      {{"train.eval_batches=5"},
       "--set train.eval_batches=5: moved; write --set train.evaluation=random --set train.evaluation.batches=5"},
      {{"train.evaluation=random", "train.eval_batches=5"},
       "--set train.eval_batches=5: moved; write --set train.evaluation.batches=5"},
      {{"train={eval_batches: 5}"},
       "--set train={eval_batches: 5}: train.eval_batches: moved; write --set train.evaluation=random --set "
       "train.evaluation.batches=5"},
      {{"train.max_rollbacks=2"},
       "--set train.max_rollbacks=2: moved; write --set train.divergence.action=rollback --set "
       "train.divergence.action.limit=2"},
      {{"model.head=first_token"},
       "--set model.head=first_token: moved; write --set task=classification --set task.head=first_token"},
      {{"task=classification", "model.head=first_token"},
       "--set model.head=first_token: moved; write --set task.head=first_token"},
      {{"task=classification", "model=linear", "train.spike_threshold=6"},
       "--set train.spike_threshold=6: moved; write --set train.divergence.spikes.threshold=6; only model: "
       "transformer, encoder_decoder, "
       "lstm, gru or feed_forward have it"},
      {{"task=classification", "model=linear", "train.eval_batches=6"},
       "--set train.eval_batches=6: moved; write --set train.evaluation=random --set train.evaluation.batches=6; only "
       "model: transformer, encoder_decoder, lstm, gru or feed_forward have it"},
      {{"data.sort=6"},
       "--set data.sort=6: moved; write --set task=sort --set task.length=... or --set task.digits=..."},
  }));
  CHECK(complaint("", overrides) == expected);
}

TEST_CASE("an old key in a file says which kind has the new one, where the file has another", "[config][moved]") {
  CHECK(complaint("task: classification\nmodel: linear\ntrain: {spike_threshold: 6}\n") ==
        "a.yaml:3:9: train.spike_threshold: moved; write train.divergence.spikes.threshold (train: {divergence: "
        "{spikes: {threshold: ...}}}); only model: transformer, encoder_decoder, lstm, gru or feed_forward have it");
  CHECK_THAT(complaint("train: {schedule: constant, min_learning_rate: 0}\n"),
             ContainsSubstring("(train: {schedule: {floor: ...}}); only train.schedule: cosine, linear or ") &&
                 ContainsSubstring(" have it"));
}

TEST_CASE("a key in the wrong section, or of another kind, is one line that names the right place", "[config][moved]") {
  const auto [yaml, expected] = GENERATE(table<std::string, std::string>({
      {"train: {floor: 0}\n", "a.yaml:1:9: train.floor: unknown key; did you mean 'train.schedule.floor'?"},
      {"model: {label_smoothing: 0.1}\n",
       "a.yaml:1:9: model.label_smoothing: unknown key; did you mean 'task.label_smoothing'?"},
      {"task: {betas: [0.9, 0.95]}\n", "a.yaml:1:8: task.betas: unknown key; did you mean 'train.optimizer.betas'?"},
      {"betas: [0.9, 0.95]\n", "a.yaml:1:1: betas: unknown key; did you mean 'train.optimizer.betas'?"},
      {"train: {label_smothing: 0.1}\n",
       "a.yaml:1:9: train.label_smothing: unknown key; did you mean 'task.label_smoothing'?"},
      {"train: {optimizer: {learning_rate: 1e-3}}\n",
       "a.yaml:1:21: train.optimizer.learning_rate: unknown key; did you mean 'train.learning_rate'?"},
      {"train: {head: mean_pooled}\n", "a.yaml:1:9: train.head: unknown key; did you mean 'task.head'?"},
      {"data: {length: 6}\n",
       "a.yaml:1:8: data.length: unknown key; did you mean 'task.length' or 'data.synthetic.length'?"},
      {"task: {tokenizer: byte}\n", "a.yaml:1:8: task.tokenizer: unknown key; did you mean 'data.tokenizer'?"},
      {"min_learning_rate: 0\n", "a.yaml:1:1: min_learning_rate: unknown key; did you mean 'train.schedule.floor'?"},
      {"task: {label_smoothing: 0.1}\n",
       "a.yaml:1:8: task.label_smoothing: unknown key for task 'language_model'; only task: classification or "
       "sequence_to_sequence have it"},
      {"data: {label_field: stars}\n",
       "a.yaml:1:8: data.label_field: unknown key for task 'language_model'; only task: classification has it"},
      {"task: sort\ndata: {path: a.txt}\n",
       "a.yaml:2:1: data: unknown key; only task: language_model, masked_language_model, classification or "
       "sequence_to_sequence have it"},
      {"task: classification\nmodel: linear\ntrain: {steps: 3}\n",
       "a.yaml:3:9: train.steps: unknown key for model 'linear'; only model: transformer, encoder_decoder, lstm, gru "
       "or feed_forward "
       "have it"},
      {"task: classification\nmodel: {kind: linear, mixer: metric}\n",
       "a.yaml:2:23: model.mixer: unknown key for model 'linear'; only model: transformer or encoder_decoder have it"},
      {"model: {cost: 0.1}\n",
       "a.yaml:1:9: model.cost: unknown key for model 'transformer'; only model: linear has it"},
      {"train: {schedule: {kind: constant, floor: 0}}\n",
       "a.yaml:1:36: train.schedule.floor: unknown key for kind 'constant'; only train.schedule: cosine, linear or "
       "trapezoid have it"},
      {"train: {evaluation: {batches: 3}}\n",
       "a.yaml:1:22: train.evaluation.batches: unknown key for kind 'limited'; only train.evaluation: random has it"},
      {"train: {divergence: {action: {factor: 0.5}}}\n",
       "a.yaml:1:31: train.divergence.action.factor: unknown key for kind 'stop'; only train.divergence.action: "
       "rollback has it"},
      {"data: {tokenizer: {vocabulary: 100}}\n",
       "a.yaml:1:20: data.tokenizer.vocabulary: unknown key for kind 'character'; only data.tokenizer: word, unigram "
       "or bpe have it"},
  }));
  const auto message = complaint(yaml);
  CHECK(message == expected);
  CHECK(is_one_line(message));
}

TEST_CASE("every moved key led somewhere, and leads to a key", "[config][moved]") {
  std::set<std::string> old_keys, keys;
  for (const auto& entry : std::filesystem::directory_iterator(earlier_version()))
    if (entry.path().stem().extension() != ".now") collect_keys(read_yaml_file(entry.path()), "", old_keys);
  for (const auto& field : explain_config()) keys.insert(field.path);
  int moved_keys = 0;
  for (const auto& key : old_keys) {
    const auto found = find_moved_keys(key);
    if (found.empty() || found.front().from != key) continue;
    CHECK(found.size() == 1);
    CHECK(describe_new_keys(found).starts_with(std::string(found.front().to) + " ("));
    CHECK(keys.contains(std::string(found.front().to)));
    CHECK_FALSE(keys.contains(key));
    ++moved_keys;
  }
  CHECK(moved_keys == 35);
}

TEST_CASE("the config of a run of an earlier version still loads", "[config][moved]") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(earlier_version())) {
    if (entry.path().stem().extension() == ".now") continue;
    INFO(entry.path());
    auto now = entry.path();
    now.replace_extension(".now.yaml");
    CHECK(config_to_json(load_run_experiment(entry.path()).config) ==
          config_to_json(load_experiment(now.string()).config));
    CHECK(failure([&] { load_experiment(entry.path().string()); }).first == ExitCode::usage);
    ++count;
  }
  CHECK(count == 8);
}

TEST_CASE("the config of a run is read as strictly as any other", "[config][moved]") {
  const TemporaryFolder folder;
  const auto earlier = read_text(earlier_version() / "sorter_quadratic.yaml");
  const auto refusal = [&](const std::string& yaml) {
    return failure([&] { load_run_experiment(folder.write("config.yaml", yaml)); }).second;
  };
  CHECK(refusal(earlier).empty());
  CHECK_THAT(refusal(earlier + "  step: 3\n"),
             ContainsSubstring("train.step: unknown key; did you mean 'train.steps'?"));
  CHECK_THAT(refusal("task: sort\ntrain: {betas: 3}\n"), ContainsSubstring("train.optimizer.betas: expected a list"));
  // Where no key is old, there are no keys of other kinds either.
  const auto written = config_to_yaml(ExperimentConfig{});
  CHECK(refusal(written).empty());
  CHECK_THAT(refusal(written + "      factor: 1\n"), ContainsSubstring("divergence.spikes.factor: unknown key"));
  CHECK_THAT(refusal("task: sort\ndata: {path: a}\n"), ContainsSubstring("data: unknown key"));
}

TEST_CASE("a run names its mixers and the scale of its embeddings, whatever is the default", "[config]") {
  const TemporaryFolder folder;
  const auto load = [&](const std::string& yaml) {
    return load_run_experiment(folder.write("config.yaml", yaml)).config;
  };
  const auto config = default_experiment({"task=sequence_to_sequence", "data.synthetic=copy", "model=encoder_decoder",
                                          "model.positions=sinusoidal", "model.embedding.scale=none"})
                          .config;
  const auto yaml = config_to_yaml(config);
  CHECK(config_to_json(load(yaml)) == config_to_json(config));
  int mixers = 0;
  for (auto at = yaml.find("kind: scaled_dot_product"); at != std::string::npos;
       at = yaml.find("kind: scaled_dot_product", at + 1))
    ++mixers;
  CHECK(mixers == 3);
}

TEST_CASE("a run without blocks loads, though an earlier version wrote another mixer into it", "[config][moved]") {
  const TemporaryFolder folder;
  const std::vector<std::string> overrides = {"task={kind: classification, head: max_pooled}", "data.corpus=imdb",
                                              "model={layers: 0, positions: none, embedding: {region: sequence}}"};
  const auto now = default_experiment(overrides).config;
  auto earlier = now;
  transformer(earlier).mixer = MetricOptions{};
  const auto file = folder.write("config.yaml", config_to_yaml(earlier));
  CHECK(config_to_json(load_run_experiment(file).config) == config_to_json(now));
  CHECK_THAT(failure([&] { load_experiment(file.string()); }).second,
             ContainsSubstring("model.mixer.kind: has no effect with model.layers 0"));
}

}  // namespace metaformer
