#include <filesystem>

#include "cli/program.h"

namespace {

std::filesystem::path train(const Program& program, const Arguments& more = {}) {
  Arguments arguments = {"train", "--config", "small.yaml", "--out", "run", "--device", "cpu"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  program.succeed(arguments);
  return program.folder() / "run";
}

Arguments inspect(const Arguments& more) {
  Arguments arguments = {"inspect", "--run", "run", "--device", "cpu"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace

TEST_CASE("inspect writes arrays, numbers and pictures into the run", "[inspect]") {
  const Program program;
  const auto run = train(program, {"--set", "model.mixer=metric"});
  const auto shown = program.succeed(inspect({"--text", "to be"}));
  CHECK_THAT(shown, ContainsSubstring("mixer metric"));
  CHECK_THAT(shown, ContainsSubstring("effective context: "));
  for (const auto* name : {"inspection.safetensors", "inspection.json", "attention_0.svg", "scores_0.svg",
                           "forms_0.svg", "distances_0.svg", "eigenvalues.svg", "norms.svg", "gradients.svg",
                           "loss_by_position.svg", "loss_by_context.svg"}) {
    INFO(name);
    CHECK(std::filesystem::file_size(run / "inspect" / name) > 0);
  }
  const auto json = nlohmann::json::parse(read_text(run / "inspect" / "inspection.json"));
  CHECK(json["tokens"] == nlohmann::json({"t", "o", " ", "b", "e"}));
  CHECK(json["layers"][0]["heads"].size() == 2);
}

TEST_CASE("inspect --json prints what inspection.json holds; --no-data and --no-pictures leave out the rest",
          "[inspect]") {
  const Program program;
  train(program);
  const auto out =
      program.succeed(inspect({"--text", "to be", "--no-data", "--no-pictures", "--out", "found", "--json"}));
  const auto json = nlohmann::json::parse(out);
  CHECK(json == nlohmann::json::parse(read_text(program.folder() / "found" / "inspection.json")));
  CHECK_FALSE(json.contains("validation"));
  CHECK_FALSE(std::filesystem::exists(program.folder() / "found" / "norms.svg"));
}

TEST_CASE("without a text inspect takes the start of the validation split", "[inspect]") {
  const Program program;
  train(program);
  const auto json = nlohmann::json::parse(program.succeed(inspect({"--tokens", "7", "--no-pictures", "--json"})));
  CHECK(json["tokens"].size() == 7);
  const auto whole = nlohmann::json::parse(program.succeed(inspect({"--no-pictures", "--json"})));
  CHECK(whole["tokens"].size() == 16);
  CHECK(whole["validation"]["loss_by_position"].size() == 16);
}

TEST_CASE("inspect draws the forms of another run below those of the run", "[inspect]") {
  const Program program;
  const auto run = train(program, {"--set", "model.mixer=metric"});
  program.succeed({"train", "--config", "small.yaml", "--set", "model.mixer=scaled_dot_product", "--out", "other",
                   "--device", "cpu"});
  program.succeed(inspect({"--beside", "other", "--no-data", "--text", "to be"}));
  const auto picture = read_text(run / "inspect" / "forms_0.svg");
  CHECK_THAT(picture, ContainsSubstring("M, head 1"));
  CHECK_THAT(picture, ContainsSubstring("W_q W_k^T"));
}

TEST_CASE("inspect names what is wrong with its options", "[inspect]") {
  const Program program;
  train(program);
  const auto refused = [&](const Arguments& arguments, int code, const std::string& message) {
    const auto result = program.run(inspect(arguments));
    CHECK(result.code == code);
    CHECK_THAT(result.err, ContainsSubstring(message));
  };
  refused({"--no-data"}, 2, "--no-data needs --text or --file");
  refused({"--text", "to be", "--file", "-"}, 2, "--file");
  refused({"--file", "absent.txt"}, 3, "absent.txt");
  refused({"--text", "to be", "--tokens", "0"}, 2, "--tokens");
  refused({"--text", "", "--no-data"}, 3, "the text to inspect is empty");
  refused({"--file", "/dev/null", "--no-data"}, 3, "the text to inspect is empty");
}
