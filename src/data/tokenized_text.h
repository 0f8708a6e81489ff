#pragma once
// A text as tokens. A text of any length is encoded in chunks, which threads share, with the same tokens for any number
// of threads.

#include <array>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/data_config.h"
#include "data/corpus.h"
#include "data/token_array.h"
#include "data/token_rows.h"
#include "text/tokenizer.h"

namespace metaformer {

// A part of a text.
struct TextChunk {
  std::string text;
  std::vector<std::size_t> document_starts;  // offsets of the documents that begin in it
};

// The tokens of a chunk. Documents, and parts of them, are encoded separately: no token spans two documents.
struct EncodedChunk {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> token_bytes;      // only if the tokenizer does not restore texts
  std::vector<std::int64_t> document_starts;  // in tokens of the chunk
  std::int64_t bytes = 0, characters = 0;
  bool is_restored = true;                       // decoding restores the text
  std::optional<std::vector<std::string>> lost;  // Tokenizer::lost
};

// Counts of a split's text and tokens.
class TextStatistics {
 public:
  explicit TextStatistics(std::int64_t vocabulary) : counts_(static_cast<std::size_t>(vocabulary)) {}

  void add(const EncodedChunk& chunk);
  void add(const TextStatistics& other);  // of another text, with the same tokenizer

  std::int64_t vocabulary() const { return std::ssize(counts_); }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t characters() const { return characters_; }
  std::int64_t bytes() const { return bytes_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t count_of(std::int32_t id) const { return counts_.at(static_cast<std::size_t>(id)); }

  // Entropy of the tokens in nats: the loss of predicting each by its frequency.
  double unigram_entropy() const;

  // The bits that are needed, besides the tokens, to restore the text: 0 if decoding restores it; else the length of an
  // adaptive code of the information that the tokenizer loses. Nothing if it is not known.
  std::optional<double> lost_bits() const;

  // The number of characters that unknown tokens stand for; only for tokenizers that keep white space.
  std::int64_t unknown_characters(const Tokenizer& tokenizer) const;

  nlohmann::ordered_json to_json() const;
  static std::optional<TextStatistics> from_json(const nlohmann::json& json);  // nothing if it has another form

 private:
  // The length of an adaptive code in bits: a byte that occurred c times among n before has the probability
  // (c + 1/2) / (n + 128) (Krichevsky and Trofimov 1981).
  struct AdaptiveCode {
    std::array<std::int64_t, 256> counts{};
    double bits = 0, before = 0;
    void add(std::string_view bytes);
  };

  std::int64_t tokens_ = 0, characters_ = 0, bytes_ = 0, documents_ = 0;
  std::vector<std::int64_t> counts_;  // by id
  bool is_restored_ = true, is_lost_known_ = true;
  std::vector<AdaptiveCode> lost_;  // by kind of information
};

// Cuts a text into chunks. The cuts are a function of the text and the tokenizer, and change no token.
class TextEncoder {
 public:
  using UseChunk = std::function<void(EncodedChunk&&)>;

  // `use` gets the chunks in order, in the thread that calls add and finish. `threads`: chunks that are encoded at the
  // same time.
  TextEncoder(const Tokenizer& tokenizer, int threads, UseChunk use);
  ~TextEncoder();

  // The next piece of the text, whole characters. Errors: those of Tokenizer::encode; exit code 3 for a document of
  // more than 256 MiB that cannot be cut.
  void add(std::string_view piece, bool starts_document);

  // Encodes the rest. The next piece is the first of another text.
  void finish();

 private:
  static constexpr std::size_t chunk_bytes = 1 << 20, cut_range = 1 << 16, longest_uncut = std::size_t{256} << 20;

  std::size_t find_cut() const;
  bool may_cut(std::size_t at) const;
  void encode_first(std::size_t length);
  void use_first();

  const Tokenizer& tokenizer_;
  std::size_t threads_;
  UseChunk use_;
  TextChunk rest_;
  std::size_t range_ = cut_range;  // behind chunk_bytes, in which a cut is searched
  std::deque<std::future<EncodedChunk>> encoded_;
};

// Threads that encoding may use: those of OMP_NUM_THREADS, else of the machine.
int encoding_threads();

// The training and the validation part of a corpus: its text and its held-out text or, if it has none, its text cut in
// two. The cut is by characters, so that every tokenizer has the same split: the last data.validation_fraction is held
// out (the first int(n (1 - fraction)) characters are training, as in nanoGPT).
std::array<std::string_view, 2> split_corpus(const Corpus& corpus, const TextDataConfig& config);

// The tokenizer of a config for a text, made from its training part only. Exception: characters, because a model must
// know all of them, held-out ones too (as in nanoGPT). Errors (exit code 3): not UTF-8.
std::unique_ptr<Tokenizer> make_text_tokenizer(const Corpus& corpus, const TextDataConfig& config);

// One part of a text as tokens.
struct TokenizedSplit {
  TokenArray tokens;
  TokenArray token_bytes;  // of the text that each token stands for; empty: those of the text to which it is decoded
  std::vector<std::int64_t> document_starts;  // ascending, in tokens; empty: not known, or not needed
  std::optional<TextStatistics> statistics;   // nothing for files of other programs
};

// A text as tokens, in memory or in files.
struct TokenizedText {
  std::filesystem::path path;
  nlohmann::ordered_json description;  // for environment.json
  std::shared_ptr<const Tokenizer> tokenizer;
  bool drops_whitespace = false;         // the tokenizer does
  std::array<TokenizedSplit, 2> splits;  // by Split

  // The corpora of a mixture: consecutive training tokens, and how often windows come from them. Empty: one corpus.
  struct Corpus {
    std::int64_t first = 0, tokens = 0;
    double weight = 1;
  };
  std::vector<Corpus> mixture;
};

// The corpus as tokens in memory. An empty `tokenizer` is made from the text. Errors (exit code 3): not UTF-8.
TokenizedText encode_corpus(const Corpus& corpus, const TextDataConfig& config,
                            std::shared_ptr<const Tokenizer> tokenizer);

// A whole file or folder as both splits, for evaluation.
TokenizedText encode_whole(const std::filesystem::path& path, const TextDataConfig& config,
                           std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace metaformer
