#pragma once
// The data section of a config: corpora, tokenizers, packing.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

// What a config can say about the tokenizer: one struct per kind. data/ makes the tokenizer from it.

// What becomes of the white space between words. A language model needs it kept, to predict and to write.
enum class Whitespace { dropped, kept };
constexpr std::array<std::string_view, 2> enum_names(Whitespace) { return {"dropped", "kept"}; }

constexpr const char* whitespace_help =
    "dropped: it only separates words; kept: decoding gives it back, as a language model needs; default: kept for task "
    "language_model, else dropped";

// The characters that may join words: ASCII, printed, neither letters nor digits.
constexpr bool is_joiner(char c) {
  return c > ' ' && c < '\x7f' && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z');
}

struct CharacterTokenizerOptions {
  static constexpr std::string_view kind = "character";
  static constexpr std::string_view summary = "one token per character (code point) of the corpus";
};

struct ByteTokenizerOptions {
  static constexpr std::string_view kind = "byte";
  static constexpr std::string_view summary = "one token per byte, 256 in all";
};

struct WordTokenizerOptions {
  static constexpr std::string_view kind = "word";
  static constexpr std::string_view summary = "one token per word or punctuation mark";
  std::int64_t vocabulary = 30000;
  std::int64_t min_count = 2;
  bool lowercase = true;
  FreeText joiners = "'";
  Whitespace whitespace = Whitespace::dropped;
};

struct UnigramTokenizerOptions {
  static constexpr std::string_view kind = "unigram";
  static constexpr std::string_view summary = "sentencepiece's unigram model of subwords (Kudo 2018)";
  std::int64_t vocabulary = 8000;
  double character_coverage = 0.9995;
  bool lowercase = false;
  Whitespace whitespace = Whitespace::dropped;
  double sampling = 0;
};

struct BpeTokenizerOptions {
  static constexpr std::string_view kind = "bpe";
  static constexpr std::string_view summary = "sentencepiece's byte-pair encoding (Sennrich et al. 2016)";
  std::int64_t vocabulary = 8000;
  double character_coverage = 0.9995;
  bool lowercase = false;
  Whitespace whitespace = Whitespace::dropped;
};

struct PretrainedTokenizerOptions {
  static constexpr std::string_view kind = "pretrained";
  static constexpr std::string_view summary =
      "a tokenizer from elsewhere: byte-level BPE or sentencepiece's, from files";
  PathText path;
};

using TokenizerOptions = std::variant<CharacterTokenizerOptions, ByteTokenizerOptions, WordTokenizerOptions,
                                      UnigramTokenizerOptions, BpeTokenizerOptions, PretrainedTokenizerOptions>;

// Whether texts lose the white space between words.
inline bool drops_whitespace(const TokenizerOptions& options) {
  return std::visit(
      [](const auto& kind) {
        if constexpr (requires { kind.whitespace; }) return kind.whitespace == Whitespace::dropped;
        return false;
      },
      options);
}

// Whether a token may be a part of a word (Tokenizer::begins_word). To these tokenizers each token is a word.
inline bool cuts_words(const TokenizerOptions& options) {
  return !std::holds_alternative<CharacterTokenizerOptions>(options) &&
         !std::holds_alternative<ByteTokenizerOptions>(options) &&
         !std::holds_alternative<WordTokenizerOptions>(options);
}

template <class Visitor>
void visit(Visitor& field, WordTokenizerOptions& o) {
  field("vocabulary", o.vocabulary, between(2, 1 << 24), "most frequent words kept, the unknown word included");
  field("min_count", o.min_count, between(1, 1 << 30), "rarer words of the training texts become the unknown word");
  field("lowercase", o.lowercase, "letters in lower case (Unicode)");
  field("joiners", o.joiners,
        "characters that do not split a word if there is only one of them between letters or digits: ' keeps don't, / "
        "keeps 8/10");
  field("whitespace", o.whitespace, whitespace_help);
}

template <class Visitor, class Options>
void visit_sentencepiece(Visitor& field, Options& o) {
  field("vocabulary", o.vocabulary, between(16, 1 << 20), "pieces, the unknown one included");
  field("character_coverage", o.character_coverage, between(0.9, 1),
        "fraction of the characters of the training texts that the pieces must cover");
  field("lowercase", o.lowercase, "letters folded to lower case (Unicode)");
  field("whitespace", o.whitespace, whitespace_help);
}

