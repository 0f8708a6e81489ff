#pragma once
// The data section of a config. Each task that reads texts has one; both share DataConfig.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/packing_config.h"
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
constexpr std::array<std::string_view, 3> corpus_names = {"tinyshakespeare", "imdb", "multi30k"};

// What both tasks say of their texts.
struct DataConfig {
  std::string corpus = "tinyshakespeare";
  std::optional<PathText> path;
  std::optional<PathText> validation_path;
  double validation_fraction = 0.1;
  TableFormat format = TableFormat::automatic;
  std::string text_field = "text";
  double malformed_limit = 0;
  PackingConfig packing;
  bool cache = true;
  TokenizerOptions tokenizer = CharacterTokenizerOptions{};
};

// Of a language model.
struct TextDataConfig : DataConfig {
  bool separate_documents = false;
};

// Ratings (stars) as classes: "negative" up to one number, "positive" from another; what lies between is left out.
struct RatingConfig {
  std::optional<double> positive_from;
  std::optional<double> negative_to;
  std::optional<double> lowest, highest;
};

// Of a classifier.
struct LabelledDataConfig : DataConfig {
  LabelledDataConfig() { tokenizer = WordTokenizerOptions{}; }
  std::optional<PathText> test_path;
  std::optional<PathText> extra_path;
  TableHeader header = TableHeader::automatic;
  std::string label_field = "label";
  RatingConfig rating;
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

template <class Visitor>
void visit_corpus(Visitor& field, DataConfig& c, const char* path_help) {
  field("corpus", c.corpus, "a public corpus by name; see `metaformer data list`");
  field("path", c.path, path_help);
  field("validation_path", c.validation_path,
        "held out for validation, in place of validation_fraction: of the same formats as path");
}

template <class Visitor>
void visit(Visitor& field, TextDataConfig& c) {
  visit_corpus(field, c,
               "what to use instead of the named corpus: UTF-8 text, JSON lines, or a folder of such files, gzipped or "
               "not");
  field("validation_fraction", c.validation_fraction, Range{.low = 0, .high = 0.9, .low_open = true},
        "fraction held out for validation: the end of the text");
  field("format", c.format, "text: one document; jsonl: an object on every line; auto: by name, else text");
  field("text_field", c.text_field, "member of JSON lines that holds the text");
  field("malformed_limit", c.malformed_limit, between(0, 1), "largest tolerated fraction of malformed JSON lines");
  field("separate_documents", c.separate_documents, "a token sees nothing of other documents than its own");
  field("packing", c.packing, "how several texts share a row of a training batch");
  field("cache", c.cache, "tokens are kept between runs, under a hash of what they come from");
  field("tokenizer", c.tokenizer, "how text becomes tokens");
}

template <class Visitor>
void visit(Visitor& field, LabelledDataConfig& c) {
  visit_corpus(field, c, "a table to use instead of the named corpus (CSV, TSV, JSON lines), gzipped or not");
  field("test_path", c.test_path, "a table for --split test");
  field("extra_path", c.extra_path,
        "a table of further texts to train on, beside path or the corpus, such as those that a model has labelled; "
        "{seed} in it stands for train.seed");
  field("validation_fraction", c.validation_fraction, Range{.low = 0, .high = 0.9, .low_open = true},
        "fraction held out for validation: the rows that a hash of their text picks");
  field("format", c.format,
        "csv knows quotes, tsv takes them as they are, jsonl: an object on every line; auto: by name, else tsv");
  field("header", c.header, "whether a table's first row names its columns; auto: when it holds the fields' names");
  field("text_field", c.text_field,
        "column of the text: its name in the header, or its number counted from 1; a member of JSON lines");
  field("label_field", c.label_field,
        "column of the label: its name in the header, or its number counted from 1; a member of JSON lines");
  field("rating", c.rating, "classes from ratings");
  field("malformed_limit", c.malformed_limit, between(0, 1),
        "largest tolerated fraction of malformed rows of a table or lines of JSON");
  field("packing", c.packing, "how several texts share a row of a training batch");
  field("cache", c.cache, "tokens are kept between runs, under a hash of what they come from");
  field("tokenizer", c.tokenizer, "how text becomes tokens");
}

}  // namespace metaformer
