#pragma once
// A folder with small data for training, and the separate parts of a training.

#include <sstream>

#include "model/make_model.h"
#include "model/parameters.h"
#include "run/load_run.h"
#include "support/temporary_folder.h"
#include "support/torch_catch.h"
#include "tasks/evaluation.h"
#include "tasks/make_task.h"
#include "train/run.h"
#include "train/step.h"

namespace metaformer {

// A learnable text: words in a fixed cycle with a counter between.
inline std::string learnable_text() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += std::string("the quick brown fox ") + static_cast<char>('a' + i % 26) + ". ";
  return text;
}

using Overrides = std::vector<std::string>;

inline Overrides joined(Overrides first, const Overrides& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// The working folder during its lifetime, which also gets runs/latest.
class Workplace {
 public:
  Workplace() {
    folder_.write("text.txt", learnable_text());
    folder_.write("default.yaml", "data: {path: '" + (folder_ / "text.txt").string() +
                                      "'}\n"
                                      "model: {layers: 2, heads: 2, width: 16, context: 16}\n"
                                      "train: {batch_size: 6, steps: 12, eval_interval: 6, checkpoint_interval: 4, "
                                      "log_interval: 3, schedule: {warmup_steps: 2}}\n");
    std::filesystem::current_path(folder_.path());
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() { std::filesystem::current_path(working_folder_); }

  Experiment experiment(const std::vector<std::string>& overrides) const {
    return load_experiment((folder_ / "default.yaml").string(), overrides);
  }

  nlohmann::ordered_json train(const std::string& out, const std::vector<std::string>& overrides,
                               bool resume = false) const {
    return to_json(metaformer::train({.experiment = experiment(overrides),
                                      .out = folder_ / out,
                                      .resume = resume,
                                      .offline = true,
                                      .device = "cpu",
                                      .command_line = {"test"}}));
  }

  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  std::filesystem::path working_folder_ = std::filesystem::current_path();
  TemporaryFolder folder_;
};

inline std::vector<nlohmann::ordered_json> json_lines(const std::filesystem::path& file) {
  std::vector<nlohmann::ordered_json> values;
  std::istringstream lines(read_text(file));
  for (std::string line; std::getline(lines, line);) values.push_back(nlohmann::ordered_json::parse(line));
  return values;
}

// The lines of a split in metrics.jsonl.
inline std::vector<nlohmann::ordered_json> metrics_of(const std::filesystem::path& run, const std::string& split) {
  auto lines = json_lines(run / "metrics.jsonl");
  std::erase_if(lines, [&](const auto& line) { return line.at("split") != split; });
  return lines;
}

inline std::string model_bytes(const std::filesystem::path& run, const std::string& checkpoint = "last") {
  return read_text(run / "checkpoints" / checkpoint / "model.safetensors");
}

// metrics.jsonl without times and memory, which differ from run to run.
inline std::string metrics_without_time(const std::filesystem::path& run) {
  std::string kept;
  for (auto json : json_lines(run / "metrics.jsonl")) {
    for (const auto* field : {"seconds", "wall_seconds", "evaluation_seconds", "peak_memory_bytes"}) json.erase(field);
    kept += json.dump() + "\n";
  }
  return kept;
}

struct TaskOf {
  explicit TaskOf(Experiment given) : experiment(std::move(given)), task(make_task(experiment.config, true)) {}
  Experiment experiment;
  Task task;
};

// A step of a model with its task, from weights that differ from those of a run.
struct Parts : TaskOf, Step {
  explicit Parts(Experiment given, ProcessGroup& group = one_process())
      : TaskOf(std::move(given)), Step(experiment.config, task, torch::kCPU, group) {
    initialise(*model, 1);
  }
  NetworkPredictor predictor() { return NetworkPredictor(*model); }
};

}  // namespace metaformer
