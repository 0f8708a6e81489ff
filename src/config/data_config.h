#pragma once
// The data section of a config.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/schema.h"
#include "config/tokenizer_options.h"

namespace metaformer {

enum class TableFormat { automatic, csv, tsv, jsonl, text };
template <>
struct EnumNames<TableFormat> {
  static constexpr std::array<std::string_view, 5> values = {"auto", "csv", "tsv", "jsonl", "text"};
};

enum class TableHeader { automatic, present, absent };
template <>
struct EnumNames<TableHeader> {
  static constexpr std::array<std::string_view, 3> values = {"auto", "present", "absent"};
};

// The public corpora by name; data/sources/corpus.cpp says where each is found.
constexpr std::array<std::string_view, 2> corpus_names = {"tinyshakespeare", "imdb"};

// The array sorter (minGPT): lists of `length` numbers in 0 ... digits - 1.
struct SortConfig {
  std::int64_t length = 6;
  std::int64_t digits = 3;
};

template <class Visitor>
void visit(Visitor& field, SortConfig& c) {
  field("length", c.length, between(1, 4096), "numbers in a list; model.context must hold 2 length - 1");
  field("digits", c.digits, between(2, 65536), "numbers are 0 ... digits - 1");
}

// Ratings (stars) as classes: "negative" up to one number, "positive" from another; what lies between is left out.
struct RatingConfig {
  std::optional<double> positive_from;
  std::optional<double> negative_to;
  std::optional<double> lowest, highest;
};

template <class Visitor>
void visit(Visitor& field, RatingConfig& c) {
  field("positive_from", c.positive_from, Range{},
        "labels are numbers: 'positive' from this one on; null: labels are classes");
  field("negative_to", c.negative_to, Range{},
        "'negative' up to this one, ratings between the two are left out; null: all below positive_from");
  field("lowest", c.lowest, Range{}, "rows with a rating below this one are malformed; null: none is");
  field("highest", c.highest, Range{}, "rows with a rating above this one are malformed; null: none is");
}

// Which tokens of a text that is longer than model.context are kept.
enum class Truncation { head, tail, head_and_tail };
template <>
struct EnumNames<Truncation> {
  static constexpr std::array<std::string_view, 3> values = {"head", "tail", "head_and_tail"};
};

struct DataConfig {
  std::string corpus = "tinyshakespeare";
  std::optional<std::string> path;
  std::optional<std::string> validation_path;
  std::optional<std::string> test_path;
  double validation_fraction = 0.1;
  TableFormat format = TableFormat::automatic;
  TableHeader header = TableHeader::automatic;
  std::string text_field = "text";
  std::string label_field = "label";
  RatingConfig rating;
  double malformed_limit = 0;
  std::string document_separator = "\n";
  Truncation truncation = Truncation::head;
  bool cache = true;
  SortConfig sort;
  TokenizerOptions tokenizer = CharacterTokenizerOptions{};
};

template <class Visitor>
void visit(Visitor& field, DataConfig& c) {
  field("corpus", c.corpus, "a public corpus by name; see `metaformer data list`");
  field("path", c.path,
        "what to use instead of the named corpus, gzipped or not; language models: UTF-8 text, JSON lines, or a folder "
        "of "
        "such files; classification: a table (CSV, TSV, JSON lines)");
  field("validation_path", c.validation_path,
        "held out for validation, in place of validation_fraction: of the same formats as path");
  field("test_path", c.test_path, "classification: a table for --split test");
  field("validation_fraction", c.validation_fraction, Range{.low = 0, .high = 0.9, .low_open = true},
        "share held out for validation: the end of a text, or the rows that a hash of their text picks");
  field(
      "format", c.format,
      "csv knows quotes, tsv takes them as they are, jsonl: an object on every line, text (language models only): one "
      "document; auto: by name, else tsv for classification and text for language models");
  field("header", c.header, "whether a table's first row names its columns; auto: when it holds the fields' names");
  field(
      "text_field", c.text_field,
      "column of the text: its name in the header, or its number counted from 1; a member of JSON lines, for language "
      "models too");
  field("label_field", c.label_field,
        "column of the label: its name in the header, or its number counted from 1; a member of JSON lines");
  field("rating", c.rating, "classes from ratings");
  field("malformed_limit", c.malformed_limit, between(0, 1),
        "largest tolerated fraction of malformed rows of a table or lines of JSON");
  field("document_separator", c.document_separator,
        "language models: text between two documents of JSON lines, or of a folder of files");
  field("truncation", c.truncation, "which model.context tokens of a longer text classification sees");
  field("cache", c.cache, "tokens are kept between runs, under a hash of what they come from");
  field("sort", c.sort, "the lists of task sort");
  field("tokenizer", c.tokenizer, "how text becomes tokens; classification starts from word");
}

}  // namespace metaformer
