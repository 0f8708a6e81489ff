#pragma once
// Texts for language models: a file, or a folder of files, each gzipped or not, plain text or JSON lines.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "config/data_config.h"

namespace metaformer {

struct TextFiles {
  std::string text;                    // all documents, with data.document_separator between any two
  nlohmann::ordered_json description;  // path and a SHA-256 over all files; of several documents also their counts
  bool has_json_lines = false;
  bool is_one_text = false;  // one file of plain text, which is one document
};

// Of a file the format is data.format, else that of its name (data/sources/file_format.h); other names are plain text.
// A file of plain text is a document, and of JSON lines each object, of which data.text_field names the text; empty
// documents are left out.
//
// Of a folder all files below it count, in the order of their paths in bytes. Hidden files, links to folders and, where
// data.format is auto, names without a known ending are passed over; a warning has their number.
//
// Unless the tokenizer is that of bytes, plain text must be UTF-8. Errors (exit code 3) name the file, and the line
// where there is one: unreadable, damaged, more than 16 GiB in all, not UTF-8, no text, lines of JSON that are
// malformed (base/json_lines.h) beyond data.malformed_limit.
TextFiles read_text_files(const std::filesystem::path& path, const DataConfig& config);

}  // namespace metaformer
