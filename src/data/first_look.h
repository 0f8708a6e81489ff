#pragma once
// A first look at a user's data: format, size, columns, classes, lengths, characters. `metaformer init` chooses a
// config by it.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/data_config.h"
#include "data/column_guess.h"
#include "data/statistics.h"
#include "text/character_statistics.h"

namespace metaformer {

// Of larger data only about this much is read, and the size of the whole is estimated.
constexpr std::uintmax_t first_look_bytes = std::uintmax_t{64} << 20;

// The part of the data that was read, and a sentence for each thing that the user should know.
struct FirstLook {
  std::string name;  // of the file or folder
  bool is_whole = true;
  CharacterStatistics characters;
  std::vector<std::string> warnings;
};

struct TextLook : FirstLook {
  TextDataConfig data;  // the keys that differ from the defaults: path, format, text_field, malformed_limit
  double bytes = 0, all_characters = 0, documents = 0;  // of the whole text
  bool is_one_text = true;                              // one file of plain text
  bool has_json_lines = false;
  bool is_utf8 = true;     // false: `characters` does not count
  std::string first_word;  // of letters and digits; "" if there is none
};

// Lengths of texts.
struct TextLengths {
  LengthStats words;  // with punctuation marks, as the tokenizer `word` counts
  LengthStats characters;
};

struct TableLook : FirstLook {
  LabelledDataConfig data;
  std::vector<std::string> columns;                           // names; empty: no header
  double rows = 0;                                            // of the whole table
  std::vector<std::pair<std::string, std::int64_t>> classes;  // rows that were read; the largest class first
  TextLengths lengths;
  std::int64_t words = 0, repeated_words = 0;  // distinct words, in lower case, and those that occur again
  std::int64_t copies = 0;                     // texts that occur earlier in the table
  std::int64_t contradictions = 0;             // those of them with another label
  std::optional<RatingConfig> rating;          // for labels that may be ratings: two classes
  bool is_named_rating = false;                // the column is called `rating`, `stars` or the like
};

struct PairsLook : FirstLook {
  ParallelDataConfig data;
  std::vector<std::string> columns;
  double pairs = 0;
  TextLengths source, target;
  std::int64_t copies = 0;  // sources that occur earlier
};

// A file or folder of texts. `member`: of JSON lines; otherwise guessed.
//
// Errors: those of read_texts; tokens in place of texts, no member with texts (exit code 3); a pipe, `member` for plain
// text (exit code 2).
TextLook look_at_text(const std::filesystem::path& path, const std::optional<std::string>& member,
                      std::uintmax_t most_bytes = first_look_bytes);

// Errors (exit code 3): those of read_table and guess_labelled_table; more than a twentieth of the rows is malformed;
// one class; labels that are nearly all distinct, or numbers with a fraction; too few rows for a validation split.
TableLook look_at_table(const std::filesystem::path& path, const GivenColumns& given,
                        std::uintmax_t most_bytes = first_look_bytes);

// A table of pairs, or two files of lines. Errors: those of read_table, guess_pair_table and read_line_pairs; too few
// pairs (exit code 3); columns of two files (exit code 2).
PairsLook look_at_pairs(const std::filesystem::path& path, const std::optional<std::filesystem::path>& targets,
                        const GivenColumns& given, std::uintmax_t most_bytes = first_look_bytes);

// One line for each fact.
std::vector<std::string> describe(const TextLook& look);
std::vector<std::string> describe(const TableLook& look);
std::vector<std::string> describe(const PairsLook& look);

nlohmann::ordered_json to_json(const TextLook& look);
nlohmann::ordered_json to_json(const TableLook& look);
nlohmann::ordered_json to_json(const PairsLook& look);

}  // namespace metaformer
