#pragma once
// What a file's name says about its format.

#include <filesystem>
#include <optional>

#include "config/data_config.h"

namespace metaformer {

// csv of .csv, tsv of .tsv, jsonl of .jsonl, .json and .ndjson, text of .txt and .text, each also with .gz behind it,
// in letters of any case; nothing of other names.
std::optional<TableFormat> format_by_name(const std::filesystem::path& path);

}  // namespace metaformer
