#pragma once
// The numbers of a run over its steps: metrics.jsonl, and the same for TensorBoard.

#include <nlohmann/json.hpp>

#include "train/run_directory.h"
#include "train/tensorboard_writer.h"

namespace metaformer {

class MetricsLog {
 public:
  // Keeps the lines up to and including `first_step` that an interrupted run wrote, drops later ones, and those of an
  // evaluation at first_step that was not finished.
  MetricsLog(const RunDirectory& run, std::int64_t first_step, bool evaluated);

  // One line {"step": ..., "split": ..., metrics...}; numbers that JSON cannot hold become null. TensorBoard gets every
  // number outside lists, tagged SPLIT/NAME or SPLIT/NAME/NAME.
  // A checkpoint promises the lines before it: they must be on the disk first.
  void sync() const;

  void write(std::int64_t step, const std::string& split, const nlohmann::ordered_json& metrics);

 private:
  void add_scalars(const std::string& prefix, const nlohmann::ordered_json& metrics, std::int64_t step);

  std::filesystem::path path_;
  std::ofstream file_;
  TensorBoardWriter tensorboard_;
};

}  // namespace metaformer
