// Sections with a choice of kinds: shorthand, nested kinds, and layers that change the kind.

#include "config/complaint.h"
#include "config/explain.h"

namespace metaformer::test_variants {

namespace {

// Loads a config file with this base.
Experiment above(const std::string& base, const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const TemporaryFolder folder;
  folder.write("base.yaml", base);
  return load_experiment(folder.write("a.yaml", "base: base.yaml\n" + yaml).string(), overrides);
}

TransformerConfig model_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return transformer(config_of("model: {" + yaml + "}\n", overrides));
}

}  // namespace

TEST_CASE("a scalar in place of a section is its kind", "[config]") {
  const auto [shorthand, in_full] = GENERATE(table<std::string, std::string>({
      {"task: sort\n", "task: {kind: sort}\n"},
      {"task: classification\nmodel: linear\n", "task: {kind: classification}\nmodel: {kind: linear}\n"},
      {"model: {mixer: quadratic}\n", "model: {mixer: {kind: quadratic}}\n"},
      {"model: {positions: none}\n", "model: {positions: {kind: none}}\n"},
      {"model: {norm: layer_norm}\n", "model: {norm: {kind: layer_norm}}\n"},
      {"model: {feed_forward: mlp}\n", "model: {feed_forward: {kind: mlp}}\n"},
      {"data: {tokenizer: byte}\n", "data: {tokenizer: {kind: byte}}\n"},
      {"task: {kind: classification, head: first_token}\n",
       "task: {kind: classification, head: {kind: first_token}}\n"},
      {"train: {optimizer: adamw, schedule: linear}\n",
       "train: {optimizer: {kind: adamw}, schedule: {kind: linear}}\n"},
      {"train: {evaluation: random}\n", "train: {evaluation: {kind: random}}\n"},
      {"train: {divergence: {action: rollback}}\n", "train: {divergence: {action: {kind: rollback}}}\n"},
  }));
  CHECK(config_to_json(config_of(shorthand)) == config_to_json(config_of(in_full)));
}

TEST_CASE("the error for a scalar that names no kind lists the kinds", "[config]") {
  for (const auto& [yaml, expected] :
       {std::pair{"model: {mixer: metrik}\n", "a.yaml:1:16: model.mixer: unknown|'metrik'|scaled_dot_|none|'metric'?"},
        {"model:\n  mixer:\n", "a.yaml:2:3: model.mixer:|average_|{kind: scaled_dot_product}|nothing"},
        {"model: {mixer: 3}\n", "a.yaml:1:16: model.mixer: unknown|'3'"}})
    CHECK_THAT(complaint(yaml), Mentions(expected));
}

TEST_CASE("another kind resets the section, the same kind keeps it", "[config]") {
  const std::string linear = "train: {schedule: {kind: linear, floor: 0, warmup_steps: 7}}\n";
  const auto same = above(linear, "train: {schedule: linear}\n").config.train.schedule;
  CHECK(std::get<LinearScheduleConfig>(same).warmup_steps == 7);
  const auto other = above(linear, "train: {schedule: cosine}\n");
  CHECK(std::get<CosineScheduleConfig>(other.config.train.schedule).warmup_steps == 100);
  CHECK_FALSE(other.provenance.contains("train.schedule.floor"));
  CHECK(other.provenance.at("train.schedule.kind").line == 2);
  const auto more = above(linear, "train: {schedule: {floor: 1e-5}}\n").config.train.schedule;
  CHECK(std::get<LinearScheduleConfig>(more).warmup_steps == 7);
}

TEST_CASE("a kind and its options may have any order and form on the command line", "[config]") {
  const auto overrides =
      GENERATE(std::vector<std::string>{"model.mixer=average_pooling", "model.mixer.window=all"},
               std::vector<std::string>{"model.mixer.window=all", "model.mixer=average_pooling"},
               std::vector<std::string>{"model.mixer.window=all", "model.mixer.kind=average_pooling"},
               std::vector<std::string>{"model.mixer=none", "model.mixer={kind: average_pooling, window: all}"});
  const auto config = default_experiment(overrides).config;
  CHECK(std::get<AveragePoolingOptions>(transformer(config).mixer).window.all());
}

