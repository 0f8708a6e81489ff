// Every command with recurrent and feed-forward language models.

#include "cli/program.h"

namespace metaformer {

namespace {

Arguments with(Arguments command, const std::string& model) {
  command.insert(command.end(), {"--config", "small.yaml", "--set", "model=" + model});
  return command;
}

nlohmann::json json_of(const Program& program, const Arguments& arguments) {
  return nlohmann::json::parse(program.succeed(arguments));
}

}  // namespace

TEST_CASE("commands take runs of recurrent and feed-forward models", "[cli][language_models]") {
  const Program program;
  const std::string model = GENERATE("{kind: lstm, width: 8, carry_state: true}", "{kind: gru, width: 8}",
                                     "{kind: feed_forward, width: 8, window: 4}");
  const auto trained = program.run(with({"train", "--out", "run", "--json"}, model));
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  const auto summary = nlohmann::json::parse(trained.out);
  CHECK_THAT(trained.err, ContainsSubstring(model.substr(7, model.find(',') - 7) + ", "));
  CHECK(summary["mixer_parameters"] == 0);
  CHECK(summary["val_loss"].get<double>() > 0);

  const auto evaluated = json_of(program, {"evaluate", "--run", "run", "--checkpoint", "last", "--json"});
  CHECK(evaluated["loss"].get<double>() == Approx(summary["val_loss"].get<double>()).epsilon(1e-6));
  CHECK(json_of(program, {"evaluate", "--run", "run", "--context", "40", "--json"})["tokens"] == evaluated["tokens"]);

  const Arguments sample = {"sample", "--run", "run", "--prompt", "to be or not to be, that", "--tokens", "60"};
  auto uncached = sample, sliding = sample;
  uncached.emplace_back("--no-cache");
  CHECK(program.succeed(sample) == program.succeed(uncached));
  sliding.insert(sliding.end(), {"--window", "slide"});
  const auto refused = program.run(sliding);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("goes on past its context without a cut"));

  const auto inspected = program.run({"inspect", "--run", "run"});
  CHECK(inspected.code == 2);
  CHECK_THAT(inspected.err, ContainsSubstring("only transformers have layers to inspect"));

  const auto compared = program.succeed({"compare", "run", "--json"});
  CHECK_THAT(compared, ContainsSubstring("\"val_loss\""));
  const auto reported = program.run({"report", "run", "-o", "report.html"});
  CHECK(reported.code == 0);
  CHECK_THAT(reported.err, !ContainsSubstring("no heads"));

  const auto checked = json_of(program, with({"config", "check", "--json"}, model));
  CHECK(checked["parameters"].get<double>() > 0);
  const auto bench =
      json_of(program, with({"bench", "step", "--steps", "1", "--rounds", "1", "--warmup", "0", "--json"}, model));
  CHECK(bench["operations_per_step"].get<double>() > 0);
}

TEST_CASE("evaluate carries the state of a run or does not, as it is asked to", "[cli][language_models]") {
  const Program program;
  program.succeed(with({"train", "--out", "run", "--set", "train.steps=60", "--set", "train.learning_rate=1e-2"},
                       "{kind: lstm, width: 16}"));
  const auto loss_with = [&](const Arguments& more) {
    Arguments arguments = {"evaluate", "--run", "run", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json_of(program, arguments)["loss"].get<double>();
  };
  const double zeros = loss_with({}), carried = loss_with({"--set", "model.carry_state=true"});
  CHECK(loss_with({"--set", "model.carry_state=false"}) == zeros);
  CHECK(carried != zeros);
  // What the segments are cut into hardly matters then.
  CHECK(loss_with({"--set", "model.carry_state=true", "--context", "64"}) == Approx(carried).epsilon(0.05));
  const auto random =
      program.run({"evaluate", "--run", "run", "--set", "model.carry_state=true", "--random-batches", "2"});
  CHECK(random.code == 2);
  CHECK_THAT(random.err,
             ContainsSubstring("random batches have nothing before them for model.carry_state to go on from"));
}

TEST_CASE("a training text that is too short to carry a state in training is evaluated with it all the same",
          "[cli][language_models]") {
  const Program program;
  // 4,400 characters: rows of 16 tokens, of which a step has 500.
  const Arguments large = {"--set", "train.batch_size=500", "--set", "train.steps=1"};
  auto plain = with({"train", "--out", "run"}, "{kind: lstm, width: 8, context: 16}"),
       carried = with({"train", "--out", "carried"}, "{kind: lstm, width: 8, context: 16, carry_state: true}");
  plain.insert(plain.end(), large.begin(), large.end());
  carried.insert(carried.end(), large.begin(), large.end());
  program.succeed(plain);
  const auto evaluated = json_of(program, {"evaluate", "--run", "run", "--set", "model.carry_state=true", "--json"});
  CHECK(evaluated["loss"].get<double>() > 0);
  const auto refused = program.run(carried);
  CHECK(refused.code == 3);
  CHECK_THAT(refused.err, ContainsSubstring("the training split has 3960 tokens; with model.carry_state "
                                            "train.batch_size 500 and train.accumulate 1 make 500 rows, which "
                                            "model.context 16 cuts out of at least 8001"));
  CHECK_FALSE(std::filesystem::exists(program.folder() / "carried"));
}

}  // namespace metaformer
