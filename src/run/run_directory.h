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
  // A new run in `folder`, which must be absent or empty. Errors (exit code 2): it holds something, cannot be written;
  // when the disk is full, exit code 1.
  static RunDirectory create(const std::filesystem::path& folder);

  // An existing run. Errors: exit code 2.
  static RunDirectory open(const std::filesystem::path& folder, const char* option = "--run");

  // A run to use, which --run names. Where that is latest_run, the log says which run it is. Where the link leads to no
  // run with a checkpoint, it is the newest run beside the link that has one; if none has, the error names the newest.
  static RunDirectory open_trained(const std::filesystem::path& folder);

  // True when there is nothing at `folder`, an empty folder, or one where a run ended before it had begun.
  static bool is_free(const std::filesystem::path& folder);

  // Half-written files of processes that died. Only for the holder of the run's lock.
  void remove_left_overs() const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config_file() const { return path_ / "config.yaml"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path samples_file() const { return path_ / "samples.jsonl"; }
  std::filesystem::path log_file() const { return path_ / "train.log"; }
  // Errors of another process than the first.
  std::filesystem::path log_file(int rank) const { return path_ / ("train.log." + std::to_string(rank)); }
  std::filesystem::path summary_file() const { return path_ / "summary.json"; }
  std::filesystem::path confusion_file(std::string_view split) const {
    return path_ / ("confusion_" + std::string(split) + ".csv");
  }
  std::filesystem::path predictions_file() const { return path_ / "test_predictions.safetensors"; }
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

// Points latest_run at a run that has a checkpoint, wherever the run lies, and the same in the run's own folder when
// that is called `runs`. A link to a run that was started later and has a checkpoint stays. A link that cannot be made
// is a warning.
void link_latest(const std::filesystem::path& run);

// One process that trains the run, for environment.json.
struct Session {
  std::vector<std::string> command;
  torch::Device device;
  std::int64_t first_step = 0;  // steps that earlier processes had done
};

// Describes this process and the data, and adds the process to the list of sessions, which keeps the earlier ones.
void write_environment(const RunDirectory& run, const Session& session, const nlohmann::ordered_json& data);

// The content; {} when the run has none, or none that can be read.
nlohmann::ordered_json read_environment(const RunDirectory& run);

// A data description without where the data lie: what is left is the same for the same data.
nlohmann::ordered_json without_paths(const nlohmann::ordered_json& description);

// Check by SHA-256 that the data at the paths of the keys `moved` (moved_data of config/experiment_config.h) are those
// that the run was trained on. Errors (exit code 3): others, with both digests. First of what is a file, before it is
// read: texts with other labels or characters would be another error.
void require_moved_files(const RunDirectory& run, const ExperimentConfig& config,
                         const std::vector<std::string>& moved);

// Then of all that was read, and says so in the log. A run that does not know its digests: a warning.
void require_moved_data(const RunDirectory& run, const ExperimentConfig& config, const std::vector<std::string>& moved,
                        const nlohmann::ordered_json& description);

// How data differ from those that the run was trained on, wherever they lie now: "train.sha256 is 86c4... and was
// 9d8c..." of the first digest that does; "" where no digest does. Nothing when they are the same, or the run does not
// say.
std::optional<std::string> difference_of_data(const RunDirectory& run, const nlohmann::ordered_json& description);

}  // namespace metaformer