TEST_CASE("a layer that switches the task keeps the data keys that both tasks have", "[config]") {
  const std::string text =
      "task: {kind: language_model, sample_interval: 5}\n"
      "data: {path: /a.txt, validation_fraction: 0.3, separate_documents: true, malformed_limit: 0.2}\n";
  const auto switched = above(text, "task: {kind: classification, bucketing: 4}\n");
  const auto& task = classification(switched.config);
  CHECK(task.bucketing == 4);
  CHECK(task.data.path == "/a.txt");
  CHECK(task.data.validation_fraction == 0.3);
  CHECK(task.data.malformed_limit == 0.2);
  CHECK(is<WordTokenizerOptions>(task.data.tokenizer));  // the default of this task, because no layer names one
  CHECK(switched.provenance.contains("data.path"));
  CHECK_FALSE(switched.provenance.contains("data.separate_documents"));
  CHECK_FALSE(switched.provenance.contains("task.sample_interval"));

  const auto with_tokenizer = above(text + "  \n", "task: classification\n", {"data.tokenizer=byte"});
  CHECK(is<ByteTokenizerOptions>(classification(with_tokenizer.config).data.tokenizer));
  const auto kept = above("data: {tokenizer: byte}\n", "task: language_model\n", {"task=classification"});
  CHECK(is<ByteTokenizerOptions>(classification(kept.config).data.tokenizer));
  CHECK(is<SortConfig>(above(text, "task: sort\n").config.task));
}

TEST_CASE("a file without a task or model is checked with the default ones, whatever later layers name", "[config]") {
  CHECK_THROWS_AS(above("data: {label_field: a}\n", "task: classification\n"), Error);
  CHECK_THROWS_AS(above("task: classification\nmodel: {cost: 3}\n", "model: linear\n"), Error);
  CHECK_THROWS_AS(above("data: {pathh: a.txt}\n", "train: {steps: 7}\n", {"task=classification"}), Error);
  const auto sorter = above("data: {path: a.txt, separate_documents: true}\n", "train: {steps: 7}\n", {"task=sort"});
  CHECK(is<SortConfig>(sorter.config.task));
  CHECK(sorter.config.train.steps == 7);
  const auto linear =
      above("model: {layers: 2, context: 9}\n", "train: {steps: 7}\n", {"task=classification", "model=linear"});
  CHECK(std::get<LinearConfig>(linear.config.model).context == 9);
}

TEST_CASE("a layer that switches the model drops the keys that only the other model has", "[config]") {
  const std::string network =
      "task: {kind: classification, head: first_token, truncation: tail, selection_metric: auc}\n"
      "model: {kind: transformer, layers: 1, width: 64, context: 99, mixer: identity}\n"
      "train: {steps: 7, batch_size: 3, learning_rate: 0.5}\n";
  const auto switched = above(network, "", {"model=linear", "model.ngrams=3"});
  const auto& linear = std::get<LinearConfig>(switched.config.model);
  CHECK(linear.context == 99);
  CHECK(linear.ngrams == 3);
  CHECK(switched.config.train.batch_size == 3);
  CHECK(switched.config.train.steps == TrainConfig{}.steps);
  const auto& task = classification(switched.config);
  CHECK(task.truncation == Truncation::tail);
  CHECK(task.selection_metric == SelectionMetric::auc);
  CHECK(is<MeanPooledHeadConfig>(task.head));
  CHECK(switched.provenance.contains("train.batch_size"));
  CHECK_FALSE(switched.provenance.contains("train.steps"));
  // In the layer that chooses the model, or in a later one, these keys are errors.
  CHECK(failure([&] { above(network, "", {"model=linear", "train.steps=9"}); }).first == ExitCode::usage);
  CHECK(failure([&] { above(network, "model: linear\n", {"task.head=first_token"}); }).first == ExitCode::usage);
  const auto back = above("task: classification\nmodel: {kind: linear, ngrams: 1, context: 9}\n",
                          "model: transformer\n", {"train.steps=9"});
  CHECK(transformer(back.config).context == 9);
  CHECK(back.config.train.steps == 9);
  // Another kind of network keeps the keys of the training.
  const auto lstm =
      default_experiment({"model.context=48", "train.steps=7", "train.learning_rate=0.5", "model=lstm"}).config;
  CHECK(std::get<LstmConfig>(lstm.model).context == 48);
  CHECK(std::get<LstmConfig>(lstm.model).layers == 2);
  CHECK(lstm.train.steps == 7);
  CHECK(lstm.train.learning_rate == 0.5);
}

