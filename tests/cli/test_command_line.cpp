// The executable as scripts use it: training, evaluation and sampling together, and the output of info and config.

#include <set>

#include "cli/program.h"

TEST_CASE("train, evaluate and sample work together", "[cli]") {
  const Program program;
  const auto trained = program.run("train --config small.yaml --json");
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  const auto summary = Json::parse(trained.out);
  CHECK(summary == program.read_json("runs/latest/summary.json"));
  for (const auto* key : {"steps", "train_loss", "val_loss", "best_val_loss", "parameters", "mixer_parameters",
                          "ms_per_step", "tokens_per_second", "peak_memory_bytes"})
    CHECK(summary.at(key).is_number());
  for (const std::string name :
       {"config.yaml", "environment.json", "metrics.jsonl", "train.log", "checkpoints/best/model.safetensors",
        "checkpoints/last/state.safetensors", "checkpoints/last/meta.json", "checkpoints/last/tokenizer.json"})
    CHECK(program.has("runs/latest/" + name));
  // The last line on stderr is the run's path.
  CHECK(fs::equivalent(program.at(lines_of(trained.err).back()), program.at("runs/latest")));

  const auto evaluated = program.json("evaluate --checkpoint last");
  CHECK(evaluated.at("loss").get<double>() == Approx(summary.at("val_loss").get<double>()).epsilon(1e-6));
  program.refuse("evaluate --split test", 2, {"--split test: ", "expected train or validation\n"});
  program.succeed("config check small.yaml --set train.schedule.warmup_steps=4");
  CHECK_THAT(program.read("err"), ContainsSubstring("warning: small.yaml:3:16: train.steps: 4 "));
  CHECK(is_one_line(program.read("err")));

  const Arguments sample = "sample --prompt 'to be' --tokens 40 --seed 3";
  const auto sampled = program.succeed(sample);
  CHECK(sampled.starts_with("to be"));
  CHECK(sampled.size() == 5 + 40 + 1);
  for (const Arguments& more : {Arguments{}, {"--no-cache"}, {"--no-graph"}})
    CHECK(program.succeed(sample, more) == sampled);
  CHECK(program.json("sample --prompt to --tokens 9 --temperature 0").at("tokens") == 9);
  program.refuse("sample --prompt ~", 2, {"'~' (U+007E)"});
}

TEST_CASE("the options --overfit-batch and --profile have their effects, also after a resume", "[cli]") {
  const Program program;
  const Arguments train = "train --config small.yaml --out run --overfit-batch --json";
  const auto first = program.run(train, "--set train.steps=20 --profile");
  REQUIRE(first.code == 0);
  CHECK_THAT(first.err, ContainsSubstring("aten::mm") && ContainsSubstring("over 10 steps"));
  CHECK(program.read_json("run/profile.json").contains("traceEvents"));
  const auto late =
      Json::parse(program.succeed(train, "--resume --set train.steps=300 --set train.diagnostics_interval=100"));
  CHECK(late["val_loss"].get<double>() < 0.8 * Json::parse(first.out)["val_loss"].get<double>());
  CHECK_THAT(program.read("run/metrics.jsonl"), ContainsSubstring("score_effective_rank"));
  CHECK_THAT(program.run("evaluate --run run").err, ContainsSubstring("first batch"));
}

TEST_CASE("after an injected NaN or overflow the run exits with code 4 or rolls back, and in fp16 the step is skipped",
          "[cli][fp16]") {
  const Program program;
  const Variables fault{{"METAFORMER_FAULT", GENERATE("nan:3", "overflow:3")}};
  program.refuse("train --config small.yaml --out stopped", 4, {"step 3: ", "in the gradient of "});
  const auto repaired = program.json("train --config small.yaml --out repaired --set train.divergence.action=rollback");
  CHECK_THAT(program.read("err"), Mentions("rollback 1 of 3:|2"));
  CHECK(repaired.at("rollbacks") == 1);
  const auto summary =
      program.json("train --config small.yaml --out run --set train.precision=fp16 --set train.log_interval=1");
  CHECK((summary.at("skipped_steps") == 1 && summary.at("steps") == 4 && summary.at("rollbacks") == 0));
  std::vector<std::pair<int, int>> skipped;
  for (const auto& line : json_lines(program.read("run/metrics.jsonl")))
    if (line["split"] == "train") skipped.emplace_back(line["step"], line["skipped_steps"]);
  CHECK(skipped == decltype(skipped){{1, 0}, {2, 0}, {4, 1}});  // step 3 has no loss
}

TEST_CASE("info finds that the linked libraries work, and METAFORMER_MKL=own lets MKL choose", "[cli]") {
  const Program program;
  const auto info_with = [&](const std::string& wish) {
    const Variables variables{{"METAFORMER_MKL", wish}};
    return program.json("info");
  };
  const auto info = info_with("");
  for (const auto& [name, works] : info.at("checks").items()) CHECK(works == true);
  CHECK(info.at("torch").get<std::string>().starts_with("2."));
  if (info.at("matrix_products").get<std::string>().find("widest") != std::string::npos)
    CHECK_THAT(info_with("own").at("matrix_products").get<std::string>(), ContainsSubstring("decides for itself"));
  const Variables variables{{"METAFORMER_MKL", "fast"}};
  program.refuse("train --config small.yaml --out run", 2, {"METAFORMER_MKL=fast: expected own"});
  CHECK_FALSE(program.has("run"));
}

TEST_CASE("the vocabulary is counted if the data exist, and one layer is in the singular", "[cli]") {
  const Program program;
  const auto text = small_text();
  const auto count = std::set<char>(text.begin(), text.end()).size();
  const auto tokens = "vocabulary of " + std::to_string(count) + " tokens";
  CHECK_THAT(program.train("run", {"train.steps=1"}), Mentions("1 layer, 2 heads") && Mentions(tokens));
  CHECK_THAT(program.succeed("config check small.yaml"), ContainsSubstring("the data's " + tokens));
  CHECK(program.json("config check small.yaml").at("vocabulary") == count);
  CHECK_THAT(program.succeed("config check small.yaml --set data.path=nowhere.txt"), Mentions("vocabulary of 128"));
  CHECK_THAT(program.read("err"),
             Mentions("warning: --set data.path=nowhere.txt: data.path: |/nowhere.txt: no such file"));
  CHECK(is_one_line(program.read("err")));
}
