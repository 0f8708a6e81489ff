#pragma once
// The processes of a run, and their communication.

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ops/named_tensors.h"

namespace metaformer {

struct Launch;

// The processes that share the work of one run or evaluation. All of them call the same functions in the same order.
// All functions throw Error (exit code 6) if another process has ended, or has not answered in time.

// Waits for a sum that was started and is computed in the background; the tensor then holds the sum.
using PendingSum = std::function<void()>;

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const { return 0; }  // among the processes on this machine
  bool is_first() const { return rank() == 0; }

  // Starts to replace x by the sum of the x of all ranks, with the same bytes on each; on the CPU added in the order of
  // the ranks. x is contiguous, on the CPU or on this process's device, and must be neither read nor written before the
  // wait.
  virtual PendingSum start_sum(const torch::Tensor& x) = 0;
  void sum(const torch::Tensor& x) { start_sum(x)(); }

  // The same with the sum on rank `root` only; the other ranks' x is then meaningless.
  virtual PendingSum start_sum_on(const torch::Tensor& x, int root) = 0;

  // Replaces x by that of rank `root`.
  virtual void broadcast(const torch::Tensor& x, int root = 0) = 0;

  // The bytes of every rank, in the order of the ranks.
  virtual std::vector<std::string> gather(const std::string& bytes) = 0;

  // Announces to the other processes why this process is about to end; they repeat the reason in their errors. Returns
  // false if rank 0 announces the same reason, so that this process need not report it.
  virtual bool announce_failure(const std::string& why) = 0;
};

// The group of a single process.
ProcessGroup& one_process();

// A group by LibTorch's c10d: Gloo for tensors on the CPU, NCCL for those on CUDA devices. Waits until all processes
// have joined. Throws Error (exit code 6) if some have not within `timeout`.
std::shared_ptr<ProcessGroup> make_c10d_group(const Launch& launch, std::chrono::seconds timeout);

// The named tensors of every rank, in the order of the ranks, on the CPU. Names may repeat. All processes must call it.
std::vector<NamedTensors> gather_tensors(ProcessGroup& group, const NamedTensors& own);

// Agreement of all processes of a group. All of them must call each of these functions.
void wait_for_all(ProcessGroup& group);

// The text of rank 0.
std::string of_first(ProcessGroup& group, const std::string& text);

// Whether `own` is true on every rank.
bool all_agree(ProcessGroup& group, bool own);

// Throws Error (exit code 2) if a rank has other values than rank 0, and names the first member of objects that
// differs.
void require_same(ProcessGroup& group, const nlohmann::ordered_json& values);

// For one process throw_if_stopped(). For several, throws Interrupted on all of them once any has got a stop signal,
// also while a StopDeferral exists.
void throw_if_any_stopped(ProcessGroup& group);

// Whether SIGUSR1 has arrived at any of the processes since the last call.
bool take_save_request_of_any(ProcessGroup& group);

}  // namespace metaformer