TEST_CASE("explain shows the kinds of a section, and the kinds that have a key", "[config]") {
  const auto fields = explain_config();
  const auto of = [&](const std::string& path) {
    std::vector<FieldHelp> found;
    std::copy_if(fields.begin(), fields.end(), std::back_inserter(found),
                 [&](const auto& field) { return field.path == path; });
    return found;
  };
  const auto schedule = of("train.schedule");
  REQUIRE(schedule.size() == 1);
  REQUIRE(schedule[0].kinds.size() == 6);
  CHECK(schedule[0].kinds[2].name == "constant");
  for (const auto& field : fields)
    for (const auto& kind : field.kinds) CHECK_FALSE(kind.summary.empty());
  const std::string networks = "model: transformer, encoder_decoder, lstm, gru or feed_forward";
  for (const auto& [path, number, expected] : std::vector<std::tuple<std::string, std::size_t, std::string>>{
           {"train.schedule.floor", 0, networks + ", train.schedule: cosine, linear or trapezoid"},
           {"train.schedule.warmup_steps", 0, networks + ", train.schedule: cosine, linear, constant or trapezoid"},
           {"train.schedule.warmup_steps", 1, networks + ", train.schedule: inverse_sqrt or noam"},  // needed there
           {"train.steps", 0, networks},
           {"train.batch_size", 0, ""},
           {"model.context", 0, "model: transformer, encoder_decoder, feed_forward or linear"},
           {"model.context", 1, "model: lstm or gru"},
           {"task.head.recalibrate", 0, "task: classification"},
           {"data.cache", 0, "task: language_model, masked_language_model or classification"},
           {"model.mixer.window", 0, "model: transformer or encoder_decoder, model.mixer: scaled_dot_product"},
           {"model.mixer.window", 1, "model: transformer or encoder_decoder, model.mixer: average_pooling"}})
    CHECK(applies_to(of(path).at(number)) == expected);
  CHECK(of("data.path").size() == 3);  // a text, a table, or pairs
  CHECK(of("task.head.recalibrate").size() == 1);
  CHECK(of("model.mixer.window").at(1).fallback == "3");
  CHECK(of("model.mixer.rounds").at(0).expected == "integer, at least 1 and at most 1024");
  CHECK(of("model.mixer").at(0).kinds.back().name == "none");
  CHECK(of("model.mixer").at(0).choices == kinds_of<MixerConfig>());
}

TEST_CASE("an activation is a section or a kind's name, and a gated branch has another default activation and width",
          "[config]") {
  const auto beta_of = [](const TransformerConfig& model) {
    return std::get<SiluConfig>(std::get<MlpConfig>(model.feed_forward).activation).beta;
  };
  CHECK(beta_of(model_of("feed_forward: {activation: silu}")) == 1);
  CHECK(beta_of(model_of("feed_forward: {activation: {kind: silu, beta: 2}}")) == 2);
  CHECK(config_to_json(config_of("model: {feed_forward: {activation: gelu, ratio: 4}}\n")) ==
        config_to_json(config_of("")));
  const auto gated = model_of("feed_forward: {activation: relu, ratio: 2}", {"model.feed_forward=gated"});
  CHECK(is<SiluConfig>(std::get<GatedConfig>(gated.feed_forward).activation));
  CHECK(gated.hidden_width() == 344);  // 8/3 of 128 is 341.3
  CHECK(gated.up_width() == 688);
  CHECK(model_of("width: 4, feed_forward: {kind: gated, ratio: 0.1}").hidden_width() == 8);
  CHECK(model_of("feed_forward: {ratio: 2.6}").hidden_width() == 333);
}

