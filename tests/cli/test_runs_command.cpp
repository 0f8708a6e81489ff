// `metaformer runs`: its list, its table on a terminal, and the deletion of runs and checkpoints.

#include "base/file_lock.h"
#include "cli/terminal.h"

namespace {

// Trains with a checkpoint after steps 2, 4, 6 and 8; `best` is step 4 and `last` step 8.
void train_with_checkpoints(const Program& program, const std::string& run) {
  program.train(run, {"train.steps=8", "train.keep_checkpoints=9"});
  const auto best = program.at(run + "/checkpoints/best");
  fs::remove(best);
  fs::create_symlink("step-4", best);
}

std::string checkpoints_of(const Program& program, const std::string& run) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(program.at(run + "/checkpoints")))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  std::string text;
  for (const auto& name : names) text += name + " ";
  return text;
}

bool has_link(const Program& program, const std::string& link) {
  return fs::is_symlink(fs::symlink_status(program.at(link)));
}

}  // namespace

TEST_CASE("runs lists the runs of a folder, and --json has what the table has", "[runs_command]") {
  const Program program;
  program.train("runs/a");
  program.train("runs/sweep/b", {"train.seed=7"});
  program.run({"train", "--config", "small.yaml", "--out", "runs/c"},
              set({"train.learning_rate=1e30", "train.clip=0"}));
  program.folder().write("runs/d/config.yaml", "train: 3\n");
  const auto list = program.json("runs --sort name");
  REQUIRE(list.size() == 4);
  const std::vector<std::string> names = {"a", "c", "d", "sweep/b"},
                                 states = {"finished", "diverged", "damaged", "finished"};
  for (std::size_t i = 0; i < list.size(); ++i) {
    CHECK(list[i]["name"] == names[i]);
    CHECK(list[i]["state"] == states[i]);
  }
  const auto summary = program.read_json("runs/a/summary.json");
  CHECK((list[0]["step"] == 4 && list[0]["steps"] == 4));
  CHECK(list[0]["validation"]["loss"] == summary["val_loss"]);
  CHECK(list[0]["best"] == Json({{"step", summary["best_step"]}, {"loss", summary["best_val_loss"]}}));
  CHECK(list[3]["differences"]["train.seed"] == "7");
  CHECK_THAT(list[1]["problem"].get<std::string>(), ContainsSubstring("is not finite"));
  CHECK_THAT(list[2]["problem"].get<std::string>(), ContainsSubstring("config.yaml:1"));

  const auto table = program.succeed("runs --sort name");
  CHECK_THAT(table, Mentions("run |state|\na |finished|4/4|seed=1337|\nc |diverged|\nd |damaged|config.yaml:1"));
  CHECK_THAT(table, Mentions("\nsweep/b |finished|train.seed=7"));
  const metaformer::FileLock lock(program.at("runs/a/lock"));
  CHECK(program.json("runs runs/a")[0]["state"] == "running");
  CHECK_THAT(program.succeed("runs runs/sweep"), Mentions("\nb |finished"));
}

TEST_CASE("runs refuses a folder or an option that it cannot use", "[runs_command]") {
  const Program program;
  program.refuse_in_one_line("runs", 2, {"runs: no such folder"});
  program.refuse_in_one_line("runs text.txt", 2, {"text.txt: not a folder"});
  fs::create_directory(program.at("runs"));
  program.refuse_in_one_line("runs --watch", 2, {"--watch: standard output is no terminal"});
  program.refuse_in_one_line("runs --watch --json", 2, {"--watch: has no effect with --json"});
  for (const auto* watched : {"--watch runs", "runs --watch", "--watch --every 5 runs", "runs --every 5 --watch"})
    program.refuse_in_one_line(joined("runs", watched), 2, {"--watch: standard output is no terminal"});
  program.refuse_in_one_line("runs --watch gone", 2, {"gone: no such folder"});
  program.refuse_in_one_line("runs --watch --every runs", 2, {"--every: 'runs' is not a number"});
  program.refuse_in_one_line("runs --every 5", 2, {"--every requires --watch"});
  program.refuse_in_one_line("runs --sort size", 2, {"--sort size: expected age, name or loss"});
  program.refuse_in_one_line("runs a b", 2, {"unexpected argument 'b'"});
  program.refuse_in_one_line("runs rm", 2, {"metaformer runs rm --help"});
  program.refuse_in_one_line("runs --json rm a", 2, {"--json: belongs to runs"});
  CHECK(program.json("runs") == Json::array());
  const auto none = program.run("runs");
  CHECK((none.code == 0 && none.out.empty()));
  CHECK_THAT(none.err, ContainsSubstring("there is no run below runs"));
}

