#pragma once
// A list of the runs below a folder: state, progress, scores, age and size of each, and the config keys in which they
// differ.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "report/comparison.h"

namespace metaformer {

enum class RunState {
  running,       // a living process holds its lock
  finished,      // its summary.json belongs to its last step
  stopped,       // before the last step of its config, with a checkpoint or lines of metrics.jsonl
  diverged,      // a number was not finite
  empty,         // no step is recorded
  damaged,       // its config, summary or logs cannot be read
  half_deleted,  // a process died while it deleted the run
};
constexpr std::array<std::string_view, 7> enum_names(RunState) {
  return {"running", "finished", "stopped", "diverged", "empty", "damaged", "half_deleted"};
}

// An evaluation of the validation split while training.
struct ValidationScore {
  std::int64_t step = 0;
  double loss = 0;
  std::optional<double> value;  // of the task's main measure, which may be the loss
};

struct ListedRun {
  std::string name;  // path below the listed folder
  std::filesystem::path folder;
  RunState state = RunState::empty;
  std::string problem;                // the reason for damaged, diverged or half_deleted; else ""
  std::string task;                   // kind; "" if the config cannot be read
  std::string measure = "loss";       // key of the task's main measure: "accuracy", "exact_match", ...
  std::int64_t step = 0;              // steps done
  std::optional<std::int64_t> steps;  // in all; nothing if unknown
  std::optional<ValidationScore> newest, best;
  FolderSize size;
  Settings changed, settings;  // keys of the config that are not default, and all; empty if it cannot be read
  Settings differences;        // those whose values differ between the listed runs, with the seed
};

// A run without `differences`. Never throws an Error: a run with files that cannot be read is damaged.
ListedRun describe_run(const std::filesystem::path& folder, const std::string& name);

enum class RunOrder { age, name, loss };
constexpr std::array<std::string_view, 3> enum_names(RunOrder) { return {"age", "name", "loss"}; }

// The runs below a folder (runs_below), in an order: the newest change first, by name, or the lowest loss first. Throws
// Interrupted.
std::vector<ListedRun> list_runs(const std::filesystem::path& folder, RunOrder order);

// "step 40 of 100, best loss 2.3141": the parts that are known.
std::string describe_progress(const ListedRun& run);

// A table. `columns`: the width of the terminal, to which names and lines are cut; nothing: lines are whole. Control
// characters are escaped.
std::string to_text(const std::vector<ListedRun>& runs, std::optional<std::size_t> columns);

// {"name", "path", "state", "problem", "task", "step", "steps", "measure", "validation": {"step", "loss", MEASURE},
// "best": the same, "changed", "age_seconds", "bytes", "differences": {KEY: VALUE as YAML}}. What is unknown is null.
nlohmann::ordered_json to_json(const ListedRun& run);

}  // namespace metaformer
