#pragma once
// Gradients of a step that several processes share.

#include "optim/sharded_optimizer.h"

namespace metaformer {

// Adds up the gradients of all processes, on all of them. Of tables of which few rows have a gradient, only these rows
// are sent.
void add_gradients_of_all(ProcessGroup& group, ParameterBuffer& parameters);

// The same, but each process gets those of its shard only.
void add_gradients_of_shards(ProcessGroup& group, ParameterBuffer& parameters, const std::vector<Shard>& shards);

}  // namespace metaformer
