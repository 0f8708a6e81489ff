#pragma once
// The logs of a run over its steps: numbers in metrics.jsonl, texts in samples.jsonl, and both for TensorBoard.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/files.h"
#include "config/experiment_config.h"
#include "run/run_directory.h"

namespace metaformer {

// Where a run resumes: which lines of its logs to keep.
struct LogPosition {
  std::int64_t step = 0;       // lines of later steps are dropped
  bool evaluated = false;      // false: those of an evaluation at `step` too, which was not finished
  std::int64_t rollbacks = 0;  // lines of split rollback are kept up to this number, whatever their step
  bool past_end = false;       // lines of an end that the run now goes beyond are dropped: the whole validation split's
};

class TensorBoardWriter;

class MetricsLog {
 public:
  // A log that writes nothing.
  MetricsLog();
  // For TensorBoard a session that starts at the position: it forgets the lines that are dropped.
  MetricsLog(const RunDirectory& run, const LogPosition& position);

  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  ~MetricsLog();

  // For TensorBoard: the text of config.yaml, and every key of it as a hyper-parameter, at the step of the position.
  void write_config(const ExperimentConfig& config);

  // A checkpoint promises the lines before it: they must be on the disk first.
  void sync() const;

  // One line {"step": ..., "split": ..., measures...}; NaN becomes null. TensorBoard gets every number outside lists,
  // tagged SPLIT/NAME or SPLIT/NAME/NAME.
  void write(std::int64_t step, const std::string& split, const nlohmann::ordered_json& measures);

  // One line {"step": ..., sample...} of samples.jsonl, whose "text" TensorBoard gets too. Bytes that are not UTF-8 are
  // replaced.
  void write_sample(std::int64_t step, const nlohmann::ordered_json& sample);
  std::int64_t last_sampled_step() const { return last_sampled_step_; }  // 0: none so far

 private:
  void add_scalars(const std::string& prefix, const nlohmann::ordered_json& measures, std::int64_t step);
  void add_sample(const nlohmann::ordered_json& sample, std::int64_t step);

  std::filesystem::path path_, samples_path_;
  std::int64_t first_step_ = 0;
  std::optional<AppendedFile> file_, samples_file_;  // the second once there is a sample
  std::int64_t last_sampled_step_ = 0;
  std::unique_ptr<TensorBoardWriter> tensorboard_;  // none: it writes nothing at all
};

}  // namespace metaformer
