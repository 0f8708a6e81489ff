#include <fmt/format.h>

#include "base/text.h"
#include "config/complaint.h"
#include "config/explain.h"

namespace metaformer::test_config {

TEST_CASE("the error for a mistake in a config names file, line, column, key, value and valid values", "[config]") {
  const auto [yaml, expected] = GENERATE(table<std::string, std::string>({
      {"train:\n  learning_rat: 3\n", "a.yaml:2:3: train.learning_rat: unknown"},
      {"trian: {}\n", "a.yaml:1:1: trian: unknown|'train'?"},
      {"train: {steps: 1, steps: 2}\n", "a.yaml:1:19: train.steps: key given twice, first in line 1"},
      {"train:\n  divergence:\n    spikes: {}\n    spikes: {}\n", "a.yaml:4:5: train.divergence.spikes: key given"},
      {"steps: 1\nsteps: 2\n", "a.yaml:2:1: steps: key given"},
      {"model:\n  layers: 2\n heads: 2\n", "a.yaml:3:2: not valid YAML: the indentation of this line"},
      {"train: {steps: many}\n", "a.yaml:1:16: train.steps:|integer|'many'"},
      {"train: {steps: 1.5}\n", "a.yaml:1:16: train.steps:|integer|'1.5'"},
      {"train: {steps: 0}\n", "a.yaml:1:16: train.steps: 0|range|1|10000000"},
      {"train: {steps: 99999999999999999999}\n", "a.yaml:1:16: train.steps: 99999999999999999999|range"},
      {"train: {steps: 1e30}\n", "a.yaml:1:16: train.steps: 1e30|range|1|100"},
      {"train: {steps: 1.5e0}\n", "a.yaml:1:16: train.steps:|integer|'1.5e0'"},
      {"train:\n  divergence:\n\nmodel: {layers: 1}\n", "a.yaml:2:3: train.divergence:|section"},
      {"train:\n  divergence:\n", "a.yaml:2:3: train.divergence:|section|noth"},
      {"train:\n  steps:\n  seed: 1\n", "a.yaml:2:3: train.steps:|integer|nothing"},
      {"data: {path: !escaped 'a\\q'}\n", "a.yaml:1:14: 'a\\q':|!escaped"},
      {"train: {learning_rate: -1}\n", "a.yaml:1:24: train.learning_rate: -1|range|0"},
      {"train: {learning_rate: .nan}\n", "a.yaml:1:24: train.learning_rate:|number|'.nan'"},
      {"train: {learning_rate: inf}\n", "a.yaml:1:24: train.learning_rate: inf|above 0"},
      {"train: {optimizer: {betas: [0.9]}}\n", "a.yaml:1:28: train.optimizer.betas:|2 numbers"},
      {"train: {optimizer: {betas: [0.9, 1.0]}}\n", "a.yaml:1:28: train.optimizer.betas: 1|range"},
      {"train: {freeze: head}\n", "a.yaml:1:17: train.freeze:|texts|'head'"},
      {"train: {freeze: [head, {}]}\n", "a.yaml:1:24: train.freeze:|section"},
      {"train: {rate_factors: [head]}\n", "a.yaml:1:23: train.rate_factors: 'head'|PARAMETER=FACTOR"},
      {"train: {layer_rate_decay: 0}\n", "a.yaml:1:27: train.layer_rate_decay: 0|range|0"},
      {"train: {divergence: rollback}\n", "a.yaml:1:21: train.divergence:|section|'key: value'"},
      {"model: metric\n", "a.yaml:1:8: model:|'metric'|transformer, encoder_decoder,"},
      {"model: {bias: yes}\n", "a.yaml:1:15: model.bias:|true or false|'yes'"},
      {"model: {heads: 3}\n", "a.yaml:1:16: model.heads: 3|model.width 128"},
      {"model: {width: 129}\n", "a.yaml:1:16: model.heads: 4|model.width 129"},
      {"model: {mixer: {kind: metrik}}\n", "a.yaml:1:23: model.mixer.kind: unknown|'metrik'"},
      {"model: {mixer: {kind: quadratic, constraint: psd}}\n", "a.yaml:1:34: model.mixer.constraint: unknown"},
      {"model: {mixer: {kind: metric, score: distance}}\n", "a.yaml:1:38: model.mixer.score: 'distance'"},
      {"model: {mixer: {kind: metric, score: as_published, backend: composed}}\n", "a.yaml:1:61: model.mixer.backend"},
      {"model: {mixer: {kind: scaled_dot_product, score_std: 0}}\n", "a.yaml:1:54: model.mixer.score_std: 0"},
      {"model: {mixer: {kind: scaled_dot_product, backend: fused}}\n",
       "a.yaml:1:52: model.mixer.backend: scaled_dot_product|'fused'|auto"},
      {"model: {width: 400, mixer: {kind: metric, backend: fused}}\n", "a.yaml:1:52: model.mixer.backend: 'fused'"},
      {"model: {mixer: {kind: average_pooling, window: 0}}\n", "a.yaml:1:48: model.mixer.window:|number"},
      {"train: {schedule: {floor: 0.1}}\n", "a.yaml:1:27: train.schedule.floor: 0.1|train.learning_rate 0.001"},
      {"data: {validation_fraction: 0}\n", "a.yaml:1:29: data.validation_fraction: 0|range|0"},
      {"\n", "a.yaml:1:1: has no key|key: value"},
      {"# model: {layers: 2}\n", "a.yaml:1:1: has no key"},
      {"- a\n", "a.yaml:1:1:|got a list"},
      {"just words\n", "a.yaml:1:1:|'just words'"},
      {"task: language_model\n---\ntask: language_model\n", "a.yaml:1:1:|one YAML document"},
      {"{[a]: 1}\n", "a.yaml:1:2:|plain word"},
  }));
  CHECK_THAT(complaint(yaml), Mentions(expected));
}

TEST_CASE("the error for a mistake in --set names the argument", "[config]") {
  const auto [argument, why] = GENERATE(table<std::string, std::string>({
      {"train.stepz=1", "train.stepz: unknown|'train.steps'?"},
      {"train.steps", "expected section.key=value"},
      {"=1", "expected section.key=value"},
      {"train..steps=1", "expected section.key=value"},
      {"base=x.yaml", "base: belongs|--config"},
      {"train=[1", "'[1' is not a valid"},
      {"train.steps=a: b: c", "'a: b: c'|not a valid"},
      {"train.steps=", "train.steps:|integer|nothing"},
  }));
  CHECK_THAT(complaint("", {argument}), Mentions("--set " + argument + ": " + why));
}

TEST_CASE("later layers override earlier ones: defaults, base, file, --set, and only the result is checked",
          "[config]") {
  const TemporaryFolder folder;
  folder.write("base.yaml", "train: {steps: 10, seed: 5, batch_size: 3}\n");
  const auto file = folder.write("a.yaml", "base: base.yaml\ntrain: {steps: 20, seed: 6}\n").string();
  const auto experiment = load_experiment(file, {"train.seed=7"});
  CHECK(experiment.name == "a");
  CHECK(experiment.config.train.batch_size == 3);
  CHECK(experiment.config.train.steps == 20);
  CHECK(experiment.config.train.seed == 7);
  CHECK(transformer(experiment.config).width == 128);
  CHECK(experiment.provenance.at("train.seed").str() == "--set train.seed=7");
  CHECK(experiment.provenance.at("train.batch_size").str() == (folder / "base.yaml").string() + ":1:41");
  CHECK_FALSE(experiment.provenance.contains("model.width"));
  CHECK(config_of("train: {steps: 0}\n", {"train.steps=5"}).train.steps == 5);
  CHECK(config_of("model: {heads: 3}\n", {"model.width=126"}).train.steps == 2000);
}

TEST_CASE("a base is found beside the file that names it, and loops and long chains are errors", "[config]") {
  const TemporaryFolder folder;
  folder.write("sub/base.yaml", "train: {steps: 11}\n");
  CHECK(load_experiment(folder.write("sub/a.yaml", "base: base.yaml\n").string()).config.train.steps == 11);
  folder.write("loop.yaml", "base: other.yaml\n");
  folder.write("other.yaml", "base: loop.yaml\n");
  CHECK_THROWS_WITH(load_experiment((folder / "loop.yaml").string()), Mentions("other.yaml:1:7: base: |loop)"));
  for (int i = 0; i < 40; ++i)
    folder.write("c" + std::to_string(i) + ".yaml", "base: c" + std::to_string(i + 1) + ".yaml\n");
  CHECK_THROWS_WITH(load_experiment((folder / "c0.yaml").string()), ContainsSubstring("more than 32 files"));
  const auto missing = folder.write("missing.yaml", "base: sub/bsae.yaml\n").string();
  CHECK_THROWS_WITH(load_experiment(missing), ContainsSubstring("missing.yaml:1:7: base: sub/bsae.yaml:"));
}

TEST_CASE("several bases are applied in order, each once and after its own bases", "[config]") {
  const TemporaryFolder folder;
  folder.write("common.yaml", "train: {steps: 1, seed: 1, batch_size: 1}\nmodel: {layers: 1, width: 16}\n");
  folder.write("one.yaml", "base: common.yaml\ntrain: {seed: 2, batch_size: 2}\n");
  folder.write("two.yaml", "base: common.yaml\ntrain: {batch_size: 3}\nmodel: {layers: 3}\n");
  const auto file = folder.write("a.yaml", "base: [one.yaml, two]\nmodel: {width: 32}\n").string();
  const auto config = load_experiment(file).config;
  CHECK(config.train.steps == 1);
  CHECK(config.train.seed == 2);  // the base of two.yaml does not override one.yaml
  CHECK(config.train.batch_size == 3);
  CHECK(transformer(config).layers == 3);
  CHECK(transformer(config).width == 32);
  for (const auto& [yaml, expected] : {std::pair{"base: [one.yaml, b.yaml]\n", "b.yaml:1:18: base: |(a loop)"},
                                       {"base: [one.yaml, [two.yaml]]\n", "b.yaml:1:18: base:|name"},
                                       {"base: {one: 1}\n", "b.yaml:1:7: base:|name"},
                                       {"base: [one.yaml, thre.yaml]\n", "b.yaml:1:18: base: thre.yaml:"}}) {
    const auto path = folder.write("b.yaml", yaml).string();
    CHECK_THAT(message_of(ExitCode::usage, [&] { load_experiment(path); }), Mentions(expected));
  }
  CHECK_NOTHROW(load_experiment(folder.write("b.yaml", "base: []\n").string()));
  // A base that is named many times is read once.
  folder.write("c0.yaml", "train: {steps: 7}\n");
  for (int i = 1; i < 30; ++i) folder.write(fmt::format("c{}.yaml", i), fmt::format("base: [c{0}, c{0}]\n", i - 1));
  CHECK(load_experiment((folder / "c29.yaml").string()).config.train.steps == 7);
}

TEST_CASE("a misspelt config name suggests the right one", "[config]") {
  CHECK_THROWS_WITH(find_config("shakespeare_metrik.yaml"), Mentions("'shakespeare_metric.yaml'?"));
  CHECK_THROWS_WITH(find_config("zebra"), Mentions("zebra:|working folder|" + config_folders().back().string()));
  CHECK(find_config("shakespeare_metric").filename() == "shakespeare_metric.yaml");
  const TemporaryFolder folder;
  folder.write("mine.yaml", "");
  CHECK_THROWS_WITH(find_config((folder / "mime.yaml").string()), ContainsSubstring("did you mean 'mine.yaml'?"));
}

TEST_CASE("hostile YAML is refused, not expanded", "[config]") {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    bomb += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 10; ++i) bomb += std::string(i ? ", *" : "*") + static_cast<char>(c - 1);
    bomb += "]\n";
  }
  std::string deep = "a";
  for (int i = 0; i < 20'000; ++i) deep += ".a";
  CHECK_THROWS_WITH(default_experiment({deep + "=1"}), ContainsSubstring("deeper than 32 levels"));
  for (const auto& [yaml, text] : {std::pair<std::string, std::string>{bomb, "more than 10000 values"},
                                   {"a: " + std::string(5000, '[') + std::string(5000, ']'), "deeper than 32 levels"},
                                   {"a: " + std::string(5000, 'x'), "5000 bytes"},
                                   {"\"a\\e[31m\\nb\": 1\n", "a\\x1b[31m\\nb: unknown key"},
                                   {std::string(10 << 20, '#'), "larger|1.0 MiB"},
                                   {"a: *unknown\n", "not valid YAML"},
                                   {std::string("a: \0b", 5), "a.yaml:"}})
    CHECK_THAT(complaint(yaml), Mentions(text));
}

