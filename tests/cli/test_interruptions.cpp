// Runs that end by a signal, a full disk or a faulty disk, some at chosen moments (METAFORMER_FAULT).

#include "cli/program.h"

namespace {

Result run_with(const Program& program, const std::string& fault, const Arguments& arguments) {
  const Variables set{{"METAFORMER_FAULT", fault}};
  return program.run(arguments);
}

Arguments training(const std::string& out, const Arguments& changes) {
  return joined({"train", "--config", "small.yaml", "--out", out, "--resume"}, set(changes));
}

// Overrides that make small.yaml a classifier of a small table.
Arguments classifier(const Program& program, const Arguments& more) {
  program.folder().write("table.csv", labelled_table(200));
  return joined({"task=classification", "data.path=table.csv", "data.cache=false"}, more);
}

// A run's lines and results without times and paths.
std::string story(const Program& program, const std::string& run) {
  std::string kept;
  for (const auto& json : json_lines(program.read(run + "/metrics.jsonl"))) {
    Json lasting;
    for (const auto& [key, value] : json.items())
      if (key.find("seconds") == std::string::npos && key.find("memory") == std::string::npos) lasting[key] = value;
    kept += lasting.dump() + "\n";
  }
  const auto summary = program.read_json(run + "/summary.json");
  for (const auto* key : {"val_loss", "best_step", "best_val_loss", "best_val_error", "validation", "test"})
    kept += summary.at(key).dump() + "\n";
  return kept;
}

bool has_text(const Program& program, const std::string& file, const std::string& text) {
  return program.read(file).find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("training goes on after SIGUSR1 has saved a checkpoint, and a second process is refused meanwhile",
          "[cli][stop]") {
  const Program program;
  const auto endless = training(
      "run", {"train.steps=100000000", "train.eval_interval=100000000", "train.checkpoint_interval=100000000"});
  const auto pid = program.start(endless);
  wait_until([&] { return has_text(program, "run/train.log", "device:"); });
  kill(pid, SIGUSR1);
  wait_until([&] { return has_text(program, "run/train.log", "as SIGUSR1 asked"); });
  CHECK(program.has("run/checkpoints/last/meta.json"));
  program.refuse(endless, 2, {"run is in use by process " + std::to_string(pid)});
  kill(pid, SIGTERM);
  CHECK(program.wait(pid).code == 143);
  CHECK_FALSE(program.has("run/lock"));
}

TEST_CASE("the first signal is acknowledged at once, the second ends the program", "[cli][stop]") {
  const Program program;
  // Steps take seconds: the second one runs when the line of the first one is in the log.
  const auto pid = program.start(joined(
      training("run", {"train.steps=100000000", "train.eval_interval=50", "model={width: 64, layers: 8, context: 64}",
                       "train.batch_size=1024", "train.log_interval=1"}),
      {"--quiet"}));
  wait_until([&] { return has_text(program, "run/metrics.jsonl", "\"step\":1,"); });
  kill(pid, SIGTERM);
  wait_until([&] { return has_text(program, "err", "stopping after this step; again to quit\n"); });
  kill(pid, SIGTERM);
  CHECK(program.wait(pid).code == -SIGTERM);
}

TEST_CASE("a run that was stopped at any moment of an evaluation ends like an undisturbed one", "[cli][stop]") {
  const Program program;
  const bool recalibrates = GENERATE(true, false);
  const auto changes =
      recalibrates ? classifier(program, {"task.head.recalibrate=true", "train.learning_rate=0.02",
                                          "task.baselines=false", "train.checkpoint_interval=3"})
                   : Arguments{"train.evaluation=random", "train.evaluation.batches=1", "train.checkpoint_interval=3"};
  program.succeed(training("whole", changes));
  const auto expected = story(program, "whole");
  int stops = 0;
  for (int arrival = 1; arrival <= 7; ++arrival) {
    const auto out = "cut" + std::to_string(arrival);
    const auto stopped = run_with(program, "evaluate:" + std::to_string(arrival), training(out, changes));
    if (stopped.code == 0) continue;  // there were fewer batches
    CHECK(stopped.code == 143);
    ++stops;
    // The evaluation is repeated; then the folder must be replaced in one step, even if the disk cannot swap names.
    run_with(program, "exchange:1", training(out, changes));
    INFO("stopped in batch " << arrival);
    CHECK(story(program, out) == expected);
    for (const std::string link : {"/checkpoints/best/", "/checkpoints/last/"}) {
      CHECK(program.read(out + link + "model.safetensors") == program.read("whole" + link + "model.safetensors"));
      const auto meta = program.read_json(out + link + "meta.json"),
                 whole = program.read_json("whole" + link + "meta.json");
      for (const auto* key : {"step", "evaluated_step", "best", "validation", "scheduled"})
        CHECK(meta.at(key) == whole.at(key));
    }
  }
  CHECK(stops >= (recalibrates ? 2 : 5));
}

TEST_CASE("a rollback to a step whose evaluation was stopped keeps that evaluation", "[cli][stop]") {
  const Program program;
  const auto train = training("cut", {"train.divergence.action=rollback", "train.patience=9"});
  CHECK(run_with(program, "evaluate:1", train).code == 143);
  CHECK(run_with(program, "nan:1", train).code == 0);
  std::vector<std::pair<int, std::string>> seen;
  for (const auto& json : json_lines(program.read("cut/metrics.jsonl")))
    if (json["split"] != "train") seen.emplace_back(json["step"], json["split"]);
  CHECK(seen == decltype(seen){{2, "validation"}, {2, "rollback"}, {4, "validation"}});
}

TEST_CASE("baselines that a stop interrupted are in the summary after a resume", "[cli][stop]") {
  const Program program;
  const auto train = training("run", classifier(program, {}));
  CHECK(run_with(program, "baselines:1", train).code == 143);
  CHECK_FALSE(program.has("run/summary.json"));
  program.succeed(train);
  CHECK(program.read_json("run/summary.json").at("baselines").contains("linear"));
  for (const auto& entry : fs::recursive_directory_iterator(program.folder() / "run"))
    CHECK_FALSE(entry.path().filename().string().ends_with(".tmp"));
}

TEST_CASE("a checkpoint that does not read back as written is refused, and earlier ones stay intact", "[cli][disk]") {
  const Program program;
  program.train("whole");
  const auto expected = story(program, "whole");
  int refused = 0;
  for (int write = 1; write <= 16 && refused < 8; ++write) {  // two checkpoints have four files each
    fs::remove_all(program.folder() / "run");
    const auto damaged = run_with(program, "damage:" + std::to_string(write), training("run", {}));
    if (damaged.code == 0) continue;  // not a file of a checkpoint
    ++refused;
    Program::check_refused(damaged, 1, {"could not be saved: ", "earlier checkpoints are intact"});
    CHECK_THAT(damaged.err, ContainsSubstring("as it was written") || ContainsSubstring("meta.json: damaged"));
    program.succeed(training("run", {}));
    CHECK(story(program, "run") == expected);
  }
  CHECK(refused == 8);
}

TEST_CASE("a checkpoint that cannot be written ends the run, and earlier ones stay intact", "[cli][disk]") {
  const Program program;
  program.train("run");
  const auto more = training("run", {"train.steps=8"});
  {
    const Limit files(RLIMIT_FSIZE, 8192);
    program.refuse(more, 1, {"File too large", "earlier checkpoints are intact"});
  }
  program.succeed("evaluate --run run --checkpoint last");
  program.succeed(more);
}

TEST_CASE("a full disk at the start of a run is a failure, not a mistake of the user", "[cli][disk]") {
  const Program program;
  const auto full = run_with(program, GENERATE("full:1", "full:2"), training("run", {}));
  Program::check_refused(full, 1, {"No space left on device"});
  CHECK(is_one_line(full.err));
  program.succeed(training("run", {}));
}
