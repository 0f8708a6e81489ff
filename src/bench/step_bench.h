#pragma once
// Time and memory of a training step.

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "config/experiment_config.h"
#include "distributed/process_group.h"
#include "tasks/task.h"

namespace metaformer {

// Which parts of a config's training step take the fast path on the CPU (docs/performance.md).
struct FastPath {
  std::string part;     // "attention"; for recurrent models "recurrence"
  std::string why_not;  // empty: it is taken
};

// The fast path of attention is ops/attention.h; that of a recurrence is oneDNN, which computes a whole layer. Empty
// for other models.
std::vector<FastPath> fast_paths(const ExperimentConfig& config, torch::Device device);

// Time of a training step by phase, and how much of it matrix products could explain.
struct StepBenchRequest {
  std::int64_t steps = 30, rounds = 5, warmup = 10;
};

struct StepBenchResult {
  double ms_per_step = 0;                              // median over rounds
  std::vector<std::pair<std::string, double>> phases;  // ms of a step, in a separate round without a CUDA graph
  double tokens_per_second = 0;
  double operations = 0;               // floating-point, of the matrix products of a step
  double gflops = 0;                   // of those, per second
  double peak_gflops = 0;              // of one large product in the same type
  std::int64_t peak_memory_bytes = 0;  // of the process, or of the device
  double loss = 0;                     // of the last step
  std::int64_t gradient_bytes = 0;
  double all_reduce_ms = 0;  // sum of all gradients of several processes, without other work: median over rounds
  std::vector<FastPath> fast_paths;
};

// Trains a fresh model and times it. Several processes share the steps, and each measures its own times. Errors (exit
// code 2): a step's rows cannot be divided over the processes.
StepBenchResult bench_step(const ExperimentConfig& config, const Task& task, torch::Device device,
                           const StepBenchRequest& request, ProcessGroup& group = one_process());

}  // namespace metaformer
