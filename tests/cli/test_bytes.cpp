// Names that are not UTF-8, and names with control characters.

#include "cli/program.h"

namespace {

bool is_harmless(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7f; });
}

// Runs the program, and checks all its output.
Result run_harmlessly(const Program& program, const Arguments& arguments, int code) {
  const auto result = program.refuse(arguments, code);
  CHECK(is_harmless(result.out));
  CHECK(is_harmless(result.err));
  return result;
}

}  // namespace

TEST_CASE("a run in a folder whose name is not UTF-8 can be trained, resumed, evaluated and sampled", "[cli]") {
  const Program program;
  const std::string odd = "\xff\x1b[31m", stem = odd + "/" + odd, run = odd + "/run";
  program.folder().write(stem + ".txt", small_text());
  program.folder().write(stem + ".yaml", program.read("small.yaml"));
  const Arguments train = {"train", "--config", stem + ".yaml", "--set", "data.path=" + stem + ".txt",
                           "--out", run,        "--json"};
  CHECK(Json::parse(run_harmlessly(program, train, 0).out).at("steps") == 4);
  CHECK(is_harmless(program.read(run + "/train.log")));
  for (const std::string file : {"/environment.json", "/summary.json"})
    CHECK(program.read_json(run + file).is_object());

  program.succeed(train, "--resume --set train.steps=6");
  CHECK_THAT(run_harmlessly(program, {"evaluate", "--run", run}, 0).err,
             !ContainsSubstring("not what this run was trained on"));
  CHECK(program.json({"evaluate", "--run", run}).at("step") == 6);
  CHECK(program.json({"sample", "--run", run, "--prompt", "to", "--tokens", "3"}).at("tokens") == 3);
}

TEST_CASE("a run that is named after its config works with any byte in the name", "[cli]") {
  const Program program;
  program.folder().write("\xff.yaml", program.read("small.yaml"));
  program.succeed("train --config \xff.yaml --json");
  CHECK_THAT(program.read("err"), ContainsSubstring("\\xff: mixer"));
  program.succeed("evaluate");
  CHECK(program.json("bench step --config \xff.yaml --steps 1 --rounds 1").is_object());
}

TEST_CASE("control characters in names, labels and values do not reach the terminal", "[cli]") {
  const Program program;
  const std::string red = "\x1b[31m";
  std::string table = "text,label\n";
  for (int i = 0; i < 40; ++i)
    table += "word" + std::to_string(i) + (i % 2 == 0 ? ",good\n" : ",\"" + red + "bad\x7f\"\n");
  program.folder().write(red + "table.csv", table);
  const Arguments data = {"--config", "text_classifier.yaml", "--set", "data.path=" + red + "table.csv"};
  for (const auto* command : {"data stats", "config dump", "config check"})
    run_harmlessly(program, joined(command, data), 0);
  const auto missing =
      run_harmlessly(program, {"train", "--config", "small.yaml", "--set", "data.path=\"\\e[31mno\\nsuch\""}, 3);
  CHECK_THAT(missing.err, ContainsSubstring("\\x1b[31mno\\nsuch"));
  CHECK(is_one_line(missing.err));
  for (const Arguments& words : {Arguments{"evaluate", "--run", red},
                                 {"train", "--config", red + ".yaml"},
                                 {"config", "check", "--set", red + "=1"}})
    run_harmlessly(program, words, 2);
  program.folder().write("odd\nname/a.txt", small_text());
  program.folder().write("odd\nname/b.pdf", small_text());  // named in a message as ignored
  const auto messages = program.train("run\nwith a break", {"data.path=\"odd\\nname\""});
  for (const auto& text : {messages, program.read("run\nwith a break/train.log")})
    CHECK_THAT(text, !ContainsSubstring("odd\nname") && !ContainsSubstring("run\nwith"));
  CHECK_THAT(messages, ContainsSubstring("odd\\nname"));
  CHECK_THAT(messages, ContainsSubstring("run\\nwith a break"));
}