TEST_CASE("every norm has a position, a final norm and an epsilon", "[config]") {
  const auto norm = model_of("norm: {kind: rms_norm, position: both, epsilon: 1e-6}").norm;
  CHECK(is<RmsNormConfig>(norm));
  CHECK(position_of(norm) == NormPosition::both);
  CHECK(epsilon_of(norm) == 1e-6);
  CHECK(has_final_norm(norm));
  CHECK_FALSE(has_final_norm(model_of("norm: {position: both, final: false}").norm));
  CHECK_FALSE(has_final_norm(model_of("norm: {kind: rms_norm, position: post}").norm));
}

TEST_CASE("regions have sizes and a bag has units, and both are absent by default", "[config]") {
  const auto options_of = [](const std::vector<std::string>& more) {
    return *sequence_regions(transformer(config_of("", pooled_and(more))).embedding);
  };
  CHECK(options_of({}).sizes() == 2);
  CHECK(options_of({"model.embedding.region.longest=5", "model.width=64"}).sizes() == 4);
  CHECK(sequence_regions(TransformerConfig{}.embedding) == nullptr);
  CHECK_FALSE(has_regions(TransformerConfig{}.embedding));
  const auto config = config_of("", pooled_and({"task.head={kind: max_pooled, dropout: 0.5, bag: naive_bayes}"}));
  CHECK(std::get<MaxPooledHeadConfig>(classification(config).head).dropout == 0.5);
  CHECK(bag_options(classification(config).head)->units == 20);
  CHECK(bag_options(classification(config_of("", pooled_and({}))).head) == nullptr);
}

TEST_CASE("a masked language model accepts whole_words with subwords, either loss, and all data keys of texts",
          "[config][masking]") {
  const auto config =
      default_experiment(masked({"task.whole_words=true", "data.tokenizer={kind: bpe, whitespace: dropped}",
                                 "task.loss=sequence", "task.fraction=1", "task.masked=0.5", "task.random=0.5"}))
          .config;
  const auto& task = std::get<MaskedLanguageModelConfig>(config.task);
  CHECK(task.whole_words);
  CHECK(task.loss == LossUnit::sequence);
  CHECK_FALSE(is_causal(config.task));
  CHECK(text_data_of(config.task) == &task.data);
  const auto experiment = above(
      "task: {kind: language_model, sample_interval: 5}\n"
      "data: {separate_documents: true, tokenizer: byte}\n",
      "", {"task=masked_language_model"});
  const auto& data = std::get<MaskedLanguageModelConfig>(experiment.config.task).data;
  CHECK(data.separate_documents);
  CHECK(is<ByteTokenizerOptions>(data.tokenizer));
  CHECK(experiment.provenance.contains("data.separate_documents"));
  CHECK_FALSE(experiment.provenance.contains("task.sample_interval"));
}

TEST_CASE("models report their width, the key that orders their batches, and the tokens before a segment", "[config]") {
  CHECK(width_of(TransformerConfig{.width = 24}) == 24);
  CHECK(width_of(FeedForwardModelConfig{.width = 5}) == 5);
  CHECK(width_of(LinearConfig{}) == 0);
  LstmConfig lstm;
  lstm.context = 33;
  CHECK(width_of(lstm) == 128);
  CHECK(tokens_before_segment(lstm) == 0);
  lstm.carry_state = true;
  CHECK(tokens_before_segment(lstm) == 33);
  CHECK(order_key(lstm) == "model.carry_state");
  CHECK(tokens_before_segment(TransformerConfig{.memory = 12}) == 12);
  CHECK(order_key(TransformerConfig{}) == "model.memory");
  CHECK(tokens_before_segment(FeedForwardModelConfig{}) == 0);
  CHECK(recurrent(ModelConfig(GruConfig{}))->gates() == 3);
  CHECK(recurrent(ModelConfig(LstmConfig{}))->gates() == 4);
  CHECK(recurrent(ModelConfig(TransformerConfig{})) == nullptr);
}