template <class Visitor>
void visit(Visitor& field, UnigramTokenizerOptions& o) {
  visit_sentencepiece(field, o);
  field("sampling", o.sampling, between(0, 10),
        "subword regularisation: classification cuts its training texts anew every epoch, with probabilities to this "
        "power; 0: never");
}

template <class Visitor>
void visit(Visitor& field, BpeTokenizerOptions& o) {
  visit_sentencepiece(field, o);
}

template <class Visitor>
void visit(Visitor& field, PretrainedTokenizerOptions& o) {
  field("path", o.path,
        "folder as Hugging Face writes it, with tokenizer.json, vocab.json and merges.txt, or tokenizer.model; or one "
        "of these files");
}

// The packing section of a config's data: several sequences in one row of a batch.
struct NoPackingConfig {
  static constexpr std::string_view kind = "none";
  static constexpr std::string_view summary =
      "a classifier's row is a text and padding; a language model's row is a window of the text";
};

// Of every kind of packing.
struct PackingOptions {
  std::int64_t depth = 3;
  bool separate = true;
};

struct ShortestFirstPackingConfig : PackingOptions {
  static constexpr std::string_view kind = "spfhp";
  static constexpr std::string_view summary =
      "shortest-pack-first: the longest text goes into the pack with the most room (Krell et al. 2021)";
};

struct LeastSquaresPackingConfig : PackingOptions {
  static constexpr std::string_view kind = "nnlshp";
  static constexpr std::string_view summary =
      "non-negative least squares over all ways to fill a row: less padding at a small depth (Krell et al. 2021)";
};

using PackingConfig = std::variant<NoPackingConfig, ShortestFirstPackingConfig, LeastSquaresPackingConfig>;

// Nothing for `none`.
inline const PackingOptions* packing_options(const PackingConfig& config) {
  if (const auto* shortest = std::get_if<ShortestFirstPackingConfig>(&config)) return shortest;
  return std::get_if<LeastSquaresPackingConfig>(&config);
}

constexpr const char* separate_help =
    "a token sees nothing of other texts in its row, and positions start again in each; false: only for "
    "language models";

template <class Visitor>
void visit(Visitor& field, ShortestFirstPackingConfig& c) {
  field("depth", c.depth, between(0, 1 << 20), "most texts in a row; 1: rows with a text and padding; 0: any number");
  field("separate", c.separate, separate_help);
}

template <class Visitor>
void visit(Visitor& field, LeastSquaresPackingConfig& c) {
  field("depth", c.depth, between(1, 3), "most texts in a row: 1, 2 or 3");
  field("separate", c.separate, separate_help);
}

// The data section of a config. Each task that reads texts has one; both share DataConfig.
enum class TableFormat { automatic, csv, tsv, jsonl, text };
constexpr std::array<std::string_view, 5> enum_names(TableFormat) { return {"auto", "csv", "tsv", "jsonl", "text"}; }

enum class TableHeader { automatic, present, absent };
constexpr std::array<std::string_view, 3> enum_names(TableHeader) { return {"auto", "present", "absent"}; }

// The public corpora by name; data/corpus.cpp says where each is found.
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

// The task section of a classifier.
enum class ClassWeights { none, balanced };
constexpr std::array<std::string_view, 2> enum_names(ClassWeights) { return {"none", "balanced"}; }

// The metric of the validation split that chooses the best checkpoint.
enum class SelectionMetric { accuracy, loss, auc };
constexpr std::array<std::string_view, 3> enum_names(SelectionMetric) { return {"accuracy", "loss", "auc"}; }

// Which tokens of a text that is longer than model.context are kept.
enum class Truncation { head, tail, head_and_tail };
constexpr std::array<std::string_view, 3> enum_names(Truncation) { return {"head", "tail", "head_and_tail"}; }

struct HeadOptions {
  bool recalibrate = false;
};

struct MeanPooledHeadConfig : HeadOptions {
  static constexpr std::string_view kind = "mean_pooled";
  static constexpr std::string_view summary = "a norm and the logits of the mean over the tokens";
};

struct PerTokenMeanHeadConfig : HeadOptions {
  static constexpr std::string_view kind = "per_token_mean";
  static constexpr std::string_view summary = "the mean of the tokens' logits";
};

struct FirstTokenHeadConfig : HeadOptions {
  static constexpr std::string_view kind = "first_token";
  static constexpr std::string_view summary = "the logits of a class token in front of the text";
};

