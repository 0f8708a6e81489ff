// Names that are not UTF-8, and names that a terminal would act on.

#include "cli/program.h"

namespace {

bool is_harmless(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7f; });
}

}  // namespace

TEST_CASE("a run in a folder whose name is not UTF-8 trains, resumes, is evaluated and sampled", "[cli]") {
  const Program program;
  const std::string odd = "\xff\x1b[31m";
  const auto& folder = program.folder();
  folder.write(odd + "/" + odd + ".txt", small_text());
  folder.write(odd + "/" + odd + ".yaml", read_text(folder / "small.yaml"));
  const auto config = odd + "/" + odd + ".yaml", text = odd + "/" + odd + ".txt", run = odd + "/run";
  const Arguments train = {"train", "--config", config, "--set", "data.path=" + text, "--out", run, "--json"};
  const auto trained = program.run(train);
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(nlohmann::json::parse(trained.last_line()).at("steps") == 4);
  CHECK(is_harmless(trained.out));
  CHECK(is_harmless(trained.err));
  CHECK(is_harmless(read_text(folder / (run + "/train.log"))));
  for (const auto* file : {"environment.json", "summary.json"})
    CHECK(nlohmann::json::parse(read_text(folder / (run + "/" + file))).is_object());

  auto more = train;
  more.insert(more.end(), {"--resume", "--set", "train.steps=6"});
  const auto resumed = program.run(more);
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  const auto evaluated = program.run({"evaluate", "--run", run});
  INFO(evaluated.err);
  CHECK(evaluated.code == 0);
  CHECK(is_harmless(evaluated.out));
  CHECK(evaluated.err.find("not what this run was trained on") == std::string::npos);
  CHECK(nlohmann::json::parse(program.succeed({"evaluate", "--run", run, "--json"})).at("step") == 6);
  CHECK(nlohmann::json::parse(program.succeed({"sample", "--run", run, "--prompt", "to", "--tokens", "3", "--json"}))
            .at("tokens") == 3);
}

TEST_CASE("a run that is named by its config's name survives any byte in it", "[cli]") {
  const Program program;
  program.folder().write("\xff.yaml", read_text(program.folder() / "small.yaml"));
  const auto trained = program.run({"train", "--config", "\xff.yaml", "--json"});
  INFO(trained.err);
  CHECK(trained.code == 0);
  CHECK_THAT(trained.err, ContainsSubstring("\\xff: mixer"));
  program.succeed({"evaluate"});
  const auto step =
      program.succeed({"bench", "step", "--config", "\xff.yaml", "--steps", "1", "--rounds", "1", "--json"});
  CHECK(nlohmann::json::parse(step).is_object());
}

TEST_CASE("control characters in names, labels and values do not reach the terminal", "[cli]") {
  const Program program;
  const std::string red = "\x1b[31m", shown = "\\x1b[31m";
  std::string table = "text,label\n";
  for (int i = 0; i < 40; ++i)
    table += "word" + std::to_string(i) + (i % 2 == 0 ? ",good\n" : ",\"" + red + "bad\x7f\"\n");
  program.folder().write(red + "table.csv", table);
  const Arguments data = {"--config", "text_classifier.yaml", "--set", "data.path=" + red + "table.csv"};
  for (const Arguments& command : std::vector<Arguments>{{"data", "stats"}, {"config", "dump"}, {"config", "check"}}) {
    auto arguments = command;
    arguments.insert(arguments.end(), data.begin(), data.end());
    const auto result = program.run(arguments);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(is_harmless(result.out));
    CHECK(is_harmless(result.err));
  }
  const auto missing = program.run({"train", "--config", "small.yaml", "--set", "data.path=\"\\e[31mno\\nsuch\""});
  CHECK(missing.code == 3);
  CHECK_THAT(missing.err, ContainsSubstring(shown + "no\\nsuch"));
  CHECK(is_harmless(missing.err));
  CHECK(std::count(missing.err.begin(), missing.err.end(), '\n') == 1);
  CHECK(is_harmless(program.run({"evaluate", "--run", red}).err));
  CHECK(is_harmless(program.run({"train", "--config", red + ".yaml"}).err));
  CHECK(is_harmless(program.run({"config", "check", "--set", red + "=1"}).err));
}
