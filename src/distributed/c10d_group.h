#pragma once
// Process groups of LibTorch's c10d: Gloo for tensors on the CPU, NCCL for those on CUDA devices.

#include <chrono>

#include "distributed/launch.h"
#include "distributed/process_group.h"

namespace metaformer {

// Waits until all processes are there. Errors (exit code 6): some are not, within the time.
std::shared_ptr<ProcessGroup> make_c10d_group(const Launch& launch, std::chrono::seconds timeout);

}  // namespace metaformer
