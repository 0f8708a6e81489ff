#pragma once
// Scores of batches that several processes have taken turns in.

#include "distributed/process_group.h"
#include "tasks/score_sums.h"

namespace metaformer {

// `own`: of batches rank, rank + size, ... Their sum over all batches in order, on every process: as if one had scored
// all of them.
ScoreSums add_scores_of_all(ProcessGroup& group, const std::vector<ScoreSums>& own);

}  // namespace metaformer
