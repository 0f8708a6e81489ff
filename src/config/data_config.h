#pragma once
// The data section of a config: corpora, tokenizers, packing.

#include "config/schema.h"

namespace metaformer {

// Options of tokenizers: one struct per kind. text/ makes the tokenizer from them.

// Whether white space between words becomes tokens. A language model needs it, to predict and write it.
enum class Whitespace { dropped, kept };
constexpr std::array<std::string_view, 2> enum_names(Whitespace) { return {"dropped", "kept"}; }

constexpr const char* whitespace_help =
    "dropped: white space only separates words; kept: decoding restores it, as task language_model requires; default: "
    "kept for task language_model, else dropped";

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
    field("vocabulary", vocabulary, between(2, 1 << 24),
          "largest vocabulary: the most frequent words and the unknown word");
    field("min_count", min_count, between(1, 1 << 30),
          "words that occur less often in the training texts become the unknown word");
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
          "subword regularisation for classification: every epoch splits the words of the training texts at random, "
          "with probabilities to this power; 0: never");
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
    : Named<"pretrained", "an existing tokenizer, read from files: byte-level BPE or sentencepiece"> {
  PathText path;

  void visit(auto& field) {
    field("path", path,
          "Hugging Face folder with tokenizer.json, with vocab.json and merges.txt, or with tokenizer.model; or one of "
          "these files");
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
          "a token sees only its own text in the row, and positions start again in every text; false: only for "
          "language models");
  }
};

using ShortestFirstPackingConfig =
    PackingBy<"spfhp",
              "shortest-pack-first: texts are placed from the longest to the shortest, each into the row with the most "
              "room (Krell et al. 2021)",
              0, 1 << 20, "largest number of texts in a row; 1: one text and padding; 0: no limit">;
using LeastSquaresPackingConfig = PackingBy<"nnlshp",
                                            "non-negative least squares over all combinations of lengths that fit into "
                                            "a row: less padding at a small depth (Krell et al. 2021)",
                                            1, 3, "largest number of texts in a row: 1, 2 or 3">;

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
    field("corpus", corpus, "name of a public corpus; `metaformer data list` lists them");
    field("path", path, path_help);
    field("validation_path", validation_path,
          "data held out for validation, in the same formats as path; replaces validation_fraction");
  }
  void visit_fraction(auto& field, const char* help) {
    field("validation_fraction", validation_fraction, above(0, 0.9), help);
  }
  void visit_header(auto& field, TableHeader& header) {
    field("header", header,
          "whether the first row of a table names its columns; auto: if it contains the names of the fields");
  }
  void visit_malformed(auto& field) {
    field("malformed_limit", malformed_limit, between(0, 1),
          "largest tolerated fraction of malformed table rows or JSON lines");
  }
  void visit_tokens(auto& field) {
    field("packing", packing, "packing of several texts into one row of a training batch");
    field("cache", cache, "cache the tokens between runs, under a hash of everything they depend on");
    field("tokenizer", tokenizer, "division of text into tokens");
  }
};

// The file of a complete folder of tokens (data/token_folder.h), and that of an unfinished one.
constexpr const char *token_manifest = "manifest.json", *unfinished_tokens = "unfinished.json";

// Whether `metaformer data prepare` wrote the folder, finished or not.
inline bool is_token_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / token_manifest, ignored) ||
         std::filesystem::exists(folder / unfinished_tokens, ignored);
}

// The tokenizer in a folder of nanoGPT's tokens.
constexpr const char* nanogpt_tokenizer = "meta.pkl";

// Whether a folder contains tokens and their tokenizer.
inline bool has_own_tokenizer(const std::filesystem::path& folder) {
  std::error_code ignored;
  return is_token_folder(folder) || std::filesystem::is_regular_file(folder / nanogpt_tokenizer, ignored);
}

// The data of a language model.
struct TextDataConfig : DataConfig {
  std::vector<std::string> mixture;
  bool separate_documents = false;

  void visit(auto& field) {
    visit_corpus(
        field,
        "replaces the named corpus: UTF-8 text, JSON lines, or a folder of such files, compressed (gzip, zstd) "
        "or not; or tokens: a folder of `metaformer data prepare`, nanoGPT's or llm.c's .bin files, or "
        "Megatron-LM's .bin and .idx");
    field("mixture", mixture,
          "replaces path: folders of `metaformer data prepare` with one tokenizer, each as FOLDER=WEIGHT; a training "
          "window comes from a folder with a probability in proportion to its weight");
    visit_fraction(field, "fraction held out for validation: the end of the text");
    field("format", format, "text: one document; jsonl: one object per line; auto: by the file's name, else text");
    field("text_field", text_field, "member of JSON lines that holds the text");
    field("malformed_limit", malformed_limit, between(0, 1), "largest tolerated fraction of malformed JSON lines");
    field("separate_documents", separate_documents, "a token sees only its own document");
    visit_tokens(field);
  }
};

// Ratings (stars) as classes: "negative" up to one number, "positive" from another; ratings between them are left out.
struct RatingConfig {
  std::optional<double> positive_from, negative_to, lowest, highest;