TEST_CASE("a deleted run is gone, and runs/latest leads to the newest run with a checkpoint", "[runs_command]") {
  const Program program;
  for (const auto* run : {"runs/a", "runs/sweep/b", "runs/c"}) program.train(run);
  CHECK_THAT(program.succeed("runs rm runs/c/ ./runs/c --yes"), Mentions("deleted 1 run, |KiB"));
  CHECK_THAT(program.read("err"), Mentions("runs/c: finished, step 4 of 4, best loss "));
  CHECK_FALSE(program.has("runs/c"));
  CHECK(fs::read_symlink(program.at("runs/latest")) == "sweep/b");
  const auto told = program.json("runs rm runs/sweep/b -y");
  CHECK(told["runs"] == Json::array({"runs/sweep/b"}));
  CHECK(told["bytes"].get<std::uint64_t>() > 1000);
  CHECK(fs::read_symlink(program.at("runs/latest")) == "a");
  program.succeed("evaluate");
  program.succeed("runs rm runs/a --yes");
  CHECK_FALSE(has_link(program, "runs/latest"));
  CHECK(std::distance(fs::directory_iterator(program.at("runs")), {}) == 1);  // sweep
}

TEST_CASE("every link latest to a deleted run is repaired, and links to other runs stay", "[runs_command]") {
  const Program program;
  program.train("runs/a");
  program.train("project/runs/one");
  program.train("project/runs/two");
  CHECK(fs::read_symlink(program.at("project/runs/latest")) == "two");
  program.succeed("runs rm runs/a --yes");
  CHECK(fs::canonical(program.at("runs/latest")) == fs::canonical(program.at("project/runs/two")));
  program.succeed("runs rm project/runs/two --yes");
  CHECK(fs::read_symlink(program.at("project/runs/latest")) == "one");
  CHECK_FALSE(has_link(program, "runs/latest"));  // no run is left below runs
}

TEST_CASE("runs rm refuses what is no run, a link and a run in use, before it deletes anything", "[runs_command]") {
  const Program program;
  program.train("runs/a");
  program.folder().write("project/config.yaml", "train: {steps: 4}\n");  // a config, but not the one of a run
  program.folder().write("runs/empty/note.txt", "");
  const auto refuse = [&](const std::string& run, const std::string& parts) {
    const auto result = program.run({"runs", "rm", "--yes", "runs/a", run});
    INFO(run << ": " << result.err);
    CHECK(result.code == 2);
    CHECK_THAT(result.err, Mentions(parts));
    CHECK(is_one_line(result.err));
    CHECK(program.has("runs/a/checkpoints/best/meta.json"));
  };
  refuse("runs/latest", "runs/latest: is a link to a;");
  refuse("runs/latest/", "is a link");
  refuse("runs/nothing", "runs/nothing: no such run");
  refuse("runs/empty", "runs/empty: not a run");
  refuse("project", "project: not a run: it has neither environment.json nor train.log");
  refuse("text.txt", "text.txt: no such run");
  refuse(".", "ends with .;");
  refuse("runs/a/..", "ends with ..;");
  program.refuse_in_one_line("runs rm runs/a", 2, {"--yes is missing"});
  program.refuse_in_one_line("runs rm runs/a --except-best --yes", 2, {"--except-best: has no effect without"});
  program.folder().write("runs/a/inner/config.yaml", "");
  program.refuse_in_one_line("runs rm --yes runs/a", 2, {"runs/a: contains another run, runs/a/inner;"});
  fs::remove_all(program.at("runs/a/inner"));
  {
    const metaformer::FileLock lock(program.at("runs/a/lock"));
    refuse("runs/a", "runs/a: is trained by process ");
    program.refuse("runs rm --checkpoints --yes runs/a", 2, {"is trained by"});
  }
  program.succeed("runs rm --yes runs/a");
}

