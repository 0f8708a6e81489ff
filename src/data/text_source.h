#pragma once
// The texts of files, as one text with line breaks between documents, piece by piece in constant memory.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/data_config.h"

namespace metaformer {

// A piece of the text, of whole characters where it is UTF-8; valid during the call.
using UsePiece = std::function<void(std::string_view piece, bool starts_document)>;

// What read_texts has read.
struct TextSummary {
  nlohmann::ordered_json description;  // path and a SHA-256 over all files; for several documents also their counts
  std::int64_t documents = 0;
  bool has_json_lines = false;
  bool is_one_text = false;               // one file of plain text, which is one document
  std::int64_t malformed = 0, empty = 0;  // documents that are left out
  std::uintmax_t unpacked_bytes = 0;  // of the files, as far as they were read; of a Parquet file those of its texts
  bool is_whole = true;               // false: stopped after `most_bytes`
};

// Calls `use` with the text of files and folders of files, each compressed (gzip, Zstandard) or not, plain text or JSON
// lines. The line break between two documents belongs to the first.
//
// The format of a file is data.format or, if that is auto, that of its name (data/tables.h); other names are plain
// text; .parquet has a document in every row of the column data.text_field. A file of plain text is one document. In
// JSON lines each object is one, and data.text_field names its text; empty documents are left out. All files below a
// folder are read, in the order of their paths in bytes, except hidden files, links to folders and, if data.format is
// auto, names without a known ending; a warning has the number of files that are not read.
//
// A byte order mark at the start of a file is left out. Unless the tokenizer is `byte`, plain text must be UTF-8.
// Errors (exit code 3) name the file, and the line if there is one: unreadable, damaged, not UTF-8, no text, lines of
// JSON that are malformed (base/json.h) beyond data.malformed_limit. They may come after the last call of `use`.
//
// Stops after about `most_bytes` bytes of text; the summary's digests then mean nothing.
TextSummary read_texts(const std::vector<std::filesystem::path>& paths, const TextDataConfig& config,
                       const UsePiece& use, std::uintmax_t most_bytes = std::numeric_limits<std::uintmax_t>::max());

// The files that read_texts reads. Errors (exit code 3): a folder that cannot be read, or has no texts.
std::vector<std::filesystem::path> list_text_files(const std::vector<std::filesystem::path>& paths,
                                                   const TextDataConfig& config);

// An estimate of the bytes of the files after unpacking: a file whose name ends with .gz or .zst counts four times its
// size, a file that cannot be read 0.
std::uintmax_t estimate_unpacked_bytes(const std::vector<std::filesystem::path>& files);

}  // namespace metaformer
