#pragma once
// Metrics of a run that follow from others, so that results files do not hold them.

#include "compare/run_record.h"

namespace metaformer {

// loss_gap: validation loss minus training loss; not where only that of training is smoothed. validation_score, of a
// classifier whose best checkpoint was chosen by a fraction (accuracy, AUC): one minus the error that chose it.
void add_derived_metrics(RunRecord& record);
void remove_derived_metrics(RunRecord& record);

}  // namespace metaformer
