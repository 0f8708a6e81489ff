#pragma once
// Gradients of tables of which a step uses few rows.

#include "distributed/process_group.h"
#include "model/parameter_buffer.h"

namespace metaformer {

// Adds up the gradients of the tables on all processes, sending only rows that one of them has listed. Of a table that
// one has no list of, all rows are sent. To be called by all, with the same tables.
void add_rows_of_all(ProcessGroup& group, const std::vector<const ParameterBuffer::View*>& tables);

}  // namespace metaformer
