#pragma once
// The folder of a run (docs/run_directory.md).

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/experiment_config.h"

namespace metaformer {

// A link to the newest run of the working folder that has a checkpoint.
constexpr const char* latest_run = "runs/latest";

class RunDirectory {
 public:
  // Creates a run in `folder`, which must be free (is_free). Errors: exit code 2 when it is not free or cannot be
  // written, 1 when the disk is full.
  static RunDirectory create(const std::filesystem::path& folder);

  // Opens an existing run. Errors: exit code 2. `option` names the command line option in messages.
  static RunDirectory open(const std::filesystem::path& folder, const char* option = "--run");

  // Opens the run that --run names. For latest_run, the log names the run. If that link leads to no run with a
  // checkpoint, the newest run below the link's folder that has one is opened; if no run has one, the error names the
  // newest run.
  static RunDirectory open_trained(const std::filesystem::path& folder);

  // Opens the run that train --resume names, in the same way, but by the run's own path and without the log line: other
  // runs become the latest while it is trained.
  static RunDirectory open_to_resume(const std::filesystem::path& folder);

  // True when `folder` does not exist, is empty, or holds only files of a process that died before it wrote
  // config.yaml.
  static bool is_free(const std::filesystem::path& folder);

  // Whether the folder is a run: it has a config.yaml, and its deletion has not begun.
  static bool is_run(const std::filesystem::path& folder);

  // Whether a process died while it deleted the run in this folder (delete_run).
  static bool is_half_deleted(const std::filesystem::path& folder);

  // Removes half-written files of processes that died. Only the holder of the run's lock may call it.
  void remove_left_overs() const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config_file() const { return path_ / "config.yaml"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path samples_file() const { return path_ / "samples.jsonl"; }
  std::filesystem::path log_file() const { return path_ / "train.log"; }
  // Errors of the process of this rank, for all ranks but the first.
  std::filesystem::path log_file(int rank) const { return path_ / ("train.log." + std::to_string(rank)); }
  std::filesystem::path summary_file() const { return path_ / "summary.json"; }
  std::filesystem::path confusion_file(std::string_view split) const {
    return path_ / ("confusion_" + std::string(split) + ".csv");
  }
  std::filesystem::path predictions_file(std::string_view split) const {
    return path_ / (std::string(split) + "_predictions.safetensors");
  }
  std::filesystem::path profile_file() const { return path_ / "profile.json"; }
  std::filesystem::path environment_file() const { return path_ / "environment.json"; }
  std::filesystem::path initial_weights_file() const { return path_ / "initial_weights.json"; }
  std::filesystem::path lock_file() const { return path_ / "lock"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }

 private:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// runs/NAME-YYYYMMDD-HHMMSS, with -2, -3, ... appended when that exists.
std::filesystem::path default_run_folder(const std::string& name);

// The name of a run without the time that default_run_folder has added: NAME.
std::string name_of_run(const RunDirectory& run);

// Points latest_run at a run that has a checkpoint, wherever the run lies. If the run lies in another folder called
// `runs`, the link `latest` there is set, too. A link to a run that was started later and has a checkpoint stays. If a
// link cannot be created, a warning is logged.
void link_latest(const std::filesystem::path& run);

// The runs in the folder at any depth, also half-deleted ones, sorted by path; the folder itself if it is a run. Links,
// hidden folders and folders that cannot be read are skipped.
std::vector<std::filesystem::path> runs_below(const std::filesystem::path& folder);

// Deletes a run. Its folder is renamed first, so that a process that dies meanwhile leaves no incomplete run under its
// name. Files behind links stay. Then a link `latest` to the run, in the working folder's `runs` or in a folder `runs`
// above the run, points to the newest run below that folder that has a checkpoint; without one it is removed. Errors:
// exit code 2, another process trains the run; 1, a file cannot be deleted.
void delete_run(const RunDirectory& run);

// One process that trains the run, for environment.json.
struct Session {
  std::vector<std::string> command;
  torch::Device device;
  std::int64_t first_step = 0;  // steps done by earlier processes
  // The keys of the config that have changed since the process before: {"train.steps": {"was": 4, "is": 8}}.
  nlohmann::ordered_json changes = nlohmann::ordered_json::object();
};

// Writes environment.json: this process, the data, the list of all sessions, to which this process is added, and
// `continued_from`, if the run was begun by begin_from_checkpoint (run/checkpoint.h).
void write_environment(const RunDirectory& run, const Session& session, const nlohmann::ordered_json& data);

// The content of environment.json; {} when the file is missing or is not a JSON object.
nlohmann::ordered_json read_environment(const RunDirectory& run);

// A description of data without paths: the same data have the same description, wherever they lie.
nlohmann::ordered_json without_paths(const nlohmann::ordered_json& description);

// Checks by SHA-256 that the files at the paths of the keys `moved` (moved_data of config/experiment_config.h) are
// those that the run was trained on. To be called before they are read, because texts with other labels or characters
// would cause another error. Errors (exit code 3): the digests differ; the message has both.
void require_moved_files(const RunDirectory& run, const ExperimentConfig& config,
                         const std::vector<std::string>& moved);

// The same check of all data, after reading, by their `description`; logs the result. Warns if the run has no digests.
void require_moved_data(const RunDirectory& run, const ExperimentConfig& config, const std::vector<std::string>& moved,
                        const nlohmann::ordered_json& description);

// How the data differ from those that the run was trained on, apart from their paths: "train.sha256 is 86c4... and was
// 9d8c..." for the first digest that differs, or "" if no digest differs. Nothing when the data are the same, or when
// the run has no description of its data.
std::optional<std::string> difference_of_data(const RunDirectory& run, const nlohmann::ordered_json& description);

}  // namespace metaformer
