#pragma once
// Prints what an inspection found.

#include <filesystem>

#include "inspect/inspection.h"
#include "inspect/split_inspection.h"

namespace metaformer {

void print_text(const TextInspection& inspection, const std::filesystem::path& checkpoint);
void print_split(const SplitInspection& inspection);

}  // namespace metaformer
