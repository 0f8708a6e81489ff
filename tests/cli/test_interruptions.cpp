// Runs that a signal stops, or that a full or faulty disk ends, at chosen moments (METAFORMER_FAULT).

#include "cli/program.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class Fault {
 public:
  explicit Fault(const std::string& plan) { setenv("METAFORMER_FAULT", plan.c_str(), 1); }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;
  ~Fault() { unsetenv("METAFORMER_FAULT"); }
};

Result run_with(const Program& program, const std::string& fault, const Arguments& arguments) {
  const Fault set(fault);
  return program.run(arguments);
}

Arguments training(const std::string& out, const Arguments& overrides) {
  Arguments words = {"train", "--config", "small.yaml", "--out", out, "--resume"};
  for (const auto& override : overrides) words.insert(words.end(), {"--set", override});
  return words;
}

// A small table of two classes, for small.yaml.
Arguments classifier(const Program& program, Arguments more) {
  std::string table = "text,label\n";
  for (int i = 0; i < 200; ++i)
    table += "w" + std::to_string(i % 11) + " w" + std::to_string(i % 13) + (i % 3 ? ",yes\n" : ",no\n");
  program.folder().write("table.csv", table);
  more.insert(more.begin(), {"task=classification", "data.path=table.csv", "data.cache=false"});
  return more;
}

// A run's lines and results, but for times and places.
std::string story(const fs::path& run) {
  std::istringstream lines(read_text(run / "metrics.jsonl"));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const auto json = Json::parse(line);
    Json lasting;
    for (const auto& [key, value] : json.items())
      if (key.find("seconds") == std::string::npos && key.find("memory") == std::string::npos) lasting[key] = value;
    kept += lasting.dump() + "\n";
  }
  const auto summary = Json::parse(read_text(run / "summary.json"));
  for (const auto* key : {"val_loss", "best_step", "best_val_loss", "best_val_error", "validation", "test"})
    kept += summary.at(key).dump() + "\n";
  return kept;
}

}  // namespace

TEST_CASE("a stop at any moment of an evaluation leaves the same run in the end", "[cli][stop]") {
  const Program program;
  const bool recalibrates = GENERATE(true, false);
  const Arguments overrides =
      recalibrates ? classifier(program, {"task.head.recalibrate=true", "train.learning_rate=0.02",
                                          "task.baselines=false", "train.checkpoint_interval=3"})
                   : Arguments{"train.evaluation=random", "train.evaluation.batches=1", "train.checkpoint_interval=3"};
  program.succeed(training("whole", overrides));
  const auto expected = story(program.folder() / "whole");
  int stops = 0;
  for (int arrival = 1; arrival <= 7; ++arrival) {
    const auto out = "cut" + std::to_string(arrival);
    const auto stopped = run_with(program, "evaluate:" + std::to_string(arrival), training(out, overrides));
    if (stopped.code == 0) continue;  // there were fewer batches
    CHECK(stopped.code == 143);
    ++stops;
    // The evaluation is made up for; the folder must then be replaced at once, also where the disk cannot swap names.
    run_with(program, "exchange:1", training(out, overrides));
    INFO("stopped in batch " << arrival);
    CHECK(story(program.folder() / out) == expected);
    for (const auto* link : {"best", "last"}) {
      const auto file = [&](const std::string& run, const std::string& name) {
        return read_text(program.folder() / run / "checkpoints" / link / name);
      };
      CHECK(file(out, "model.safetensors") == file("whole", "model.safetensors"));
      const auto meta = Json::parse(file(out, "meta.json")), whole = Json::parse(file("whole", "meta.json"));
      for (const auto* key : {"step", "evaluated_step", "best", "validation", "scheduled"})
        CHECK(meta.at(key) == whole.at(key));
    }
  }
  CHECK(stops >= (recalibrates ? 2 : 5));
}

TEST_CASE("a rollback to a step whose evaluation was stopped keeps that evaluation", "[cli][stop]") {
  const Program program;
  const Arguments overrides = {"train.divergence.action=rollback", "train.patience=9"};
  program.succeed(training("whole", overrides));
  CHECK(run_with(program, "evaluate:1", training("cut", overrides)).code == 143);
  CHECK(run_with(program, "nan:1", training("cut", overrides)).code == 0);
  std::istringstream lines(read_text(program.folder() / "cut/metrics.jsonl"));
  std::vector<std::pair<int, std::string>> seen;
  for (std::string line; std::getline(lines, line);) {
    const auto json = Json::parse(line);
    if (json["split"] != "train") seen.emplace_back(json["step"].get<int>(), json["split"].get<std::string>());
  }
  CHECK(seen == decltype(seen){{2, "validation"}, {2, "rollback"}, {4, "validation"}});
}

TEST_CASE("baselines that a stop cut short are in the summary in the end", "[cli][stop]") {
  const Program program;
  const auto overrides = classifier(program, {});
  CHECK(run_with(program, "baselines:1", training("run", overrides)).code == 143);
  CHECK_FALSE(fs::exists(program.folder() / "run/summary.json"));
  program.succeed(training("run", overrides));
  CHECK(Json::parse(read_text(program.folder() / "run/summary.json")).at("baselines").contains("linear"));
  for (const auto& entry : fs::recursive_directory_iterator(program.folder() / "run"))
    CHECK_FALSE(entry.path().filename().string().ends_with(".tmp"));
}

TEST_CASE("a checkpoint that does not read back as it was written does not count", "[cli][disk]") {
  const Program program;
  program.succeed(training("whole", {}));
  int refused = 0;
  for (int write = 1; write <= 16 && refused < 8; ++write) {  // of two checkpoints with four files each
    fs::remove_all(program.folder() / "run");
    const auto damaged = run_with(program, "damage:" + std::to_string(write), training("run", {}));
    if (damaged.code == 0) continue;  // not a file of a checkpoint
    ++refused;
    CHECK(damaged.code == 1);
    CHECK_THAT(damaged.err, ContainsSubstring("could not be saved: ") &&
                                (ContainsSubstring("as it was written") || ContainsSubstring("meta.json: damaged")) &&
                                ContainsSubstring("earlier checkpoints are intact"));
    program.succeed(training("run", {}));
    CHECK(story(program.folder() / "run") == story(program.folder() / "whole"));
  }
  CHECK(refused == 8);
}

TEST_CASE("a full disk before there is a run is a failure, not a mistake of the user", "[cli][disk]") {
  const Program program;
  const auto full = run_with(program, GENERATE("full:1", "full:2"), training("run", {}));
  CHECK(full.code == 1);
  CHECK_THAT(full.err, ContainsSubstring("No space left on device"));
  CHECK(std::count(full.err.begin(), full.err.end(), '\n') == 1);
  program.succeed(training("run", {}));
}