  void visit(auto& field) {
    field("positive_from", positive_from, Range{},
          "labels are numbers, and those from this one on are 'positive'; null: labels are class names");
    field("negative_to", negative_to, Range{},
          "numbers up to this one are 'negative', and ratings between the two are left out; null: all below "
          "positive_from");
    field("lowest", lowest, Range{}, "rows with a lower rating are malformed; null: no lower limit");
    field("highest", highest, Range{}, "rows with a higher rating are malformed; null: no upper limit");
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
    visit_corpus(field, "a table (CSV, TSV, JSON lines), gzipped or not; with corpus imdb, IMDb's archive or folder");
    field("test_path", test_path, "a table for --split test");
    field("extra_path", extra_path,
          "a table of further training texts, beside path or the corpus, such as texts that a model has labelled; "
          "{seed} in the path stands for train.seed");
    visit_fraction(field, "fraction held out for validation: rows selected by a hash of their text");
    field("format", format,
          "format of tables; csv: quotes may enclose a field; tsv: quotes have no meaning; jsonl: one object per line; "
          "auto: by the file's name, else tsv");
    visit_header(field, header);
    field("text_field", text_field,
          "column of the text: its name in the header, or its number counted from 1; or a member of JSON lines");
    field("label_field", label_field,
          "column of the label: its name in the header, or its number counted from 1; or a member of JSON lines");
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

struct MeanPooledHeadConfig : HeadOptions, Named<"mean_pooled", "the logits of the normalised mean over the tokens"> {};
struct PerTokenMeanHeadConfig : HeadOptions, Named<"per_token_mean", "the mean of the tokens' logits"> {};
struct FirstTokenHeadConfig : HeadOptions, Named<"first_token", "the logits of a class token in front of the text"> {};
struct NoBagConfig : Named<"none", "only the features of the last block"> {};

struct NaiveBayesBagConfig : Named<"naive_bayes",
                                   "a hidden layer over the n-grams of the text in any order, scaled by naive Bayes' "
                                   "log-count ratios (Johnson and Zhang 2015)"> {
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
    field("dropout", dropout, from_to_below(0, 1), "dropout on the features from which the logits are computed");
    field("response_norm", response_norm,
          "divides a text's features x of each region size, and of the bag, by sqrt(1 + |x|^2)");
    field("bag", bag, "features beside the pooled ones");
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
          "steps whose texts are sorted by length together, for less padding; 1: no sorting");
    field("truncation", truncation, "part that is kept of a text longer than model.context");
    field("head", head, "head that computes the classes from the last block");
    field("selection_metric", selection_metric,
          "score on the validation split that selects the best checkpoint; auc and loss are less noisy than accuracy "
          "if the split is small");
    field("baselines", baselines,
          "report the accuracies of two baselines: the most frequent class, and a linear model over n-grams");
  }
};

// nullptr if the head has no bag.
inline const NaiveBayesBagConfig* bag_options(const HeadConfig& head) {
  const auto* pooled = std::get_if<MaxPooledHeadConfig>(&head);
  return pooled != nullptr ? std::get_if<NaiveBayesBagConfig>(&pooled->bag) : nullptr;
}

// The data section of a task that makes one text from another.
struct NoSyntheticPairs : Named<"none", "texts of data.path or the corpus"> {};

struct SyntheticPairOptions {
  std::int64_t symbols = 10, length = 10;

  void visit(auto& field) {
    field("symbols", symbols, between(2, 65536), "different symbols; the sources are random");
    field("length", length, between(1, 32768), "symbols of a source");
  }
};

// The Annotated Transformer's first example (Rush 2018).
struct CopiedPairs : SyntheticPairOptions, Named<"copy", "random symbols; the target is the source"> {};

struct ReversedPairs : SyntheticPairOptions, Named<"reversal", "random symbols; the target is the reversed source"> {};

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
                 "replaces the named corpus, gzipped or not: a file with a source on every line (with target_path), or "
                 "a table of sources and targets (TSV, CSV, JSON lines)");
    field("source_language", source_language, "source language of the named corpus");
    field("target_language", target_language, "target language of the named corpus");
    field("target_path", target_path,
          "file with the target of every line of path, in the same order; null: path is a table");
    field("validation_target_path", validation_target_path, "file with the target of every line of validation_path");
    field("test_path", test_path, "sources, or a table, for --split test");
    field("test_target_path", test_target_path, "file with the target of every line of test_path");
    visit_fraction(field, "fraction held out for validation: pairs selected by a hash of their source");
    field("format", format,
          "format of tables; csv: quotes may enclose a field; tsv: quotes have no meaning; jsonl: one object per line; "
          "auto: by the file's name, else tsv");
    visit_header(field, header);
    field("source_field", source_field,
          "column of the source: its name in the header, or its number counted from 1; or a member of JSON lines");
    field("target_field", target_field,
          "column of the target: its name in the header, or its number counted from 1; or a member of JSON lines");
    visit_malformed(field);
    field("synthetic", synthetic, "generated pairs in place of texts");
    field("cache", cache, "cache the tokenizer between runs, under a hash of everything it depends on");
    field("tokenizer", tokenizer, "division of text into tokens, the same on both sides");
  }
};

}  // namespace metaformer
