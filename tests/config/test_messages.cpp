// Frequent mistakes of someone who writes a first config.

#include "config/complaint.h"
#include "config/loader.h"

namespace metaformer {

TEST_CASE("a plain value for a section on the command line names the keys of the section", "[config]") {
  CHECK(complaint("", {"train.divergence=rollback"}) ==
        "--set train.divergence=rollback: train.divergence: expected a section, got 'rollback' (keys here: action, "
        "spikes)");
  CHECK_THAT(complaint("", {"train=30"}),
             ContainsSubstring("train: expected a section, got '30' (keys here: steps, batch_size, "));
}

TEST_CASE("a text or a table in the place of a config is named, with what to type", "[config]") {
  const TemporaryFolder folder;
  const auto outcome = [&](const std::string& name, const std::string& content) {
    const auto path = folder.write(name, content).string();
    const auto [code, message] = failure([&] { load_experiment(path, {}); });
    CHECK(code == ExitCode::usage);
    CHECK(message.find('\n') == std::string::npos);
    return std::pair(path, message);
  };
  const std::string long_text(3 << 20, 'a');
  for (const auto& [name, content] : {std::pair<std::string, std::string>{"own.txt", long_text},
                                      {"novel", long_text},
                                      {"small.txt", "First Citizen:\nBefore we proceed any further, hear me speak.\n"},
                                      {"small.text", "plain words\n"},
                                      {"lines.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n"},
                                      {"packed.txt.gz", "\x1f\x8b\x08"}}) {
    const auto [path, message] = outcome(name, content);
    CHECK_THAT(message, Catch::Matchers::EndsWith(" this is a text, and a config is a YAML file; to train on it: "
                                                  "metaformer train --config shakespeare_metric.yaml --set data.path=" +
                                                  path));
  }
  const auto [path, message] = outcome("reviews.csv", "text,label\nfine,good\n");
  CHECK_THAT(message, Catch::Matchers::EndsWith(path +
                                                ": this is a table, and a config is a YAML file; to train on it: "
                                                "metaformer train --config text_classifier.yaml --set data.path=" +
                                                path));
  CHECK_THAT(outcome("a.yaml", "train: {stepz: 3}\n").second, !ContainsSubstring("this is a text"));
  CHECK_THAT(failure([&] { load_experiment(folder.path().string(), {}); }).second,
             ContainsSubstring("a folder, and a config is a YAML file; to train on the texts in it: metaformer train"));
  const auto config = folder.write("config.txt", "train: {steps: 3}\n").string();
  CHECK(load_experiment(config, {}).config.train.steps == 3);
  CHECK_THAT(failure([&] { load_experiment(config, {"train.stepz=3"}); }).second,
             ContainsSubstring("train.stepz: unknown key"));
}

TEST_CASE("white space is kept by default where a model writes text", "[config]") {
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
  CHECK_THAT(complaint(tokenizer, {"data.tokenizer.whitespace=dropped"}),
             ContainsSubstring("a language model needs the spaces that " + kind + " leaves out: set it to kept"));
}

TEST_CASE("a tab and an open bracket are named", "[config]") {
  const auto [yaml, expected] = GENERATE(table<std::string, std::string>({
      {"train:\n\tsteps: 3\n", "a.yaml:2:1: indented with a tab; use spaces"},
      {"train:\n  steps: 3\n\tseed: 1\n", "a.yaml:3:1: indented with a tab; use spaces"},
      {"train:\n  schedule:\n  \tkind: cosine\n", "a.yaml:3:3: indented with a tab; use spaces"},
      {"train: [1, 2\n", "a.yaml:2:1: not valid YAML: a '[' is not closed"},
      {"train: {steps: 3\nmodel: {layers: 2}\n", "a.yaml:2:6: not valid YAML: a '{' is not closed"},
      {"train: {steps: 3\n\tseed: 1\n", "a.yaml:2:6: not valid YAML: a '{' is not closed"},
      {"train: {betas: [1, 2}\n", "a.yaml:1:21: not valid YAML: a '[' is not closed"},
      {"train: [1, {a: 2]\n", "a.yaml:1:17: not valid YAML: a '{' is not closed"},
      {"a: 1\n b: 2\n", "a.yaml:2:3: not valid YAML: illegal map value"},
  }));
  CHECK(complaint(yaml) == expected);
}

TEST_CASE("a pretrained tokenizer needs a path, which becomes absolute", "[config]") {
  CHECK(complaint("data:\n  tokenizer: pretrained\n") ==
        "a.yaml:2:14: data.tokenizer.path: is missing: name the folder or file of the tokenizer");
  CHECK_THAT(
      complaint("", {"data.tokenizer={kind: bpe, path: x}"}),
      ContainsSubstring("data.tokenizer.path: unknown key for kind 'bpe'; only data.tokenizer: pretrained has it"));
  const auto config = default_experiment({"data.tokenizer={kind: pretrained, path: ./gpt2/}"}).config;
  CHECK(std::get<PretrainedTokenizerOptions>(language_model(config).data.tokenizer).path ==
        (std::filesystem::current_path() / "gpt2").string());
}

TEST_CASE("the paths of pairs become absolute", "[config]") {
  const auto config =
      default_experiment({"task=sequence_to_sequence", "model=encoder_decoder", "data.path=a", "data.target_path=b",
                          "data.validation_path=c", "data.validation_target_path=d", "data.test_path=e",
                          "data.test_target_path=f"})
          .config;
  const auto& data = std::get<SequenceToSequenceConfig>(config.task).data;
  const auto here = [](const char* name) { return (std::filesystem::current_path() / name).string(); };
  CHECK(data.path == here("a"));
  CHECK(data.target_path == here("b"));
  CHECK(data.validation_path == here("c"));
  CHECK(data.validation_target_path == here("d"));
  CHECK(data.test_path == here("e"));
  CHECK(data.test_target_path == here("f"));
}

TEST_CASE("what is valid and probably unintended gives a warning", "[config]") {
  const auto warnings = [](const std::vector<std::string>& overrides) {
    const auto experiment = default_experiment(overrides);
    return config_warnings(experiment.config, experiment.provenance);
  };
  CHECK(warnings({}).empty());
  CHECK(warnings({"train.steps=101"}).empty());
  CHECK(warnings({"train.steps=100"}) ==
        std::vector<std::string>{"--set train.steps=100: train.steps: 100 is not above "
                                 "train.schedule.warmup_steps 100: all of the training is warm-up"});
  CHECK(warnings({"train.schedule={kind: constant, warmup_steps: 3000}"}) ==
        std::vector<std::string>{"default: train.steps: 2000 is not above train.schedule.warmup_steps "
                                 "3000: all of the training is warm-up"});
  CHECK(warnings({"task=classification", "model=linear"}).empty());
  CHECK(warnings({"train.loss_chunks=768", "model.feed_forward.chunks=768"}).empty());  // 12 rows of 64 tokens
  CHECK(warnings({"train.loss_chunks=769", "model.feed_forward.chunks=800"}) ==
        std::vector<std::string>{
            "--set train.loss_chunks=769: train.loss_chunks: 769 is above the 768 tokens of a batch",
            "--set model.feed_forward.chunks=800: model.feed_forward.chunks: 800 is above the 768 tokens of a batch"});
}

}  // namespace metaformer
