#pragma once
// Texts for language models: a file, or a folder of files, each gzipped or not, plain text or JSON lines.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/data_config.h"

namespace metaformer {

struct TextFiles {
  std::string text;                    // all documents, with line breaks between them
  nlohmann::ordered_json description;  // path and a SHA-256 over all files; for several documents also their counts
  std::vector<std::size_t> document_starts;  // in bytes of the text
  bool has_json_lines = false;
  bool is_one_text = false;  // one file of plain text, which is one document
};

// The format of a file is data.format, else that of its name (data/sources/file_format.h); other names are plain text.
// A file of plain text is a document. In JSON lines each object is one, and data.text_field names its text; empty
// documents are left out.
//
// In a folder all files below it are read, in the order of their paths in bytes. Hidden files, links to folders and, if
// data.format is auto, names without a known ending are skipped; a warning has their number.
//
// A byte order mark at the start of a file is left out. Unless the tokenizer is `byte`, plain text must be UTF-8.
// Errors (exit code 3) name the file, and the line if there is one: unreadable, damaged, more than 16 GiB in all, not
// UTF-8, no text, lines of JSON that are malformed (base/json_lines.h) beyond data.malformed_limit.
TextFiles read_text_files(const std::filesystem::path& path, const TextDataConfig& config);

}  // namespace metaformer
