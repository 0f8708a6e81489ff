// Every kind of language model in several commands; evaluation and sampling with a longer context than in training, or
// with other options.

#include "cli/program.h"

namespace {

double loss_of(const Program& program, const Arguments& options) {
  return program.json("evaluate --run run", options).at("loss").get<double>();
}

}  // namespace

TEST_CASE("evaluate and sample take a longer context if the positions allow it", "[cli]") {
  const Program program;
  const std::string positions = GENERATE("none", "sinusoidal", "rotary", "alibi", "t5", "shaw", "transformer_xl");
  program.train("run", {"model.positions=" + positions});
  const double usual = loss_of(program, "--checkpoint last");
  CHECK(loss_of(program, "--checkpoint last --context 16") == usual);
  for (const std::string context : {"8", "48"}) {
    const double other = loss_of(program, "--checkpoint last --context " + context);
    CHECK(std::isfinite(other));
    CHECK(other != usual);
  }
  const Arguments sample = "sample --run run --context 48 --prompt 'to be' --tokens 60 --temperature 0";
  const auto text = program.succeed(sample);
  CHECK(text.size() == 5 + 60 + 1);
  CHECK(text == program.succeed(sample, {"--no-cache"}));
}

TEST_CASE("evaluate takes other options of the mixer if no weight depends on them", "[cli]") {
  const Program program;
  program.train("run", {"model.mixer={kind: lsh, chunk: 4, rounds: 1}"});
  const double trained = loss_of(program, "--set model.mixer.rounds=1");
  CHECK(trained == loss_of(program, {}));
  for (const std::string option : {"model.mixer.rounds=4", "model.mixer.chunk=16", "model.mixer.visible=bucket"})
    CHECK(loss_of(program, {"--set", option}) != trained);
  CHECK(program.succeed("sample --run run --prompt 'to be' --tokens 40").size() == 5 + 40 + 1);
  for (const std::string option : {"model.width=32", "model.mixer.kind=metric", "model.mixer.score_std=2"})
    program.refuse({"evaluate", "--run", "run", "--set", option}, 2, {"--set " + option + ": "});
  program.refuse("evaluate --run run --set model.mixer.buckets=3", 2, {"model.mixer.buckets"});
  program.train("metric", {"model.mixer=metric"});
  program.refuse("evaluate --run metric --set model.mixer.values=own", 2, {"projection"});
}

TEST_CASE("evaluate takes another memory, and with memory sample goes on past the context without a cut", "[cli]") {
  const Program program;
  const std::string positions = GENERATE("learned", "rotary", "transformer_xl");
  program.train("run", {"model.memory=16", "model.positions=" + positions});
  const double trained = loss_of(program, {});
  CHECK(loss_of(program, "--set model.memory=16") == trained);
  for (const std::string option : {"model.memory=0", "model.memory=40", "model.same_length=true"})
    CHECK(loss_of(program, {"--set", option}) != trained);
  if (positions == "transformer_xl") CHECK(loss_of(program, "--set model.positions.clamp_length=3") != trained);
  const Arguments sample = "sample --run run --prompt 'to be or not to be, that' --tokens 60";
  CHECK(program.succeed(sample) == program.succeed(sample, {"--no-cache"}));
  program.refuse(joined(sample, "--window slide"), 2, {"--window slide: ", "model.memory"});
  program.refuse("evaluate --run run --random-batches 2", 2, {"random batches"});
}

TEST_CASE("learned positions allow no longer context than in training, and the error says so", "[cli]") {
  const Program program;
  program.train("run");
  for (const auto* command : {"evaluate --run run --context 32", "sample --run run --context 32"})
    program.refuse(command, 2, {"--context 32:|learned|16", "none|rotary|transformer_xl"});
  program.succeed("evaluate --run run --context 16");
  program.refuse("evaluate --run run --context 0", 2);
}

TEST_CASE("evaluate, sample and bench take runs of recurrent and feed-forward models", "[cli][language_models]") {
  const Program program;
  const std::string model = GENERATE("{kind: lstm, width: 8, carry_state: true}", "{kind: gru, width: 8}",
                                     "{kind: feed_forward, width: 8, window: 4}");
  program.train("run", {"model=" + model});
  const auto summary = program.read_json("run/summary.json");
  CHECK(summary["mixer_parameters"] == 0);
  const auto evaluated = program.json("evaluate --run run --checkpoint last");
  CHECK(evaluated["loss"].get<double>() == Approx(summary["val_loss"].get<double>()).epsilon(1e-6));
  CHECK(program.json("evaluate --run run --context 40")["tokens"] == evaluated["tokens"]);
  program.refuse("sample --run run --window slide", 2, {"--window slide"});
  CHECK(program.json({"bench", "step", "--steps", "1", "--rounds", "1", "--warmup", "0", "--config", "small.yaml",
                      "--set", "model=" + model})["operations_per_step"] > 0);
}

TEST_CASE("evaluation can carry the state, also in a text too short to carry it in training",
          "[cli][language_models]") {
  const Program program;
  // 4,400 characters; a step has 500 rows of 16 tokens.
  const Arguments changes = {"model={kind: lstm, width: 8, context: 16}", "train.batch_size=500", "train.steps=1"};
  program.train("run", changes);
  CHECK(loss_of(program, "--set model.carry_state=false") == loss_of(program, {}));
  CHECK(loss_of(program, "--set model.carry_state=true") != loss_of(program, {}));
  program.refuse("evaluate --run run --set model.carry_state=true --random-batches 2", 2, {"batches", "carry_state"});
}