TEST_CASE("the blocks take the mixers of a list by turns", "[config]") {
  const std::string yaml =
      "model:\n  mixer:\n    - {mixer: gated_delta_net, layers: 3}\n    - {kind: scaled_dot_product, qk_norm: true}\n";
  const auto model = transformer(config_of(yaml));
  REQUIRE(model.mixers.size() == 2);
  CHECK((model.mixers[0].layers == 3 && model.mixers[1].layers == 1));
  CHECK(std::get<ScaledDotProductOptions>(model.mixers[1].mixer).qk_norm);
  const auto written = transformer(config_of(config_to_yaml(config_of(yaml))));  // as in a run's folder
  CHECK(written.mixer_names() == "gated_delta_net x 3, scaled_dot_product");
  CHECK(config_to_json(config_of(yaml)) == config_to_json(config_of(config_to_yaml(config_of(yaml)))));
  CHECK(config_changes(config_of(yaml))["model"]["mixer"].dump() ==
        R"([{"layers":3,"mixer":{"kind":"gated_delta_net"}},{"mixer":{"qk_norm":true}}])");
  // Options of an item by its number, a mixer in place of the list, and a list in place of a mixer.
  const auto changed = transformer(config_of(yaml, {"model.mixer.0.mixer.convolution=2", "model.mixer.0.layers=1"}));
  CHECK(std::get<GatedDeltaNetOptions>(changed.mixers[0].mixer).convolution == 2);
  CHECK(changed.mixers[0].layers == 1);
  CHECK(transformer(config_of(yaml, {"model.mixer=identity"})).mixer_names() == "identity");
  CHECK(transformer(config_of("model: {mixer: {kind: metric, values: own}}\n", {"model.mixer=[mamba2, metric]"}))
            .mixer_names() == "mamba2, metric");
  CHECK(above(yaml, "model: {mixer: {1: {mixer: {qk_norm: false}}}}\n").config.model.index() == 0);
  // A list and options of its items may be on the command line in any order, also over a list in a file.
  const std::string list = "model.mixer=[mamba2, rwkv7]", layers = "model.mixer.0.layers=2";
  for (const auto& overrides : {Overrides{list, layers}, Overrides{layers, list}, Overrides{list, list, layers}})
    for (const auto& file : {yaml, std::string("model: {layers: 4}\n")})
      CHECK(transformer(config_of(file, overrides)).mixer_names() == "mamba2 x 2, rwkv7");
}

TEST_CASE("the error for a mistake in a list of mixers names the item", "[config]") {
  for (const auto& [yaml, expected] : std::vector<std::pair<std::string, std::string>>{
           {"model: {mixer: []}\n", "a.yaml:1:16: model.mixer:|empty list"},
           {"model: {mixer: [metrik]}\n", "a.yaml:1:17: model.mixer.0.mixer: unknown|'metric'?"},
           {"model: {mixer: [metric, {mixer: mamba2, layer: 2}]}\n",
            "a.yaml:1:41: model.mixer.1.layer: unknown|layers"},
           {"model: {mixer: [metric, {kind: mamba2, rank: 3}]}\n",
            "model.mixer.1.mixer.rank: unknown|only model.mixer: gated_linear_attention"},
           {"model: {mixer: [metric, {mixer: mamba2, layers: 0}]}\n", "a.yaml:1:49: model.mixer.1.layers: 0|range"},
           {"model: {mixer: [metric, {mixer: mamba2, layers: 4}]}\n",
            "a.yaml:1:49: model.mixer.1.layers:|5|there are 4"},
           {"model: {mixer: [{kind: metric, score: distance}]}\n",
            "a.yaml:1:39: model.mixer.0.mixer.score: 'distance'"},
           {"model: {mixer: [metric, fourier]}\n", "a.yaml:1:25: model.mixer.1.mixer: fourier|behind"},
           {"model: {mixer: [metric, {kind: retention, direction: forward}]}\n",
            "model.mixer.1.mixer.direction:|no effect|language_model"},
           {"model: {mixer: [metric, none], feed_forward: none}\n", "a.yaml:1:25: model.mixer.1.mixer:|nothing"},
           {"model: {positions: rotary, mixer: [mamba2, retention]}\n", "model.positions: 'rotary'|mamba2, retention"}})
    CHECK_THAT(complaint(yaml), Mentions(expected));
  CHECK_THAT(complaint("model: {mixer: [metric]}\n", {"model.mixer.1.layers=2"}), Mentions("model.mixer.1: unknown"));
  CHECK(complaint("model: {positions: rotary, mixer: [mamba2, metric]}\n") == "accepted");
}

}  // namespace metaformer::test_variants
