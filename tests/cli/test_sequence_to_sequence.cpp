// An encoder and decoder, from the config to the generated texts.

#include "base/random.h"
#include "cli/program.h"

namespace {

// Sentences of known words; a target has their translations in reverse order.
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

Arguments training(const std::string& out, const Arguments& changes = {}) {
  return joined({"train", "--config", "pairs.yaml", "--out", out}, set(changes));
}

struct PairsProgram : Program {
  PairsProgram() {
    folder().write("pairs.tsv", pairs(800));
    folder().write(
        "pairs.yaml",
        "task: {kind: sequence_to_sequence, bucketing: 4}\n"
        "data: {path: pairs.tsv, validation_fraction: 0.2, tokenizer: {kind: word}}\n"
        "model: {kind: encoder_decoder, layers: 1, heads: 2, width: 32, context: 12, positions: learned,\n"
        "  mixer: scaled_dot_product, cross_mixer: scaled_dot_product, encoder: {mixer: scaled_dot_product}}\n"
        "train: {steps: 600, batch_size: 32, learning_rate: 3e-3, eval_interval: 300,\n"
        "  checkpoint_interval: 50, schedule: {warmup_steps: 10}}\n");
  }
};

}  // namespace

TEST_CASE("a translator can be trained and evaluated, and translates with predict", "[cli][pairs]") {
  const PairsProgram program;
  program.succeed(training("run"));
  const auto metrics = program.json("evaluate --run run");
  CHECK(metrics.at("exact_match") > 0.9);
  for (const auto* name : {"loss", "perplexity", "accuracy", "pairs", "targets"}) CHECK(metrics.contains(name));

  const auto& written = metrics.at("written");
  CHECK(written.at("exact_match") == metrics.at("exact_match"));  // greedy search writes the most likely tokens
  CHECK(written.at("rouge_1") > 0.9);
  CHECK(written.at("chrf") > 90);
  CHECK(written.at("baselines").at("source").at("rouge_1") == 0);
  CHECK(written.at("signatures").at("bleu").get<std::string>().starts_with("nrefs:1|case:mixed|eff:no|tok:13a|"));
  CHECK(program.json("evaluate --run run --processes 2") == metrics);
  CHECK_THAT(program.succeed("evaluate --run run --beam 3"), ContainsSubstring("rouge_l"));
  CHECK_THAT(program.read("err"), !ContainsSubstring("BLEU, which needs"));
  program.folder().write("short.tsv", "source\ttarget\nw1 w2\tv2 v1\n");
  CHECK(program.json("evaluate --run run short.tsv").at("written").at("bleu") == 0);
  CHECK_THAT(program.read("err"), ContainsSubstring("no written target has four words, so that BLEU"));

  const Arguments predict = "predict --run run";
  const auto lines = program.run_with_input(predict, "w1 w4\n\nw0 w3 w6\n");
  Program::check_refused(lines, 3, {"standard input:2: "});
  CHECK(lines.out == "v4 v1\n\nv6 v3 v0\n");
  const auto json = Json::parse(program.run_with_input(joined(predict, "--json --beam 4 --n-best 3"), "w1 w4\n").out);
  CHECK(json.at("text") == "v4 v1");
  REQUIRE(json.at("hypotheses").size() == 3);
  CHECK(json.at("hypotheses")[0].at("text") == "v4 v1");
  CHECK(json.at("hypotheses")[0].at("score") >= json.at("hypotheses")[1].at("score"));
  CHECK(json.at("tokens") == 2);

  program.folder().write("asked.tsv", "source\ttarget\nw1 w4\t?\nw0 w3 w6\t?\n");
  program.folder().write("headless.tsv", "w1 w4\t?\nw0 w3 w6\t?\n");
  program.folder().write("named.tsv", "de\ten\nw1 w4\t?\n");
  for (const auto* asked : {"asked.tsv", "asked.tsv --processes 2 --batch-size 1", "headless.tsv --header absent"})
    CHECK(program.succeed(predict, asked) == "v4 v1\nv6 v3 v0\n");
  CHECK(program.succeed(predict, "named.tsv --column de") == "v4 v1\n");
  for (const std::string other : {"headless.tsv", "named.tsv"})
    CHECK(program.refuse(joined(predict, other), 3, {other + ":", "no column 'source'"}).out.empty());

  // With a wide beam few texts are searched at once.
  CHECK_THAT(program.succeed(predict, "asked.tsv --beam 2000 --further-tokens 0 --json"),
             ContainsSubstring("\"target_cut\":false") && !ContainsSubstring("\"target_cut\":true"));
}

