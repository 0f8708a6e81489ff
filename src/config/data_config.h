#pragma once
// The data section of a config: corpora, tokenizers, packing.

#include "config/schema.h"

namespace metaformer {

// Options of tokenizers: one struct per kind. text/ makes the tokenizer from them.

// Whether white space between words becomes tokens. A language model needs it, to predict and write it.
enum class Whitespace { dropped, kept };
constexpr std::array<std::string_view, 2> enum_names(Whitespace) { return {"dropped", "kept"}; }

constexpr const char* whitespace_help =
    "dropped: it only separates words; kept: decoding gives it back, as a language model needs; default: kept for task "
    "language_model, else dropped";

// The characters that may join words: ASCII, printed, neither letters nor digits.
constexpr bool is_joiner(char c) {
  return c > ' ' && c < '\x7f' && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z');
}

struct CharacterTokenizerOptions : Named<"character", "one token per character (code point) of the corpus"> {};
struct ByteTokenizerOptions : Named<"byte", "one token per byte, 256 in all"> {};

struct WordTokenizerOptions : Named<"word", "one token per word or punctuation mark"> {
  std::int64_t vocabulary = 30000, min_count = 2;
  bool lowercase = true;
  FreeText joiners = "'";
  Whitespace whitespace = Whitespace::dropped;

  void visit(auto& field) {
    field("vocabulary", vocabulary, between(2, 1 << 24), "most frequent words kept, the unknown word included");
    field("min_count", min_count, between(1, 1 << 30), "rarer words of the training texts become the unknown word");
    field("lowercase", lowercase, "letters in lower case (Unicode)");
    field("joiners", joiners,
          "characters that do not split a word if there is only one of them between letters or digits: ' keeps don't, "
          "/ keeps 8/10");
    field("whitespace", whitespace, whitespace_help);
  }
};

void visit_sentencepiece(auto& field, auto& o) {
  field("vocabulary", o.vocabulary, between(16, 1 << 20), "pieces, the unknown one included");
  field("character_coverage", o.character_coverage, between(0.9, 1),
        "fraction of the characters of the training texts that the pieces must cover");
  field("lowercase", o.lowercase, "letters folded to lower case (Unicode)");
  field("whitespace", o.whitespace, whitespace_help);
}

struct UnigramTokenizerOptions : Named<"unigram", "sentencepiece's unigram model of subwords (Kudo 2018)"> {
  std::int64_t vocabulary = 8000;
  double character_coverage = 0.9995;
  bool lowercase = false;
  Whitespace whitespace = Whitespace::dropped;
  double sampling = 0;

  void visit(auto& field) {
    visit_sentencepiece(field, *this);
    field("sampling", sampling, between(0, 10),
          "subword regularisation: classification cuts its training texts anew every epoch, with probabilities to this "
          "power; 0: never");
  }
};

struct BpeTokenizerOptions : Named<"bpe", "sentencepiece's byte-pair encoding (Sennrich et al. 2016)"> {
  std::int64_t vocabulary = 8000;
  double character_coverage = 0.9995;
  bool lowercase = false;
  Whitespace whitespace = Whitespace::dropped;

