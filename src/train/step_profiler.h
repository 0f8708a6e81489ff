#pragma once
// Time by operator on the host over a few training steps, through LibTorch's profiler.

#include <ATen/record_function.h>
#include <torch/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace metaformer {

struct OperatorTime {
  std::string name;
  std::int64_t calls = 0;
  double self_ms = 0;  // without the operators it calls
};

class StepProfiler {
 public:
  // Will write the trace to `trace_file` (for chrome://tracing or Perfetto).
  StepProfiler(std::filesystem::path trace_file, torch::Device device);
  ~StepProfiler();  // records no longer, reports nothing

  // Before each step of this process, counted from 0. Records steps 10 ... 29; what happens between them does not
  // count.
  void before_step(std::int64_t index);
  void after_step();

  // Stops, when still recording; logs the table and writes the trace.
  void finish();

  // Of the recorded steps, longest first; empty before the end.
  const std::vector<OperatorTime>& operators() const { return operators_; }

 private:
  void start();

  std::filesystem::path trace_file_;
  torch::Device device_;
  bool recording_ = false;
  std::optional<at::RecordFunction> step_;  // marks the step in the trace
  std::int64_t steps_ = 0;
  std::vector<OperatorTime> operators_;
};

}  // namespace metaformer