TEST_CASE("files behind links in a deleted run stay", "[runs_command]") {
  const Program program;
  program.train("runs/a");
  program.folder().write("elsewhere/file", "kept");
  fs::create_directory_symlink(program.at("elsewhere"), program.at("runs/a/notes"));
  fs::rename(program.at("runs/a/checkpoints"), program.at("disk"));
  fs::create_directory_symlink(program.at("disk"), program.at("runs/a/checkpoints"));
  program.refuse_in_one_line("runs rm --checkpoints --yes runs/a", 2, {"runs/a/checkpoints: is a link"});
  program.succeed("runs rm --yes runs/a");
  CHECK_THAT(program.read("err"), Mentions("warning: runs/a/checkpoints is a link"));
  CHECK_FALSE(program.has("runs/a"));
  CHECK((program.has("elsewhere/file") && program.has("disk/best/meta.json")));
}

TEST_CASE("a process that dies while it deletes a run leaves no run under its name", "[runs_command]") {
  const Program program;
  program.train("runs/a");
  program.train("runs/b");
  {
    const Variables fault{{"METAFORMER_FAULT", "remove:1"}};
    CHECK(program.run("runs rm --yes runs/b").code == -SIGKILL);
  }
  CHECK_FALSE(program.has("runs/b"));
  CHECK(fs::read_symlink(program.at("runs/latest")) == "a");
  const auto list = program.json("runs --sort name");
  REQUIRE(list.size() == 2);
  const auto left = list[0]["name"].get<std::string>();
  CHECK_THAT(left, Mentions(".b.|.tmp"));
  CHECK(list[0]["state"] == "half_deleted");
  CHECK(program.json("compare runs")["groups"].size() == 1);  // only the run that is left
  CHECK(program.json("compare runs")["groups"][0]["runs"].size() == 1);
  program.succeed({"runs", "rm", "--yes", "runs/" + left});
  CHECK(program.json("runs").size() == 1);
  CHECK_FALSE(program.has("runs/" + left));
}

TEST_CASE("runs rm with --checkpoints deletes all checkpoints but the best and the last one", "[runs_command]") {
  const Program program;
  train_with_checkpoints(program, "runs/a");
  CHECK(checkpoints_of(program, "runs/a") == "best last step-2 step-4 step-6 step-8 ");
  fs::create_directory(program.at("runs/a/checkpoints/step-1.damaged"));
  fs::create_directory(program.at("runs/a/checkpoints/mine"));
  const auto best = program.read("runs/a/checkpoints/best/model.safetensors"), last = program.model_of("runs/a");
  CHECK_THAT(program.succeed("runs rm --checkpoints --yes runs/a"), Mentions("deleted 3 checkpoints of 1 run, "));
  CHECK_THAT(program.read("err"), Mentions("step-1.damaged, step-2, step-6"));
  CHECK(checkpoints_of(program, "runs/a") == "best last mine step-4 step-8 ");
  CHECK(program.read("runs/a/checkpoints/best/model.safetensors") == best);
  CHECK(program.model_of("runs/a") == last);
  CHECK(program.json("runs")[0]["state"] == "finished");

  program.succeed("runs rm --checkpoints --yes runs/a");
  CHECK_THAT(program.read("err"), ContainsSubstring("runs/a: has no checkpoint to delete"));
  const auto told = program.json("runs rm --checkpoints --except-best --yes runs/a");
  CHECK(told["checkpoints"] == Json::array({"runs/a/checkpoints/step-8"}));
  CHECK(checkpoints_of(program, "runs/a") == "best last mine step-4 ");
  CHECK(program.model_of("runs/a") == best);
  CHECK(fs::read_symlink(program.at("runs/latest")) == "a");
  program.succeed("evaluate");
  program.succeed("train --config small.yaml --out runs/a --resume",
                  set({"train.steps=8", "train.keep_checkpoints=9"}));
  CHECK(program.model_of("runs/a") == last);
}

