#pragma once
// The data section of a task that makes one text from another.

#include <variant>

#include "config/data_config.h"

namespace metaformer {

struct NoSyntheticPairs {
  static constexpr std::string_view kind = "none";
  static constexpr std::string_view summary = "texts, of data.path or the corpus";
};

struct SyntheticPairOptions {
  std::int64_t symbols = 10;
  std::int64_t length = 10;
};

// The Annotated Transformer's first example (Rush 2018).
struct CopiedPairs : SyntheticPairOptions {
  static constexpr std::string_view kind = "copy";
  static constexpr std::string_view summary = "the target is the source, random symbols";
};

struct ReversedPairs : SyntheticPairOptions {
  static constexpr std::string_view kind = "reversal";
  static constexpr std::string_view summary = "the target is the source from its end, random symbols";
};

using SyntheticPairs = std::variant<NoSyntheticPairs, CopiedPairs, ReversedPairs>;

// Nothing for `none`.
inline const SyntheticPairOptions* synthetic_options(const SyntheticPairs& pairs) {
  if (const auto* copied = std::get_if<CopiedPairs>(&pairs)) return copied;
  return std::get_if<ReversedPairs>(&pairs);
}

struct ParallelDataConfig : DataConfig {
  ParallelDataConfig() { tokenizer = BpeTokenizerOptions{}; }
  std::string source_language = "de", target_language = "en";
  std::optional<PathText> target_path, validation_target_path, test_path, test_target_path;
  TableHeader header = TableHeader::automatic;
  std::string source_field = "source", target_field = "target";
  SyntheticPairs synthetic;
};

template <class Visitor>
void visit(Visitor&, NoSyntheticPairs&) {}

template <class Visitor>
void visit(Visitor& field, SyntheticPairOptions& c) {
  field("symbols", c.symbols, between(2, 65536), "different ones; the sources are random");
  field("length", c.length, between(1, 32768), "symbols of a source");
}

template <class Visitor>
void visit(Visitor& field, ParallelDataConfig& c) {
  visit_corpus(
      field, c,
      "what to use instead of the named corpus, gzipped or not: the lines of the sources (with target_path), or "
      "a table of sources and targets (TSV, CSV, JSON lines)");
  field("source_language", c.source_language, "of the corpus: what is read");
  field("target_language", c.target_language, "of the corpus: what is written");
  field("target_path", c.target_path,
        "the lines that belong to those of path, in the same order; null: path is a table");
  field("validation_target_path", c.validation_target_path, "the lines that belong to those of validation_path");
  field("test_path", c.test_path, "sources, or a table, for --split test");
  field("test_target_path", c.test_target_path, "the lines that belong to those of test_path");
  field("validation_fraction", c.validation_fraction, Range{.low = 0, .high = 0.9, .low_open = true},
        "fraction held out for validation: the pairs that a hash of their source picks");
  field("format", c.format,
        "of tables: csv knows quotes, tsv takes them as they are, jsonl: an object on every line; auto: by name, else "
        "tsv");
  field("header", c.header, "whether a table's first row names its columns; auto: when it holds the fields' names");
  field("source_field", c.source_field,
        "column of the source: its name in the header, or its number counted from 1; a member of JSON lines");
  field("target_field", c.target_field,
        "column of the target: its name in the header, or its number counted from 1; a member of JSON lines");
  field("malformed_limit", c.malformed_limit, between(0, 1),
        "largest tolerated fraction of malformed rows of a table or lines of JSON");
  field("synthetic", c.synthetic, "pairs that the program makes, in the place of texts");
  field("cache", c.cache, "the tokenizer is kept between runs, under a hash of what it comes from");
  field("tokenizer", c.tokenizer, "how text becomes tokens, the same on both sides");
}

}  // namespace metaformer
