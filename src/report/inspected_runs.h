#pragma once
// What the report page shows of the inside of a run.

#include <nlohmann/json.hpp>
#include <string>

#include "inspect/inspection.h"

namespace metaformer {

// to_json(inspection), where every head also has "attention", "scores", "form", "input_form" and "distances" as packed
// matrices (report/packed_matrix.h), as far as the mixer has them. Forms with more than 256 rows are left out.
nlohmann::ordered_json describe_heads(const TextInspection& inspection);

}  // namespace metaformer
