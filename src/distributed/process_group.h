#pragma once
// The processes of a training, and what they exchange.

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

// The processes that share the work of one training or evaluation. All of them call the same functions in the same
// order. Errors of all functions (exit code 6): another process has ended, or has not answered in time.

// Waits for a sum that has been started and goes on by itself; the tensor then holds it.
using PendingSum = std::function<void()>;

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const { return 0; }  // among the processes on this machine
  bool is_first() const { return rank() == 0; }

  // x becomes the sum of what all ranks have in it, of the same bytes on each; on the CPU added in the order of the
  // ranks. Contiguous, on the CPU or on this process's device. Until the wait x must neither be read nor written.
  virtual PendingSum start_sum(const torch::Tensor& x) = 0;
  void sum(const torch::Tensor& x) { start_sum(x)(); }

  // The same on rank `root` only; on the others x is then of no use.
  virtual PendingSum start_sum_on(const torch::Tensor& x, int root) = 0;

  // x becomes that of rank `root`.
  virtual void broadcast(const torch::Tensor& x, int root = 0) = 0;

  // The bytes of every rank, in their order.
  virtual std::vector<std::string> gather(const std::string& bytes) = 0;

  // Says to the others why this process is about to end, which they will repeat. False: rank 0 says the same, so this
  // process need not.
  virtual bool announce_failure(const std::string& why) = 0;
};

// A group of one.
ProcessGroup& one_process();

// A group by LibTorch's c10d: Gloo for tensors on the CPU, NCCL for those on CUDA devices. Waits until all processes
// are there. Errors (exit code 6): some are not, within the time.
std::shared_ptr<ProcessGroup> make_c10d_group(const Launch& launch, std::chrono::seconds timeout);

// The named tensors that every rank has, in the order of the ranks, on the CPU. Names may repeat. To be called by all.
std::vector<NamedTensors> gather_tensors(ProcessGroup& group, const NamedTensors& own);

// Agreement of all processes of a group. All of them must call each of these functions.
void wait_for_all(ProcessGroup& group);

// The text of rank 0.
std::string of_first(ProcessGroup& group, const std::string& text);

// Errors (exit code 2): a rank has another value than rank 0; of objects the first such member is named.
void require_same(ProcessGroup& group, const nlohmann::ordered_json& values);

// throw_if_stopped() of one process; throws Interrupted on all, also while a StopDeferral exists, once any is to stop.
void throw_if_any_stopped(ProcessGroup& group);

// Whether SIGUSR1 has arrived at any of them since the last call.
bool take_save_request_of_any(ProcessGroup& group);

}  // namespace metaformer