  void visit(auto& field) { visit_sentencepiece(field, *this); }
};

struct PretrainedTokenizerOptions
    : Named<"pretrained", "a tokenizer from elsewhere: byte-level BPE or sentencepiece's, from files"> {
  PathText path;

  void visit(auto& field) {
    field("path", path,
          "folder as Hugging Face writes it, with tokenizer.json, vocab.json and merges.txt, or tokenizer.model; or "
          "one of these files");
  }
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

// Whether a token may be a part of a word (Tokenizer::begins_word). For the other tokenizers each token is a word.
inline bool cuts_words(const TokenizerOptions& options) {
  return is<UnigramTokenizerOptions>(options) || is<BpeTokenizerOptions>(options) ||
         is<PretrainedTokenizerOptions>(options);
}

// The packing section of a config's data: several sequences in one row of a batch.
struct NoPackingConfig
    : Named<"none", "a classifier's row is a text and padding; a language model's row is a window of the text"> {};

struct PackingOptions {
  std::int64_t depth = 3;
  bool separate = true;
};

template <Literal name, Literal about, int fewest, int most, Literal depth_help>
struct PackingBy : PackingOptions, Named<name, about> {
  void visit(auto& field) {
    field("depth", depth, between(fewest, most), depth_help.text);
    field("separate", separate,
          "a token sees nothing of other texts in its row, and positions start again in each; false: only for language "
          "models");
  }
};

using ShortestFirstPackingConfig =
    PackingBy<"spfhp",
              "shortest-pack-first: the longest text goes into the pack with the most room (Krell et al. 2021)", 0,
              1 << 20, "most texts in a row; 1: rows with a text and padding; 0: any number">;
using LeastSquaresPackingConfig =
    PackingBy<"nnlshp",
              "non-negative least squares over all ways to fill a row: less padding at a small depth (Krell et al. "
              "2021)",
              1, 3, "most texts in a row: 1, 2 or 3">;

using PackingConfig = std::variant<NoPackingConfig, ShortestFirstPackingConfig, LeastSquaresPackingConfig>;

// nullptr for `none`.
inline const PackingOptions* packing_options(const PackingConfig& config) { return options_as<PackingOptions>(config); }

// The data section of a config. Each kind of task that reads texts has its own; all share DataConfig.
enum class TableFormat { automatic, csv, tsv, jsonl, text };
constexpr std::array<std::string_view, 5> enum_names(TableFormat) { return {"auto", "csv", "tsv", "jsonl", "text"}; }

enum class TableHeader { automatic, present, absent };
constexpr std::array<std::string_view, 3> enum_names(TableHeader) { return {"auto", "present", "absent"}; }

// The public corpora by name; data/corpus.cpp says where each is found.
constexpr std::array<std::string_view, 3> corpus_names = {"tinyshakespeare", "imdb", "multi30k"};

// The keys that all tasks of texts share.
struct DataConfig {
  std::string corpus = "tinyshakespeare";
  std::optional<PathText> path, validation_path;
  double validation_fraction = 0.1;
  TableFormat format = TableFormat::automatic;
  std::string text_field = "text";
  double malformed_limit = 0;
  PackingConfig packing;
  bool cache = true;
  TokenizerOptions tokenizer = CharacterTokenizerOptions{};

  void visit_corpus(auto& field, const char* path_help) {
    field("corpus", corpus, "a public corpus by name; see `metaformer data list`");
    field("path", path, path_help);
    field("validation_path", validation_path,
          "held out for validation, in place of validation_fraction: of the same formats as path");
  }
  void visit_fraction(auto& field, const char* help) {
    field("validation_fraction", validation_fraction, above(0, 0.9), help);
  }
  void visit_header(auto& field, TableHeader& header) {
    field("header", header, "whether a table's first row names its columns; auto: when it holds the fields' names");
  }
  void visit_malformed(auto& field) {
    field("malformed_limit", malformed_limit, between(0, 1),
          "largest tolerated fraction of malformed rows of a table or lines of JSON");
  }
  void visit_tokens(auto& field) {
    field("packing", packing, "how several texts share a row of a training batch");
    field("cache", cache, "tokens are kept between runs, under a hash of what they come from");
    field("tokenizer", tokenizer, "how text becomes tokens");
  }
};

// The data of a language model.
struct TextDataConfig : DataConfig {
  bool separate_documents = false;

  void visit(auto& field) {
    visit_corpus(
        field,
        "what to use instead of the named corpus: UTF-8 text, JSON lines, or a folder of such files, gzipped or not");
    visit_fraction(field, "fraction held out for validation: the end of the text");
    field("format", format, "text: one document; jsonl: an object on every line; auto: by name, else text");
    field("text_field", text_field, "member of JSON lines that holds the text");
    field("malformed_limit", malformed_limit, between(0, 1), "largest tolerated fraction of malformed JSON lines");
    field("separate_documents", separate_documents, "a token sees nothing of other documents than its own");
    visit_tokens(field);
  }
};

// Ratings (stars) as classes: "negative" up to one number, "positive" from another; ratings between them are left out.
struct RatingConfig {
  std::optional<double> positive_from, negative_to, lowest, highest;

  void visit(auto& field) {
    field("positive_from", positive_from, Range{},
          "labels are numbers: 'positive' from this one on; null: labels are classes");
    field("negative_to", negative_to, Range{},
          "'negative' up to this one, ratings between the two are left out; null: all below positive_from");
    field("lowest", lowest, Range{}, "rows with a rating below this one are malformed; null: none is");
    field("highest", highest, Range{}, "rows with a rating above this one are malformed; null: none is");
  }
};

// The data of a classifier.
struct LabelledDataConfig : DataConfig {
  LabelledDataConfig() { tokenizer = WordTokenizerOptions{}; }
  std::optional<PathText> test_path, extra_path;
  TableHeader header = TableHeader::automatic;
  std::string label_field = "label";
  RatingConfig rating;

  void visit(auto& field) {
    visit_corpus(field, "a table to use instead of the named corpus (CSV, TSV, JSON lines), gzipped or not");
    field("test_path", test_path, "a table for --split test");
    field("extra_path", extra_path,
          "a table of further texts to train on, beside path or the corpus, such as those that a model has labelled; "
          "{seed} in it stands for train.seed");
    visit_fraction(field, "fraction held out for validation: the rows that a hash of their text picks");
    field("format", format,
          "csv knows quotes, tsv takes them as they are, jsonl: an object on every line; auto: by name, else tsv");
    visit_header(field, header);
    field("text_field", text_field,
          "column of the text: its name in the header, or its number counted from 1; a member of JSON lines");
    field("label_field", label_field,
          "column of the label: its name in the header, or its number counted from 1; a member of JSON lines");
    field("rating", rating, "classes from ratings");
    visit_malformed(field);
    visit_tokens(field);
  }
};

// The task section of a classifier.
enum class ClassWeights { none, balanced };
constexpr std::array<std::string_view, 2> enum_names(ClassWeights) { return {"none", "balanced"}; }

// The measure of the validation split that chooses the best checkpoint.
enum class SelectionMetric { accuracy, loss, auc };
constexpr std::array<std::string_view, 3> enum_names(SelectionMetric) { return {"accuracy", "loss", "auc"}; }

// Which tokens of a text that is longer than model.context are kept.
enum class Truncation { head, tail, head_and_tail };
constexpr std::array<std::string_view, 3> enum_names(Truncation) { return {"head", "tail", "head_and_tail"}; }

struct HeadOptions {
  bool recalibrate = false;

  void visit(auto& field) {
    field("recalibrate", recalibrate,
          "before each evaluation, shift the logits to the values that minimise the training loss without noise and "
          "dropout");
  }
};

struct MeanPooledHeadConfig : HeadOptions, Named<"mean_pooled", "a norm and the logits of the mean over the tokens"> {};
struct PerTokenMeanHeadConfig : HeadOptions, Named<"per_token_mean", "the mean of the tokens' logits"> {};
struct FirstTokenHeadConfig : HeadOptions, Named<"first_token", "the logits of a class token in front of the text"> {};
struct NoBagConfig : Named<"none", "only the features of the last block"> {};

struct NaiveBayesBagConfig : Named<"naive_bayes",
                                   "a hidden layer over the n-grams that the text has, in any order, scaled by naive "
                                   "Bayes' log-count ratios (Johnson and Zhang 2015)"> {
  std::int64_t ngrams = 3, buckets = std::int64_t{1} << 21, units = 20;

  void visit(auto& field) {
    field("ngrams", ngrams, between(1, 5), "longest sequence of tokens in the bag");
    field("buckets", buckets, between(1, 1 << 26), "rows of the table that n-grams are hashed to");
    field("units", units, between(1, 65536), "hidden units, with ReLU");
  }
};

using BagConfig = std::variant<NoBagConfig, NaiveBayesBagConfig>;

struct MaxPooledHeadConfig : HeadOptions,
                             Named<"max_pooled", "the logits of each feature's largest value among the tokens"> {
  double dropout = 0;
  bool response_norm = false;
  BagConfig bag;

  void visit(auto& field) {
    HeadOptions::visit(field);
    field("dropout", dropout, from_to_below(0, 1), "on what the logits are computed from");
    field("response_norm", response_norm,
          "a text's features x of each region size, and of the bag, become x / sqrt(1 + |x|^2)");
    field("bag", bag, "what stands beside the pooled features");
  }
};

using HeadConfig =
    std::variant<MeanPooledHeadConfig, PerTokenMeanHeadConfig, FirstTokenHeadConfig, MaxPooledHeadConfig>;

inline bool recalibrates(const HeadConfig& head) {
  return std::visit([](const auto& options) { return options.recalibrate; }, head);
}

struct ClassificationConfig : Named<"classification", "the class of a text"> {
  double label_smoothing = 0;
  ClassWeights class_weights = ClassWeights::none;
  double token_removal = 0, token_unknown = 0;
  std::int64_t bucketing = 1;
  Truncation truncation = Truncation::head;
  HeadConfig head;
  SelectionMetric selection_metric = SelectionMetric::accuracy;
  bool baselines = true;
  LabelledDataConfig data;  // the top-level section `data`

  void visit(auto& field) {
    field("label_smoothing", label_smoothing, from_to_below(0, 1), "probability mass spread evenly over all classes");
    field("class_weights", class_weights, "balanced: a text's weight is 1 / the frequency of its class");
    field("token_removal", token_removal, from_to_below(0, 1),
          "probability that a token of a training text is left out, drawn again every epoch");
    field("token_unknown", token_unknown, from_to_below(0, 1),
          "probability that a token of a training text becomes the unknown token");
    field("bucketing", bucketing, between(1, 1 << 20),
          "steps whose texts are sorted by length together, so that there is less padding; 1: none are");
    field("truncation", truncation, "which model.context tokens of a longer text are kept");
    field("head", head, "how the classes are read from the last block");
    field("selection_metric", selection_metric,
          "the metric of the validation split that chooses the best checkpoint; auc and loss are less noisy than "
          "accuracy where the split is small");
    field("baselines", baselines,
          "report the accuracy of always answering the most frequent class, and of a linear model over n-grams");
  }
};

// nullptr if the head has no bag.
inline const NaiveBayesBagConfig* bag_options(const HeadConfig& head) {
  const auto* pooled = std::get_if<MaxPooledHeadConfig>(&head);
  return pooled != nullptr ? std::get_if<NaiveBayesBagConfig>(&pooled->bag) : nullptr;
}

// The data section of a task that makes one text from another.
struct NoSyntheticPairs : Named<"none", "texts, of data.path or the corpus"> {};

struct SyntheticPairOptions {
  std::int64_t symbols = 10, length = 10;

  void visit(auto& field) {
    field("symbols", symbols, between(2, 65536), "different ones; the sources are random");
    field("length", length, between(1, 32768), "symbols of a source");
  }
};

// The Annotated Transformer's first example (Rush 2018).
struct CopiedPairs : SyntheticPairOptions, Named<"copy", "the target is the source, random symbols"> {};

struct ReversedPairs : SyntheticPairOptions,
                       Named<"reversal", "the target is the source from its end, random symbols"> {};

using SyntheticPairs = std::variant<NoSyntheticPairs, CopiedPairs, ReversedPairs>;

// nullptr for `none`.
inline const SyntheticPairOptions* synthetic_options(const SyntheticPairs& pairs) {
  return options_as<SyntheticPairOptions>(pairs);
}

struct ParallelDataConfig : DataConfig {
  ParallelDataConfig() { tokenizer = BpeTokenizerOptions{}; }
  std::string source_language = "de", target_language = "en";
  std::optional<PathText> target_path, validation_target_path, test_path, test_target_path;
  TableHeader header = TableHeader::automatic;
  std::string source_field = "source", target_field = "target";
  SyntheticPairs synthetic;

  void visit(auto& field) {
    visit_corpus(field,
                 "what to use instead of the named corpus, gzipped or not: the lines of the sources (with "
                 "target_path), or a table of sources and targets (TSV, CSV, JSON lines)");
    field("source_language", source_language, "of the corpus: what is read");
    field("target_language", target_language, "of the corpus: what is written");
    field("target_path", target_path,
          "the lines that belong to those of path, in the same order; null: path is a table");
    field("validation_target_path", validation_target_path, "the lines that belong to those of validation_path");
    field("test_path", test_path, "sources, or a table, for --split test");
    field("test_target_path", test_target_path, "the lines that belong to those of test_path");
    visit_fraction(field, "fraction held out for validation: the pairs that a hash of their source picks");
    field("format", format,
          "of tables: csv knows quotes, tsv takes them as they are, jsonl: an object on every line; auto: by name, "
          "else tsv");
    visit_header(field, header);
    field("source_field", source_field,
          "column of the source: its name in the header, or its number counted from 1; a member of JSON lines");
    field("target_field", target_field,
          "column of the target: its name in the header, or its number counted from 1; a member of JSON lines");
    visit_malformed(field);
    field("synthetic", synthetic, "pairs that the program makes, in the place of texts");
    field("cache", cache, "the tokenizer is kept between runs, under a hash of what it comes from");
    field("tokenizer", tokenizer, "how text becomes tokens, the same on both sides");
  }
};

}  // namespace metaformer
