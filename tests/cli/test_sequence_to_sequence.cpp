// An encoder and decoder from its config to the texts that it writes.

#include "base/random.h"
#include "cli/program.h"

namespace {

// Sentences of known words, whose targets are theirs in another language, from the end.
std::string pairs(int count) {
  const metaformer::Rng rng(3, metaformer::RandomPurpose::batches);
  std::uint64_t drawn = 0;
  std::string table = "source\ttarget\n";
  for (int i = 0; i < count; ++i) {
    std::string source, target;
    for (int word = 0; word < 2 + i % 3; ++word) {
      const auto number = std::to_string(rng.below(drawn++, 8));
      source += (word ? " w" : "w") + number;
      target = "v" + number + (word ? " " : "") + target;
    }
    table += source + "\t" + target + "\n";
  }
  return table;
}

Arguments training(const std::string& out, const Arguments& more = {}) {
  Arguments words = {"train", "--config", "pairs.yaml", "--out", out};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void write_config(const Program& program) {
  program.folder().write("pairs.tsv", pairs(800));
  program.folder().write(
      "pairs.yaml",
      "task: {kind: sequence_to_sequence, bucketing: 4}\n"
      "data: {path: pairs.tsv, validation_fraction: 0.2, tokenizer: {kind: word}}\n"
      "model: {kind: encoder_decoder, layers: 1, heads: 2, width: 32, context: 12, positions: learned,\n"
      "  mixer: scaled_dot_product, cross_mixer: scaled_dot_product, encoder: {mixer: scaled_dot_product}}\n"
      "train: {steps: 600, batch_size: 32, learning_rate: 3e-3, eval_interval: 300,\n"
      "  checkpoint_interval: 50, schedule: {warmup_steps: 10}}\n");
}

std::string model_of(const Program& program, const std::string& run) {
  return read_text(program.folder() / run / "checkpoints/last/model.safetensors");
}

}  // namespace

TEST_CASE("a translator is trained, evaluated and asked", "[cli][pairs]") {
  const Program program;
  write_config(program);
  const auto trained = program.run(training("run", {"--json"}));
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  const auto metrics = nlohmann::json::parse(program.succeed({"evaluate", "--run", "run", "--json"}));
  CHECK(metrics.at("exact_match") > 0.9);
  for (const auto* name : {"loss", "perplexity", "accuracy", "pairs", "targets"}) CHECK(metrics.contains(name));

  const auto& written = metrics.at("written");
  CHECK(written.at("exact_match") == metrics.at("exact_match"));  // greedy search writes what is likeliest
  CHECK(written.at("rouge_1") > 0.9);
  CHECK(written.at("chrf") > 90);
  CHECK(written.at("baselines").at("source").at("rouge_1") == 0);
  CHECK(written.at("signatures").at("bleu").get<std::string>().starts_with("nrefs:1|case:mixed|eff:no|tok:13a|"));
  CHECK(program.succeed({"evaluate", "--run", "run", "--json", "--processes", "2"}) ==
        program.succeed({"evaluate", "--run", "run", "--json"}));
  CHECK(program.run({"evaluate", "--run", "run", "--beam", "3"}).out.find("rouge_l") != std::string::npos);

  const auto lines = program.run_with_input({"predict", "--run", "run"}, "w1 w4\n\nw0 w3 w6\n");
  CHECK(lines.code == 3);
  CHECK(lines.out == "v4 v1\n\nv6 v3 v0\n");
  CHECK_THAT(lines.err, ContainsSubstring("standard input:2: no prediction: the line is blank"));
  const auto json = nlohmann::json::parse(
      program.run_with_input({"predict", "--run", "run", "--json", "--beam", "4", "--n-best", "3"}, "w1 w4\n").out);
  CHECK(json.at("text") == "v4 v1");
  REQUIRE(json.at("hypotheses").size() == 3);
  CHECK(json.at("hypotheses")[0].at("text") == "v4 v1");
  CHECK(json.at("hypotheses")[0].at("score") >= json.at("hypotheses")[1].at("score"));
  CHECK(json.at("tokens") == 2);

  program.folder().write("asked.tsv", "source\ttarget\nw1 w4\t?\nw0 w3 w6\t?\n");
  CHECK(program.succeed({"predict", "--run", "run", "asked.tsv"}) == "v4 v1\nv6 v3 v0\n");
  CHECK(program.succeed({"predict", "--run", "run", "asked.tsv", "--processes", "2", "--batch-size", "1"}) ==
        "v4 v1\nv6 v3 v0\n");
  program.folder().write("headless.tsv", "w1 w4\t?\nw0 w3 w6\t?\n");
  CHECK(program.succeed({"predict", "--run", "run", "headless.tsv", "--header", "absent"}) == "v4 v1\nv6 v3 v0\n");
  program.folder().write("named.tsv", "de\ten\nw1 w4\t?\n");
  CHECK(program.succeed({"predict", "--run", "run", "named.tsv", "--column", "de"}) == "v4 v1\n");
  for (const std::string other : {"headless.tsv", "named.tsv"}) {
    const auto refused = program.run({"predict", "--run", "run", other});
    CHECK(refused.code == 3);
    CHECK(refused.out.empty());
    CHECK_THAT(refused.err, ContainsSubstring(other + ":1: no column 'source' in the first row, which has "));
  }

  // A wide beam takes few texts at a time.
  const auto wide =
      program.run({"predict", "--run", "run", "asked.tsv", "--beam", "2000", "--further-tokens", "0", "--json"});
  CHECK(wide.code == 0);
  CHECK_THAT(wide.out, ContainsSubstring("\"target_cut\":false") && !ContainsSubstring("\"target_cut\":true"));
}

TEST_CASE("what a target attends to is shown, drawn and reported, and the test split is written at the end",
          "[cli][pairs]") {
  const Program program;
  write_config(program);
  program.folder().write("test.tsv", pairs(40));
  program.succeed(training("run", {"--set", "train.steps=20", "--set", "data.test_path=test.tsv"}));
  const auto summary = nlohmann::json::parse(read_text(program.folder() / "run/summary.json"));
  CHECK(summary.at("test").at("pairs") == 40);
  CHECK(summary.at("test").at("written").at("baselines").contains("first_sentence"));
  CHECK(
      program.succeed({"compare", "run", "--metrics", "test_bleu,test_rouge_l", "--format", "markdown"}).find("BLEU") !=
      std::string::npos);

  program.succeed(training(
      "other", {"--set", "train.steps=20", "--set", "data.test_path=test.tsv", "--set", "model.mixer=metric"}));
  const auto compared = program.run({"compare", "run", "other"});
  CHECK(compared.code == 0);
  CHECK(compared.err.find("McNemar") == std::string::npos);

  const auto shown = program.run({"sample", "--run", "run", "--prompt", "w1 w4", "--beam", "2"});
  REQUIRE(shown.code == 0);
  CHECK_THAT(shown.out, ContainsSubstring("\n[mark] "));
  CHECK_THAT(shown.err, ContainsSubstring(" tokens/s"));
  const auto json = nlohmann::json::parse(program.succeed({"sample", "--run", "run", "--prompt", "w1 w4", "--json"}));
  CHECK(json.at("source_tokens") == std::vector<std::string>{"w1", "w4", "[mark]"});
  REQUIRE(json.at("attention").size() == json.at("target_tokens").size());
  for (const auto& row : json.at("attention")) {
    REQUIRE(row.size() == 3);
    CHECK(row[0].get<double>() + row[1].get<double>() + row[2].get<double>() == Approx(1));
  }

  program.succeed({"inspect", "--run", "run", "--text", "w1 w4", "--beside", "run"});
  for (const auto* file :
       {"cross_attention_0.svg", "encoder_attention_0.svg", "decoder_scores_0.svg", "inspection.json"})
    CHECK(std::filesystem::exists(program.folder() / "run/inspect" / file));
  CHECK_FALSE(std::filesystem::exists(program.folder() / "run/inspect/cross_distances_0.svg"));
  const auto whole = nlohmann::json::parse(program.succeed({"inspect", "--run", "run", "--json", "--no-pictures"}));
  CHECK(whole.at("encoder").at("norms").contains("after_mixer"));
  CHECK(whole.at("decoder").at("norms").contains("after_cross"));
  CHECK(whole.at("cross").at("keys") == whole.at("encoder").at("tokens"));
  CHECK_FALSE(whole.at("cross").at("layers")[0].at("heads")[0].contains("verdict"));

  program.succeed({"report", "run", "-o", "page.html", "--prompt", "w1 w4"});
  const auto page = read_text(program.folder() / "page.html");
  for (const auto* part : {"target to source, ", "source to source, ", "target to target, "})
    CHECK_THAT(page, ContainsSubstring(part));
}

TEST_CASE("pairs and their tokenizer are described", "[cli][pairs]") {
  const Program program;
  write_config(program);
  const auto stats = nlohmann::json::parse(program.succeed({"data", "stats", "--config", "pairs.yaml", "--json"}));
  const auto& splits = stats.at("splits");
  CHECK(splits.at("train").at("pairs").get<int>() + splits.at("validation").at("pairs").get<int>() == 800);
  CHECK(splits.at("train").at("source").at("tokens_per_text").at("longest") == 4);
  CHECK(splits.at("train").at("target").at("tokens") == splits.at("train").at("source").at("tokens"));
  const auto shown = program.succeed({"data", "stats", "--config", "pairs.yaml"});
  CHECK_THAT(shown, ContainsSubstring("padding in training batches: "));
  CHECK_THAT(shown, ContainsSubstring("pairs.tsv: 0 malformed rows"));
  const auto symbols = program.run({"data", "stats", "--config", "seq2seq_copy.yaml"});
  CHECK(symbols.code == 2);
  CHECK_THAT(symbols.err, ContainsSubstring("there are no data to count"));
  CHECK_THAT(program.succeed({"data", "tokenizer", "--config", "pairs.yaml"}), ContainsSubstring("vocabulary 17"));
}

TEST_CASE("a translator goes on to the byte, and two processes train what one does", "[cli][pairs]") {
  const Program program;
  write_config(program);
  const std::string unit = GENERATE("sequence", "token");
  const Arguments noisy = {"--set", "train.steps=100",      "--set", "model.dropout=0.1",
                           "--set", "train.accumulate=2",   "--set", "train.log_interval=100",
                           "--set", "train.batch_size=100", "--set", "task.batch_unit=" + unit};
  program.succeed(training("whole", noisy));
  auto half = noisy;
  half.insert(half.end(), {"--set", "train.steps=50", "--set", "train.schedule=constant"});
  auto rest = noisy;
  rest.insert(rest.end(), {"--set", "train.schedule=constant"});
  program.succeed(training("constant", rest));
  program.succeed(training("parts", half));
  rest.push_back("--resume");
  program.succeed(training("parts", rest));
  CHECK((model_of(program, "parts") == model_of(program, "constant")));
  setenv("OMP_NUM_THREADS", "1", 1);
  auto shared = noisy;
  program.succeed(training("one", shared));
  shared.insert(shared.end(), {"--processes", "2"});
  program.succeed(training("two", shared));
  CHECK((model_of(program, "one") == model_of(program, "two")));
  if (unit == "sequence") return;
  const auto three = program.run(training("three", {"--set", "task.batch_unit=token", "--processes", "3"}));
  CHECK(three.code == 2);
  CHECK_THAT(three.err, ContainsSubstring("train.accumulate 1 cannot be divided over 3 processes"));
}

TEST_CASE("what an encoder and decoder cannot do is one error", "[cli][pairs]") {
  const Program program;
  write_config(program);
  const auto refused = [&](const Arguments& overrides) {
    Arguments words = training("run");
    for (const auto& override : overrides) words.insert(words.end(), {"--set", override});
    const auto result = program.run(words);
    CHECK(result.code == 2);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    return result.err;
  };
  CHECK_THAT(refused({"model.cross_mixer=average_pooling"}),
             ContainsSubstring("model.cross_mixer: average_pooling with these options mixes a sequence with itself"));
  CHECK_THAT(refused({"model.cross_mixer={kind: quadratic, form: full}"}),
             ContainsSubstring("model.cross_mixer: quadratic with these options"));
  CHECK_THAT(refused({"model.cross_mixer={kind: metric, backend: fused}"}),
             ContainsSubstring("model.cross_mixer.backend: 'fused' mixes a sequence with itself only"));
  CHECK_THAT(refused({"model.encoder.mixer={kind: metric, score: distance}"}),
             ContainsSubstring("model.encoder.mixer.score: 'distance' needs a metric that is never negative"));
  CHECK_THAT(refused({"model.positions=rotary", "model.encoder.mixer=identity"}),
             ContainsSubstring("'rotary' changes scores, and the mixer identity has none"));
  CHECK_THAT(refused({"model.kind=transformer"}), ContainsSubstring("set it to encoder_decoder"));
  CHECK_THAT(refused({"task=language_model"}), ContainsSubstring("it is for sequence_to_sequence"));
  CHECK_THAT(refused({"model.memory=8"}), ContainsSubstring("model.memory"));
  CHECK_THAT(refused({"data.synthetic=copy"}), ContainsSubstring("data.path: has no effect with data.synthetic"));
  CHECK_THAT(refused({"train.layer_rate_decay=0.9"}),
             ContainsSubstring("train.layer_rate_decay: has no meaning for model encoder_decoder"));
  CHECK_THAT(
      refused({"task.batch_unit=token", "train.batch_size=11"}),
      ContainsSubstring("train.batch_size: 11 tokens are fewer than a text can have: set it to model.context 12"));
  CHECK_THAT(refused({"data.corpus=multi30k"}), ContainsSubstring("data.corpus: has no effect with data.path"));
  CHECK_THAT(refused({"data.target_language=fr"}),
             ContainsSubstring("data.target_language: has no effect with data.path"));

  program.succeed(training("run", {"--set", "train.steps=2"}));
  CHECK_THAT(program.run({"sample", "--run", "run"}).err, ContainsSubstring("--prompt is missing: the source"));
  CHECK_THAT(program.run({"sample", "--run", "run", "--prompt", "w1", "--top-k", "3"}).err,
             ContainsSubstring("--top-k: has no meaning for --run run, whose task is sequence_to_sequence"));
  CHECK_THAT(program.run({"sample", "--run", "run", "--prompt", " "}).err,
             ContainsSubstring("prompt ' ': the line is blank"));
  CHECK_THAT(program.run({"predict", "--run", "run", "--n-best", "2"}).err, ContainsSubstring("raise --beam"));
  CHECK_THAT(program.run({"predict", "--run", "run", "--n-best", "2", "--beam", "2"}).err,
             ContainsSubstring("add --json"));
  CHECK_THAT(program.run({"predict", "--run", "run", "--alpha", "nan"}).err, ContainsSubstring("--alpha: "));
  CHECK_THAT(program.run({"evaluate", "--run", "run", "--beam", "2", "--random-batches", "1"}).err,
             ContainsSubstring("--beam: has no effect with --random-batches"));
  CHECK_THAT(program.run({"evaluate", "--run", "run", "--split", "test"}).err,
             ContainsSubstring("this run has no such split: its data.test_path is not set"));
  CHECK_THAT(program.run({"inspect", "--run", "run", "--batches", "1"}).err,
             ContainsSubstring("--batches: has no meaning for --run run"));
  const std::string nul("w1\0w2\n", 6);
  const auto with_nul = program.run_with_input({"predict", "--run", "run"}, nul);
  CHECK(with_nul.code == 3);
  CHECK_THAT(with_nul.err, ContainsSubstring("no prediction: the line has NUL bytes"));
  program.folder().write("nul.txt", nul);
  CHECK_THAT(program.run({"inspect", "--run", "run", "--file", "nul.txt"}).err,
             ContainsSubstring("nul.txt: the text has NUL bytes"));
  CHECK_THAT(program.run({"sample", "--run", "run", "--prompt-file", "nul.txt"}).err,
             ContainsSubstring("nul.txt: prompt 'w1\\x00w2") && ContainsSubstring("the line has NUL bytes"));
  program.folder().write("latin.txt", "caf\xe9\n");
  CHECK_THAT(program.run({"inspect", "--run", "run", "--file", "latin.txt"}).err,
             ContainsSubstring("latin.txt: not valid UTF-8"));

  for (const auto* mixer : {"model.encoder.mixer", "model.mixer", "model.cross_mixer"}) {
    program.succeed({"evaluate", "--run", "run", "--set", mixer + std::string(".backend=composed")});
    CHECK_THAT(program.run({"evaluate", "--run", "run", "--set", mixer + std::string("=identity")}).err,
               ContainsSubstring("of a trained model only options of its mixer"));
  }
}

TEST_CASE("symbols are reversed without a mistake, with metric attention in all places", "[cli][pairs]") {
  const Program program;
  const auto trained =
      program.run({"train", "--config", "seq2seq_reversal.yaml", "--out", "run", "--json", "--set",
                   "model.mixer=metric", "--set", "model.cross_mixer=metric", "--set", "model.encoder.mixer=metric"});
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(nlohmann::json::parse(trained.out).at("test").at("exact_match") == 1.0);
  CHECK(program.run_with_input({"predict", "--run", "run"}, "1 2 3 0 5 7 9 9 4 6\n").out == "6 4 9 9 7 5 0 3 2 1\n");
}
