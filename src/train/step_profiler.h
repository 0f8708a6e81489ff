#pragma once
// Time over a few training steps, through LibTorch's profiler: by operator on the host, and by kernel on a GPU.

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

// Work of a device: a kernel, a copy or a fill. Times are in nanoseconds of one clock.
struct DeviceEvent {
  std::string name;
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t launched_ns = 0;  // by the host
  std::int64_t stream = 0;
  std::optional<double> operations = {}, bytes = {};  // if they are known
};

struct Interval {
  std::int64_t begin_ns = 0, end_ns = 0;
};

// A sum over events.
struct DeviceTime {
  std::string name;
  std::int64_t calls = 0;
  double ms = 0;
  std::optional<double> operations = {}, bytes = {};  // if they are known for every event
};

// Times of all steps together.
struct DeviceTimes {
  std::vector<DeviceTime> kinds, kernels;  // longest first
  std::int64_t streams = 0;
  double span_ms = 0;     // from the first event of a step to its last
  double gap_ms = 0;      // time within the spans without any event
  double between_ms = 0;  // between the spans
};

// The kind of a kernel in the table, by the kernel's name.
std::string kind_of_kernel(const std::string& name);

// Times of the events that the host launched during the steps; `events` are in any order. Events of several streams may
// overlap: each counts for its kind, and a gap is a time in which none runs.
DeviceTimes device_times(const std::vector<DeviceEvent>& events, const std::vector<Interval>& steps);

// The name without the namespaces that most kernels have.
std::string short_kernel_name(std::string name);

class StepProfiler {
 public:
  // Will write the trace to `trace_file` (for chrome://tracing or Perfetto).
  StepProfiler(std::filesystem::path trace_file, torch::Device device);
  ~StepProfiler();  // stops recording, without a report

  // To be called before each step of this process, counted from 0. Records steps 10 ... 29, without the time between
  // them.
  void before_step(std::int64_t index);
  void after_step();

  // If still recording, stops it, logs the table and writes the trace.
  void finish();

  // The operators of the recorded steps, longest first; empty before the end.
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
