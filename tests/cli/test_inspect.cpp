#include "cli/program.h"

namespace {

const Arguments inspect = "inspect --run run --device cpu";

}  // namespace

TEST_CASE("inspect writes arrays, numbers and pictures into the run, with the forms of another run below",
          "[inspect]") {
  const Program program;
  program.train("run", {"model.mixer=metric"});
  program.train("other", {"model.mixer=scaled_dot_product"});
  CHECK_THAT(program.succeed(inspect, "--text 'to be'"),
             ContainsSubstring("mixer metric") && ContainsSubstring("effective context: "));
  for (const std::string name : {"inspection.safetensors", "inspection.json", "attention_0.svg", "scores_0.svg",
                                 "forms_0.svg", "distances_0.svg", "eigenvalues.svg", "norms.svg", "gradients.svg",
                                 "loss_by_position.svg", "loss_by_context.svg"})
    CHECK_FALSE(program.read("run/inspect/" + name).empty());
  const auto json = program.read_json("run/inspect/inspection.json");
  CHECK(json["tokens"] == Json({"t", "o", " ", "b", "e"}));
  CHECK(json["layers"][0]["heads"].size() == 2);
  program.succeed(inspect, "--beside other --no-data --text 'to be'");
  CHECK_THAT(program.read("run/inspect/forms_0.svg"), ContainsSubstring("M, head 1") && ContainsSubstring("W_q W_k^T"));
}

TEST_CASE("inspect --json prints what inspection.json holds, of a text or of the start of the validation split",
          "[inspect]") {
  const Program program;
  program.train("run");
  const auto json = program.json(inspect, "--text 'to be' --no-data --no-pictures --out found");
  CHECK(json == program.read_json("found/inspection.json"));
  CHECK_FALSE(json.contains("validation"));
  CHECK_FALSE(program.has("found/norms.svg"));
  CHECK(program.json(inspect, "--tokens 7 --no-pictures")["tokens"].size() == 7);
  const auto whole = program.json(inspect, "--no-pictures");
  CHECK(whole["tokens"].size() == 16);
  CHECK(whole["validation"]["loss_by_position"].size() == 16);
}

TEST_CASE("inspect names what is wrong with its options", "[inspect]") {
  const Program program;
  program.train("run");
  for (const auto& [more, code, text] :
       std::vector<std::tuple<Arguments, int, std::string>>{{"--no-data", 2, "--no-data needs --text or --file"},
                                                            {"--text 'to be' --file -", 2, "--file"},
                                                            {"--file absent.txt", 3, "absent.txt"},
                                                            {"--text 'to be' --tokens 0", 2, "--tokens"},
                                                            {"--text '' --no-data", 3, "empty"},
                                                            {"--file /dev/null --no-data", 3, "empty"}})
    program.refuse(joined(inspect, more), code, {text});
}