TEST_CASE("cross-attention is shown, drawn and reported, and the test split is translated at the end", "[cli][pairs]") {
  const PairsProgram program;
  program.folder().write("test.tsv", pairs(40));
  program.succeed(training("run", {"train.steps=20", "data.test_path=test.tsv"}));
  const auto test = program.read_json("run/summary.json").at("test");
  CHECK(test.at("pairs") == 40);
  CHECK(test.at("written").at("baselines").contains("first_sentence"));
  CHECK_THAT(program.succeed("compare run --metrics test_bleu,test_rouge_l --format markdown"), Mentions("BLEU"));
  program.succeed(training("other", {"train.steps=20", "data.test_path=test.tsv", "model.mixer=metric"}));
  program.succeed("compare run other");
  CHECK(program.read("err").find("McNemar") == std::string::npos);

  const Arguments sample = "sample --run run --prompt 'w1 w4'";
  CHECK_THAT(program.succeed(sample, "--beam 2"), ContainsSubstring("\n[mark] "));
  CHECK_THAT(program.read("err"), ContainsSubstring(" tokens/s"));
  const auto json = program.json(sample);
  CHECK(json.at("source_tokens") == std::vector<std::string>{"w1", "w4", "[mark]"});
  REQUIRE(json.at("attention").size() == json.at("target_tokens").size());
  for (const auto& row : json.at("attention")) {
    REQUIRE(row.size() == 3);
    CHECK(row[0].get<double>() + row[1].get<double>() + row[2].get<double>() == Approx(1));
  }

  program.succeed("inspect --run run --text 'w1 w4' --beside run");
  for (const std::string file :
       {"cross_attention_0.svg", "encoder_attention_0.svg", "decoder_scores_0.svg", "inspection.json"})
    CHECK(program.has("run/inspect/" + file));
  CHECK_FALSE(program.has("run/inspect/cross_distances_0.svg"));
  const auto whole = program.json("inspect --run run --no-pictures");
  CHECK(whole.at("encoder").at("norms").contains("after_mixer"));
  CHECK(whole.at("decoder").at("norms").contains("after_cross"));
  CHECK(whole.at("cross").at("keys") == whole.at("encoder").at("tokens"));
  CHECK_FALSE(whole.at("cross").at("layers")[0].at("heads")[0].contains("verdict"));

  program.succeed("report run -o page.html --prompt 'w1 w4'");
  CHECK_THAT(program.read("page.html"), ContainsSubstring("target to source, ") &&
                                            ContainsSubstring("source to source, ") &&
                                            ContainsSubstring("target to target, "));
}

TEST_CASE("pairs and their tokenizer are described", "[cli][pairs]") {
  const PairsProgram program;
  CHECK_THAT(program.succeed("data stats --config pairs.yaml"),
             ContainsSubstring("padding in training batches: ") && ContainsSubstring("pairs.tsv: 0 malformed rows"));
  program.refuse("data stats --config seq2seq_copy.yaml", 2, {"no data"});
  CHECK_THAT(program.succeed("data tokenizer --config pairs.yaml"), ContainsSubstring("vocabulary 17"));
}