struct NoBagConfig {
  static constexpr std::string_view kind = "none";
  static constexpr std::string_view summary = "only the features of the last block";
};

struct NaiveBayesBagConfig {
  static constexpr std::string_view kind = "naive_bayes";
  static constexpr std::string_view summary =
      "a hidden layer over the n-grams that the text has, in any order, scaled by naive Bayes' log-count ratios "
      "(Johnson and Zhang 2015)";
  std::int64_t ngrams = 3;
  std::int64_t buckets = std::int64_t{1} << 21;
  std::int64_t units = 20;
};

using BagConfig = std::variant<NoBagConfig, NaiveBayesBagConfig>;

struct MaxPooledHeadConfig : HeadOptions {
  static constexpr std::string_view kind = "max_pooled";
  static constexpr std::string_view summary = "the logits of each feature's largest value among the tokens";
  double dropout = 0;
  bool response_norm = false;
  BagConfig bag;
};

using HeadConfig =
    std::variant<MeanPooledHeadConfig, PerTokenMeanHeadConfig, FirstTokenHeadConfig, MaxPooledHeadConfig>;

inline bool recalibrates(const HeadConfig& head) {
  return std::visit([](const auto& options) { return options.recalibrate; }, head);
}

struct ClassificationConfig {
  static constexpr std::string_view kind = "classification";
  static constexpr std::string_view summary = "the class of a text";
  double label_smoothing = 0;
  ClassWeights class_weights = ClassWeights::none;
  double token_removal = 0;
  double token_unknown = 0;
  std::int64_t bucketing = 1;
  Truncation truncation = Truncation::head;
  HeadConfig head;
  SelectionMetric selection_metric = SelectionMetric::accuracy;
  bool baselines = true;
  LabelledDataConfig data;  // the top-level section `data`
};

template <class Visitor>
void visit(Visitor& field, HeadOptions& o) {
  field("recalibrate", o.recalibrate,
        "before each evaluation, shift the logits to the values that minimise the training loss without noise and "
        "dropout");
}

template <class Visitor>
void visit(Visitor& field, NaiveBayesBagConfig& c) {
  field("ngrams", c.ngrams, between(1, 5), "longest sequence of tokens in the bag");
  field("buckets", c.buckets, between(1, 1 << 26), "rows of the table that n-grams are hashed to");
  field("units", c.units, between(1, 65536), "hidden units, with ReLU");
}

template <class Visitor>
void visit(Visitor& field, MaxPooledHeadConfig& o) {
  visit(field, static_cast<HeadOptions&>(o));
  field("dropout", o.dropout, from_to_below(0, 1), "on what the logits are computed from");
  field("response_norm", o.response_norm,
        "a text's features x of each region size, and of the bag, become x / sqrt(1 + |x|^2)");
  field("bag", o.bag, "what stands beside the pooled features");
}

// nullptr: none.
inline const NaiveBayesBagConfig* bag_options(const HeadConfig& head) {
  const auto* pooled = std::get_if<MaxPooledHeadConfig>(&head);
  return pooled != nullptr ? std::get_if<NaiveBayesBagConfig>(&pooled->bag) : nullptr;
}

template <class Visitor>
void visit(Visitor& field, ClassificationConfig& c) {
  field("label_smoothing", c.label_smoothing, from_to_below(0, 1), "probability mass spread evenly over all classes");
  field("class_weights", c.class_weights, "balanced: a text's weight is 1 / the frequency of its class");
  field("token_removal", c.token_removal, from_to_below(0, 1),
        "probability that a token of a training text is left out, drawn again every epoch");
  field("token_unknown", c.token_unknown, from_to_below(0, 1),
        "probability that a token of a training text becomes the unknown token");
  field("bucketing", c.bucketing, between(1, 1 << 20),
        "steps whose texts are sorted by length together, so that there is less padding; 1: none are");
  field("truncation", c.truncation, "which model.context tokens of a longer text are kept");
  field("head", c.head, "how the classes are read from the last block");
  field(
      "selection_metric", c.selection_metric,
      "the metric of the validation split that chooses the best checkpoint; auc and loss are less noisy than accuracy "
      "where the split is small");
  field("baselines", c.baselines,
        "report the accuracy of always answering the most frequent class, and of a linear model over n-grams");
}

// The data section of a task that makes one text from another.
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
