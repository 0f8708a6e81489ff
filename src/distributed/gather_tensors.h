#pragma once
// Named tensors of all processes.

#include "distributed/process_group.h"
#include "ops/named_tensors.h"

namespace metaformer {

// What every rank has, in the order of the ranks, on the CPU. Names may repeat. To be called by all.
std::vector<NamedTensors> gather_tensors(ProcessGroup& group, const NamedTensors& own);

}  // namespace metaformer
