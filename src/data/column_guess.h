#pragma once
// Guesses the form of an unknown table from its first rows: the format, whether the first row is a header, and the
// columns of two roles, such as text and label.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/data_config.h"

namespace metaformer {

struct TableGuess {
  TableFormat format = TableFormat::automatic;  // automatic: the format of the file's name
  TableHeader header = TableHeader::automatic;
  std::string first, second;         // the fields of the two roles: names, or numbers counted from 1
  std::vector<std::string> columns;  // names of the columns or members; empty: there is no header
};

// Columns that the user names or numbers; the others are guessed.
struct GivenColumns {
  std::optional<std::string> first, second;
};

// `content`: the beginning of the file, unpacked, without byte order mark. A field of a role that is guessed from names
// has one of a few usual names (text, review, label, class, source, target, ...). Otherwise the text is the column with
// the longest texts, the label the one with the fewest distinct values that repeat, and the pair the first two columns
// of texts.
//
// An empty file, and a table of one column, give the default fields, which reading then refuses. Errors (exit code 3):
// JSON that is no JSON lines; no column that fits a role.
TableGuess guess_labelled_table(const std::filesystem::path& path, std::string_view content, const GivenColumns& given);
TableGuess guess_pair_table(const std::filesystem::path& path, std::string_view content, const GivenColumns& given);

// Whether the first line that is not blank is an object of JSON.
bool has_json_lines(std::string_view content);

// Errors (exit code 3): the first line that is not blank is no object of JSON; the message has a command that converts
// the file.
void require_json_lines(const std::filesystem::path& path, std::string_view content);

// The member of JSON lines that holds the text: `text`, or else the one with the longest strings. Errors (exit code 3):
// no member is a string.
std::string guess_text_member(const std::filesystem::path& path, std::string_view content);

}  // namespace metaformer