TEST_CASE("the config of a run is checked like any other, and contains every key whose default may change",
          "[config]") {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& yaml) {
    return failure([&] { load_run_experiment(folder.write("config.yaml", yaml)); }).second;
  };
  CHECK_THAT(refusal(config_to_yaml(ExperimentConfig{}) + "      factor: 1\n"), Mentions("spikes.factor: unknown key"));
  CHECK_THAT(refusal("task: sort\ndata: {path: a}\n"), ContainsSubstring("data: unknown key"));
  CHECK_THAT(refusal(""), ContainsSubstring("config.yaml:1:1: has no key"));
  CHECK_THAT(refusal("train: {betas: [0.9, 0.95]}\n"), ContainsSubstring("did you mean 'train.optimizer.betas'?"));
  const auto config = default_experiment({"task=sequence_to_sequence", "data.synthetic=copy", "model=encoder_decoder",
                                          "model.positions=sinusoidal", "model.embedding.scale=none"})
                          .config;
  const auto yaml = config_to_yaml(config);
  CHECK(refusal(yaml).empty());
  CHECK(config_to_json(load_run_experiment(folder / "config.yaml").config) == config_to_json(config));
  const std::string mixer = "kind: scaled_dot_product";
  int mixers = 0;
  for (auto at = yaml.find(mixer); at != std::string::npos; at = yaml.find(mixer, at + 1)) ++mixers;
  CHECK(mixers == 3);
}