TEST_CASE("an option that an encoder and decoder cannot have is one error that names the key", "[cli][pairs]") {
  const PairsProgram program;
  const auto [changes, text] = GENERATE(table<Arguments, std::string>({
      {{"model.cross_mixer=average_pooling"}, "model.cross_mixer: average_pooling "},
      {{"model.cross_mixer={kind: quadratic, form: full}"}, "model.cross_mixer: quadratic "},
      {{"model.cross_mixer={kind: metric, backend: fused}"}, "model.cross_mixer.backend: 'fused' "},
      {{"model.encoder.mixer={kind: metric, score: distance}"}, "model.encoder.mixer.score: 'distance' "},
      {{"model.positions=rotary", "model.encoder.mixer=identity"}, "'rotary' changes|identity "},
      {{"model.kind=transformer"}, "encoder_decoder"},
      {{"task=language_model"}, "sequence_to_sequence"},
      {{"model.memory=8"}, "model.memory"},
      {{"data.synthetic=copy"}, "data.path:|effect|data.synthetic"},
      {{"train.layer_rate_decay=0.9"}, "train.layer_rate_decay:|meaning|encoder_decoder"},
      {{"task.batch_unit=token", "train.batch_size=11"}, "train.batch_size: 11 "},
      {{"data.corpus=multi30k"}, "data.corpus:|effect|data.path"},
      {{"data.target_language=fr"}, "data.target_language:|effect|data.path"},
  }));
  program.refuse_in_one_line(training("run", changes), 2, {text});
}

TEST_CASE("commands name the option or the file that they cannot use with a translator", "[cli][pairs]") {
  const PairsProgram program;
  program.succeed(training("run", {"train.steps=2"}));
  const std::string nul("w1\0w2\n", 6);
  program.folder().write("nul.txt", nul);
  program.folder().write("latin.txt", "caf\xe9\n");
  for (const auto& [arguments, code, text] : std::vector<std::tuple<Arguments, int, std::string>>{
           {"sample --run run", 2, "--prompt is missing"},
           {"sample --run run --prompt w1 --top-k 3", 2, "--top-k:|meaning|--run"},
           {"sample --run run --prompt ' '", 2, "prompt ' ': "},
           {"predict --run run --n-best 2", 2, "--beam"},
           {"predict --run run --n-best 2 --beam 2", 2, "--json"},
           {"predict --run run --alpha nan", 2, "--alpha: "},
           {"evaluate --run run --beam 2 --random-batches 1", 2, "--beam:|effect|--random-batches"},
           {"evaluate --run run --split test", 2, "data.test_path"},
           {"inspect --run run --batches 1", 2, "--batches:|meaning|--run"},
           {"inspect --run run --file nul.txt", 3, "nul.txt:|NUL bytes"},
           {"sample --run run --prompt-file nul.txt", 2, "nul.txt: prompt 'w1\\x00w2"},
           {"inspect --run run --file latin.txt", 3, "latin.txt: not valid UTF-8"}}) {
    CAPTURE(arguments);
    program.refuse(arguments, code, {text});
  }
  Program::check_refused(program.run_with_input("predict --run run", nul), 3, {"NUL bytes"});
  for (const std::string mixer : {"model.encoder.mixer", "model.mixer", "model.cross_mixer"}) {
    program.succeed({"evaluate", "--run", "run", "--set", mixer + ".backend=composed"});
    program.refuse({"evaluate", "--run", "run", "--set", mixer + "=identity"}, 2, {mixer});
  }
}

TEST_CASE("symbols are reversed without a mistake with metric attention in all places", "[cli][pairs]") {
  const Program program;
  const auto summary = program.json(
      "train --config seq2seq_reversal.yaml --out run --set model.mixer=metric "
      "--set model.cross_mixer=metric --set model.encoder.mixer=metric");
  CHECK(summary.at("test").at("exact_match") == 1.0);
  CHECK(program.run_with_input("predict --run run", "1 2 3 0 5 7 9 9 4 6\n").out == "6 4 9 9 7 5 0 3 2 1\n");
}
