// train --resume and --from as people type them: without the config, with the printed command, from an earlier step.

#include <map>

#include "cli/program.h"

namespace metaformer::test_resume_command {

namespace {

// The content of every file below a folder, and the target of every link.
std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    auto& content = contents[entry.path().lexically_relative(folder).string()];
    if (entry.is_symlink())
      content = fs::read_symlink(entry.path()).string();
    else if (entry.is_regular_file())
      content = read_text(entry.path());
  }
  return contents;
}

Json steps_of(const Program& program, const std::string& run) {
  return program.read_json(run + "/summary.json")["steps"];
}

// The rest of the line in `text` that follows `start`.
std::string after(const std::string& text, const std::string& start) {
  const auto at = text.find(start);
  INFO(text);
  REQUIRE(at != std::string::npos);
  const auto begin = at + start.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("a resume without a config takes that of the run, by default of the newest one", "[cli][resume]") {
  const Program program;
  program.train("runs/one");
  program.train("two");
  fs::rename(program.at("small.yaml"), program.at("elsewhere"));
  program.succeed("train --resume runs/one --set train.steps=6");
  CHECK_THAT(program.read("err"),
             ContainsSubstring("one: mixer") && ContainsSubstring("going on from runs/one/checkpoints/step-4"));
  CHECK(steps_of(program, "runs/one") == 6);
  program.succeed("train --resume --set train.steps=8");  // runs/one was resumed last
  CHECK(steps_of(program, "runs/one") == 8);
  program.succeed("train --resume --out two --set train.steps=6");
  CHECK(steps_of(program, "two") == 6);
  CHECK_THAT(program.read("two/train.log"), ContainsSubstring("two: mixer"));
  program.succeed("train --resume=runs/one");  // is finished
  CHECK(program.read_json("runs/one/environment.json").at("sessions").size() == 3);
  fs::rename(program.at("elsewhere"), program.at("small.yaml"));
  program.succeed("train --config small.yaml --out two --resume --set train.steps=6");
  program.succeed("train --resume small.yaml --out fresh");  // the word is the config, because --out names the run
  CHECK(steps_of(program, "fresh") == 4);
}

TEST_CASE("a run that was resumed without a config keeps its name in comparisons", "[cli][resume]") {
  const Program program;
  program.train("run", {"train.clip=0.5"});
  program.succeed("train --resume run --set train.steps=6");
  program.succeed("train --resume run --set train.steps=8");
  program.succeed("compare run --export results.csv");
  CHECK_THAT(program.read("results.csv"), ContainsSubstring(",small.yaml,train.clip=0.5 train.steps=8,1337,"));
}

TEST_CASE("the command that a stopped training prints continues the run", "[cli][resume][stop]") {
  const Program program;
  const bool is_quoted = GENERATE(true, false);
  const std::string run = is_quoted ? "it's a run" : "run";
  const auto pid = program.start(
      joined({"train", "--config", "small.yaml", "--out", run, "--device", "cpu"},
             set({"train.steps=100000000", "train.eval_interval=100000000", "train.checkpoint_interval=100000000"})));
  wait_until([&] { return program.has(run + "/metrics.jsonl"); });
  kill(pid, SIGTERM);
  const auto stopped = program.wait(pid);
  CHECK(stopped.code == 143);
  const auto words = after(stopped.err, "go on with: metaformer ");
  CHECK(words == (is_quoted ? R"(train --resume 'it'\''s a run' --device cpu)" : "train --resume run --device cpu"));
  const auto step = program.read_json(run + "/checkpoints/last/meta.json").at("step").get<std::int64_t>();
  const auto steps = " --set train.steps=" + std::to_string(step + 2);
  const auto code = program.shell("\"$PROGRAM\" " + words + steps);
  INFO(program.read("err"));
  CHECK(code == 0);
  CHECK(steps_of(program, run) == step + 2);
}

TEST_CASE("train with --from begins a new run at an earlier step, with its curve, and leaves the old run alone",
          "[cli][resume][from]") {
  const Program program;
  program.train("run", {"train.keep_checkpoints=9"});
  const auto before = contents_of(program.at("run"));
  const bool names_folder = GENERATE(true, false);
  program.succeed(names_folder ? "train --from run/checkpoints/step-2/" : "train --resume run --from step-2",
                  "--set train.learning_rate=5e-4 --set train.log_interval=1");
  CHECK(contents_of(program.at("run")) == before);
  const auto branch = fs::read_symlink(program.at("runs/latest")).string();
  CHECK(branch.starts_with("run-2"));  // run-YYYYMMDD-HHMMSS
  const auto folder = "runs/" + branch;
  CHECK(steps_of(program, folder) == 4);
  const auto environment = program.read_json(folder + "/environment.json");
  CHECK(environment.at("continued_from") ==
        Json{{"run", fs::canonical(program.at("run")).string()}, {"checkpoint", "step-2"}, {"step", 2}});
  CHECK(environment.at("sessions").at(1).at("changes").at("train.learning_rate").at("is") == 5e-4);
  std::vector<std::pair<int, std::string>> lines;
  for (const auto& line : json_lines(program.read(folder + "/metrics.jsonl")))
    lines.emplace_back(line["step"], line["split"]);
  CHECK(lines == decltype(lines){{2, "validation"}, {2, "resume"}, {3, "train"}, {4, "train"}, {4, "validation"}});
  program.succeed({"train", "--resume", folder, "--set", "train.steps=6"});
  CHECK(program.read_json(folder + "/environment.json").at("continued_from") == environment.at("continued_from"));
}

TEST_CASE("several processes continue an earlier checkpoint in a new run", "[cli][resume][from][processes]") {
  const Program program;
  program.train("run", {"train.keep_checkpoints=9"});
  program.succeed("train --resume run --from step-2 --out branch --processes 2");
  CHECK(steps_of(program, "branch") == 4);
  program.succeed("train --resume branch --processes 2 --set train.steps=6");
  CHECK(steps_of(program, "branch") == 6);
}

TEST_CASE("epochs give the steps of a run, which resumes with them", "[cli][resume][epochs]") {
  const Program program;
  const Arguments once = set({"train.eval_interval=1000", "train.checkpoint_interval=1000"});
  program.succeed("train --config small.yaml --out run --set train.epochs=0.1", once);
  const auto tokens = program.read_json("run/environment.json").at("data").at("train_tokens").get<std::int64_t>();
  const auto steps = (tokens + 319) / 320;  // a tenth of the tokens, 32 in a step, rounded up
  CHECK(steps_of(program, "run") == steps);
  CHECK_THAT(program.read("err"), ContainsSubstring("train.epochs 0.1: " + std::to_string(steps) + " steps"));
  CHECK_THAT(program.read("run/config.yaml"),
             ContainsSubstring("\n  epochs: 0.1\n") && !ContainsSubstring("\n  steps: "));
  program.succeed("train --resume run");
  CHECK_THAT(program.read("err"), ContainsSubstring("run is finished"));
  program.succeed("train --resume run --set train.epochs=0.2");
  CHECK(steps_of(program, "run") == (tokens + 159) / 160);
  program.succeed({"train", "--resume", "run", "--set", "train.steps=" + std::to_string(2 * steps + 5)});
  CHECK(steps_of(program, "run") == 2 * steps + 5);
  CHECK_THAT(program.read("run/config.yaml"), ContainsSubstring("\n  epochs: null\n"));
}

TEST_CASE("resuming a run that patience ended gives its losses, and the way to continue it", "[cli][resume]") {
  const Program program;
  program.train("run", {"train.steps=40", "train.learning_rate=1e-20", "train.patience=1"});  // nothing is learned
  CHECK(steps_of(program, "run") == 4);
  program.succeed("train --resume run");
  CHECK_THAT(program.read("err"), Mentions("run is finished: step 4 of 40; train.patience 1 |--set train.patience=N|"
                                           "validation loss |, best loss | at step 2"));
  program.succeed("train --resume run --set train.patience=2");
  CHECK(steps_of(program, "run") == 6);
}

TEST_CASE("a resume that is not possible is an error of one line", "[cli][resume]") {
  const Program program;
  program.train("run");
  const auto before = contents_of(program.at("run"));
  const std::vector<std::pair<Arguments, std::string>> mistakes = {
      {"train --resume nowhere", "--resume nowhere: no such run"},
      {"train --resume run --set model.width=32", "model.width is 32 now and was 16|learning rate"},
      {"train --resume run --set train.steps=2", "train.steps is 2|has done 4 steps"},
      {"train --resume run --set train.learning_rate=1e-5", "config.yaml:|train.schedule.floor: 0.0001|1e-05"},
      {"train --resume run --set train.stepz=9", "train.stepz: unknown key"},
      {"train --resume run --out new", "--resume run and --out new name two runs|--from"},
      {"train --resume run --out new --config small.yaml", "name two runs"},
      {"train --resume nowhere --config small.yaml", "--resume nowhere: no such run"},
      {"train --out new --resume", "--out new: no such run"},
      {"train --resume run --from step-9 --out new", "--from step-9|step-4 or step-2"},
      {"train --resume run --from step-4 --out new", "--from step-4|ends at step 4"},
      {"train --resume run --from new/checkpoints/step-4", "--resume run and --from new/checkpoints/step-4 name two"},
      {"train --resume run --from step-2 --out run", "--out run: already exists"},
      {"train --resume run/checkpoints/step-2", "is a checkpoint of the run run: give --resume run, or|--from step-2"},
      {"evaluate --run run/checkpoints/best/", "is a checkpoint of the run run: give --run run --checkpoint best"},
      {"evaluate --run run/config.yaml", "lies in the run run: give --run run"},
      {"evaluate run", "run is a run: give --run run"},
      {"predict run", "run is a run: give --run run"},
  };
  for (const auto& [arguments, text] : mistakes) {
    CAPTURE(arguments);
    const auto result = program.refuse(arguments, 2, {text});
    CHECK(lines_of(result.err).back().starts_with("error: "));
    CHECK_FALSE(program.has("new"));
  }
  CHECK(contents_of(program.at("run")) == before);
}

}  // namespace metaformer::test_resume_command
