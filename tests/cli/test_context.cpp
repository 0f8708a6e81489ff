// A model evaluated and sampled with a longer context than it was trained with.

#include "cli/program.h"

namespace metaformer {

TEST_CASE("evaluate and sample take a longer context where positions allow it", "[cli]") {
  const Program program;
  const std::string positions = GENERATE("none", "sinusoidal", "rotary", "alibi", "t5", "shaw");
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

TEST_CASE("learned positions end where training ended, and the message says so", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  for (const auto* command : {"evaluate", "sample"}) {
    const auto result = program.run({command, "--run", "run", "--context", "32"});
    CHECK(result.code == 2);
    CHECK_THAT(result.err,
               ContainsSubstring("--context 32: this run has learned positions for 16 tokens and no others; "
                                 "runs with model.positions none, sinusoidal, rotary, alibi, t5 or shaw"));
  }
  CHECK(program.run({"evaluate", "--run", "run", "--context", "16"}).code == 0);
  CHECK(program.run({"evaluate", "--run", "run", "--context", "0"}).code == 2);
}

}  // namespace metaformer
