#pragma once
// Derives the format of a file from its name.

#include <filesystem>
#include <optional>

#include "config/data_config.h"

namespace metaformer {

// csv for .csv, tsv for .tsv, jsonl for .jsonl, .json and .ndjson, text for .txt and .text, each also followed by .gz,
// in letters of any case; nothing for other names.
std::optional<TableFormat> format_by_name(const std::filesystem::path& path);

}  // namespace metaformer
