#pragma once
// The logs of a run: numbers in metrics.jsonl, texts in samples.jsonl, and both for TensorBoard.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/files.h"
#include "config/experiment_config.h"
#include "run/run_directory.h"

namespace metaformer {

// Resume position of a run: which lines of its logs to keep.
struct LogPosition {
  std::int64_t step = 0;       // lines of later steps are dropped
  bool evaluated = false;      // false: lines of the unfinished evaluation at `step` are dropped, too
  std::int64_t rollbacks = 0;  // lines of split rollback are kept up to this number of rollbacks, at any step
  bool past_end = false;       // the run continues beyond its former end, whose lines of split validation are dropped
};

class TensorBoardWriter;

class MetricsLog {
 public:
  // A log that writes nothing.
  MetricsLog();
  // Drops the lines that `position` does not keep, and starts a TensorBoard session so that TensorBoard forgets them,
  // too.
  MetricsLog(const RunDirectory& run, const LogPosition& position);

  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  ~MetricsLog();

  // Writes for TensorBoard the text of config.yaml, and each of its keys as a hyper-parameter, at the step of the
  // position.
  void write_config(const ExperimentConfig& config);

  // Syncs the files to disk. To be called before a checkpoint is saved: resuming from it relies on the lines before it.
  void sync() const;

  // Writes one line {"step": ..., "split": ..., measures...}; NaN becomes null. TensorBoard gets every number outside
  // lists, tagged SPLIT/NAME or SPLIT/NAME/NAME.
  void write(std::int64_t step, const std::string& split, const nlohmann::ordered_json& measures);

  // Writes one line {"step": ..., sample...} to samples.jsonl. TensorBoard gets its "text", too. Bytes that are not
  // UTF-8 are replaced.
  void write_sample(std::int64_t step, const nlohmann::ordered_json& sample);
  std::int64_t last_sampled_step() const { return last_sampled_step_; }  // 0: no sample yet

 private:
  void add_scalars(const std::string& prefix, const nlohmann::ordered_json& measures, std::int64_t step);
  void add_sample(const nlohmann::ordered_json& sample, std::int64_t step);

  std::filesystem::path path_, samples_path_;
  std::int64_t first_step_ = 0;
  std::optional<AppendedFile> file_, samples_file_;  // the second is opened at the first sample
  std::int64_t last_sampled_step_ = 0;
  std::unique_ptr<TensorBoardWriter> tensorboard_;  // null in a log that writes nothing
};

}  // namespace metaformer