TEST_CASE("a path of any bytes reads back from a dumped config", "[config]") {
  auto config = ExperimentConfig{};
  language_model(config).data.path = GENERATE(as<std::string>(), "/data/\xff/a b.txt", "/\\x41\xc3\xa9\xe9",
                                              "/tab\tand\x1b[31m\x7f", "/\xc2\x9b\xe2\x80\xae.txt");
  const auto yaml = config_to_yaml(config);
  CHECK(escaped_lines(yaml) == yaml);  // safe to show on a terminal
  CHECK(data_of(config_of(yaml))->path == data_of(config)->path);
}

TEST_CASE("explain knows every key of a dump", "[config]") {
  std::vector<std::string> explained;
  for (const auto& field : explain_config()) {
    explained.push_back(field.path);
    CHECK_FALSE(field.meaning.empty());
  }
  const auto visit_keys = [&](const auto& self, const nlohmann::ordered_json& section,
                              const std::string& prefix) -> void {
    for (const auto& [key, value] : section.items()) {
      if (value.is_object()) {
        self(self, value, prefix + key + ".");
      } else {
        // The kind of a section is explained with the section.
        const auto path = key == "kind" ? prefix.substr(0, prefix.size() - 1) : prefix + key;
        CHECK_THAT(explained, Catch::Matchers::VectorContains(path));
      }
    }
  };
  visit_keys(visit_keys, config_to_json(ExperimentConfig{}), "");
}

}  // namespace metaformer::test_config