TEST_CASE("runs rm with --checkpoints deletes nothing while the best checkpoint is damaged or missing",
          "[runs_command]") {
  const Program program;
  train_with_checkpoints(program, "runs/a");
  const auto before = checkpoints_of(program, "runs/a");
  const auto refuse = [&](const Arguments& more, const std::string& parts) {
    const auto result = program.run("runs rm --checkpoints --yes runs/a", more);
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK_THAT(result.err, Mentions(parts));
    for (const auto* step : {"step-2", "step-6", "step-8"})
      CHECK(program.has(std::string("runs/a/checkpoints/") + step));
  };
  const auto meta = program.read("runs/a/checkpoints/step-4/meta.json");
  program.folder().write("runs/a/checkpoints/step-4/meta.json", "{}");
  refuse({}, "best/meta.json: damaged|--resume");
  program.folder().write("runs/a/checkpoints/step-4/meta.json", meta);
  fs::rename(program.at("runs/a/checkpoints/step-4"), program.at("step-4"));
  refuse({}, "best/meta.json|--resume");
  fs::remove(program.at("runs/a/checkpoints/best"));
  refuse({"--except-best"}, "has no link best");
  fs::remove(program.at("runs/a/checkpoints/last"));
  refuse({}, "has no link best or last");
}

TEST_CASE("in a copied run whose links are folders, best stays", "[runs_command]") {
  const Program program;
  train_with_checkpoints(program, "runs/a");
  REQUIRE(program.shell("cp -rL runs/a runs/copy") == 0);
  const auto best = program.read("runs/copy/checkpoints/best/model.safetensors");
  program.succeed("runs rm --checkpoints --except-best --yes runs/copy");
  CHECK(checkpoints_of(program, "runs/copy") == "best last step-4 ");
  CHECK(program.model_of("runs/copy") == best);
  CHECK(program.read("runs/copy/checkpoints/best/model.safetensors") == best);
}

TEST_CASE("on a terminal runs rm asks, and deletes only after yes", "[runs_command]") {
  const Program program;
  program.train("runs/a");
  const auto [answer, deletes] = GENERATE(
      table<std::string, bool>({{"y\n", true}, {"yes\n", true}, {"n\n", false}, {"\n", false}, {"\x04", false}}));
  Terminal terminal(program, "runs rm runs/a", 100);
  const auto asks = [](const std::string& text) { return text.find("[y/N] ") != std::string::npos; };
  CHECK_THAT(terminal.read_until(asks), Mentions("runs/a: finished, step 4 of 4|Delete 1 run, |KiB? [y/N] "));
  CHECK(program.has("runs/a"));
  terminal.type(answer);
  CHECK(terminal.wait() == 0);
  CHECK(program.has("runs/a") == !deletes);
}

TEST_CASE("on a terminal the table is cut to its width, and --watch redraws it until it is interrupted",
          "[runs_command]") {
  const Program program;
  program.train("runs/a", {"train.seed=1"});
  program.train("runs/b", {"train.seed=2", "model.mixer=metric"});
  {
    Terminal terminal(program, "runs", 60);
    for (const auto& line : lines_of(terminal.read_until([](const std::string&) { return false; })))
      CHECK(line.size() <= 60);  // with a carriage return
    CHECK(terminal.wait() == 0);
  }
  Terminal terminal(program, "runs --watch runs --every 0.1 --sort name", 100);
  const auto redraws = [](std::size_t times) {
    return [times](const std::string& text) {
      std::size_t count = 0;
      for (auto at = text.find("\033[J"); at != std::string::npos; at = text.find("\033[J", at + 1)) ++count;
      return count >= times;
    };
  };
  CHECK_THAT(terminal.read_until(redraws(3)), Mentions("\033[2J|\033[Hrun |a |b |\033[J|\033[Hrun |\033[J"));
  terminal.type("\x03");
  CHECK(terminal.wait() == 130);
}
