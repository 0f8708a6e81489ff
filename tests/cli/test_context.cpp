// A model evaluated and sampled with a longer context than it was trained with, or with other options of its mixer.

#include "cli/program.h"

namespace metaformer {

TEST_CASE("evaluate and sample take a longer context where positions allow it", "[cli]") {
  const Program program;
  const std::string positions = GENERATE("none", "sinusoidal", "rotary", "alibi", "t5", "shaw", "transformer_xl");
  program.succeed({"train", "--config", "small.yaml", "--out", "run", "--set", "model.positions=" + positions});
  const auto loss_at = [&](const Arguments& more) {
    Arguments arguments = {"evaluate", "--run", "run", "--checkpoint", "last", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return nlohmann::json::parse(program.succeed(arguments)).at("loss").get<double>();
  };
  const double usual = loss_at({});
  CHECK(loss_at({"--context", "16"}) == usual);
  for (const auto* context : {"8", "48"}) {
    const double other = loss_at({"--context", context});
    CHECK(std::isfinite(other));
    CHECK(other != usual);
  }
  const auto text = program.succeed(
      {"sample", "--run", "run", "--context", "48", "--prompt", "to be", "--tokens", "60", "--temperature", "0"});
  CHECK(text.size() == 5 + 60 + 1);
  CHECK(text == program.succeed({"sample", "--run", "run", "--context", "48", "--prompt", "to be", "--tokens", "60",
                                 "--temperature", "0", "--no-cache"}));
}

TEST_CASE("evaluate takes other options of the mixer where no weight depends on them", "[cli]") {
  const Program program;
  program.succeed(
      {"train", "--config", "small.yaml", "--out", "run", "--set", "model.mixer={kind: lsh, chunk: 4, rounds: 1}"});
  const auto loss_with = [&](const std::string& option) {
    return nlohmann::json::parse(program.succeed({"evaluate", "--run", "run", "--json", "--set", option}))
        .at("loss")
        .get<double>();
  };
  const double trained = loss_with("model.mixer.rounds=1");
  CHECK(trained == nlohmann::json::parse(program.succeed({"evaluate", "--run", "run", "--json"})).at("loss"));
  for (const auto* option : {"model.mixer.rounds=4", "model.mixer.chunk=16", "model.mixer.visible=bucket"})
    CHECK(loss_with(option) != trained);
  CHECK(program.succeed({"sample", "--run", "run", "--prompt", "to be", "--tokens", "40"}).size() == 5 + 40 + 1);
  for (const auto& [option, text] :
       {std::pair("model.width=32", "--set model.width=32: of a trained model only options of its mixer, such as"),
        {"model.mixer.kind=metric", "--set model.mixer.kind=metric: of a trained model"},
        {"model.mixer.score_std=2", "--set model.mixer.score_std=2: has no effect on a trained model"},
        {"model.mixer.buckets=3", "model.mixer.buckets"}}) {
    const auto result = program.run({"evaluate", "--run", "run", "--set", option});
    CHECK(result.code == 2);
    CHECK_THAT(result.err, ContainsSubstring(text));
  }
}

TEST_CASE("evaluate takes another memory, and sample goes on past the context without a cut", "[cli]") {
  const Program program;
  const std::string positions = GENERATE("learned", "rotary", "transformer_xl");
  program.succeed({"train", "--config", "small.yaml", "--out", "run", "--set", "model.memory=16", "--set",
                   "model.positions=" + positions});
  const auto loss_with = [&](const Arguments& options) {
    Arguments arguments = {"evaluate", "--run", "run", "--json"};
    for (const auto& option : options) arguments.insert(arguments.end(), {"--set", option});
    return nlohmann::json::parse(program.succeed(arguments)).at("loss").get<double>();
  };
  const double trained = loss_with({});
  CHECK(loss_with({"model.memory=16"}) == trained);
  CHECK(loss_with({"model.memory=0"}) != trained);
  CHECK(loss_with({"model.memory=40"}) != trained);
  CHECK(loss_with({"model.same_length=true"}) != trained);
  if (positions == "transformer_xl") CHECK(loss_with({"model.positions.clamp_length=3"}) != trained);
  const Arguments sample = {"sample", "--run", "run", "--prompt", "to be or not to be, that", "--tokens", "60"};
  auto uncached = sample, sliding = sample;
  uncached.emplace_back("--no-cache");
  CHECK(program.succeed(sample) == program.succeed(uncached));
  sliding.insert(sliding.end(), {"--window", "slide"});
  const auto refused = program.run(sliding);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("--window slide: has no effect on a model with model.memory"));
  const auto random = program.run({"evaluate", "--run", "run", "--random-batches", "2"});
  CHECK(random.code == 2);
  CHECK_THAT(random.err, ContainsSubstring("random batches have nothing before them"));
}

TEST_CASE("options that the weights do not fit are refused", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "run", "--set", "model.mixer=metric"});
  const auto result = program.run({"evaluate", "--run", "run", "--set", "model.mixer.values=own"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("projection"));
}

TEST_CASE("learned positions end where training ended, and the message says so", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  for (const auto* command : {"evaluate", "sample"}) {
    const auto result = program.run({command, "--run", "run", "--context", "32"});
    CHECK(result.code == 2);
    CHECK_THAT(
        result.err,
        ContainsSubstring("--context 32: this run has learned positions for 16 tokens and no others; "
                          "runs with model.positions none, sinusoidal, rotary, alibi, t5, shaw or transformer_xl"));
  }
  CHECK(program.run({"evaluate", "--run", "run", "--context", "16"}).code == 0);
  CHECK(program.run({"evaluate", "--run", "run", "--context", "0"}).code == 2);
}

}  // namespace metaformer
