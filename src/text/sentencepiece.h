#pragma once
// Subwords: sentencepiece's unigram model (Kudo 2018) and byte-pair encoding (Sennrich et al. 2016).
//
// If white space is dropped, the library normalises a text (NFKC, single spaces, lower case if requested), and
// characters that no piece spells become the unknown token. If it is kept, only the case is normalised, if requested,
// and such characters are encoded as bytes: every valid UTF-8 text is restored.
//
// The ids are those that the library gives for the whole text, except for U+2581, with which it marks spaces: it is
// dropped as white space, or encoded as its bytes. If white space is kept, the space that some models put in front of a
// text is left out; and of segmentations with the same probability unigram takes the one that the library `tokenizers`
// takes, while the choice of sentencepiece depends on the rounding of float32.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/data_config.h"
#include "text/special_tokens.h"
#include "text/word_memo.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace metaformer {

constexpr std::string_view space_mark = "\u2581";  // occurs only at the start of a piece

class SubwordLattice;

// text: a piece that texts have; unknown: the unknown piece; byte: a single byte; control, unused: pieces that no text
// has, such as marks of a model and retired pieces.
enum class PieceKind { text, unknown, byte, control, unused };

class SentencePieceTokenizer : public SubwordTokenizer {
 public:
  // Replaces the score of a piece that no text has; it is below the score of any segmentation of the piece's name.
  static constexpr double reserved_score = -1e6;

  // `kind`: unigram or bpe. Errors (exit code 3) name `source`: not a model, or not one for `whitespace`; a piece that
  // reaches beyond a word. Malicious models are not detected: check a digest first.
  SentencePieceTokenizer(std::string kind, Whitespace whitespace, std::string model, const std::string& source);
  ~SentencePieceTokenizer() override;

  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(pieces_.size()); }
  std::optional<std::int32_t> unknown_id() const override { return unknown_; }

  // May be called from several threads.
  std::vector<std::int32_t> encode(std::string_view text) const override;

  std::vector<std::int32_t> token_bytes(std::string_view text) const override;

  bool restores_text() const override { return restores_text_; }

  // A word reaches from white space to white space.
  bool begins_word(std::int32_t id, std::int32_t before) const override;

  // Unigram: draws one of all segmentations of each word; words of more than 64 bytes get the most probable one. May be
  // called from several threads.
  std::vector<std::int32_t> encode_sampled(std::string_view text, double alpha, const Rng& rng) const override;

  // Unknown tokens become U+FFFD. Bytes are copied: text that a model generates need not be UTF-8.
  std::string decode(std::span<const std::int32_t> ids) const override;

  // The model in base64, and its SHA-256.
  nlohmann::ordered_json to_json() const override;

  // The piece as the model has it, with marks of spaces.
  std::string token_name(std::int32_t id) const override;

  PieceKind piece_kind(std::int32_t id) const;

  // The logarithm of a piece's probability or, for bpe, its negative rank; the double that the shortest decimal form of
  // the model's float denotes.
  double score(std::int32_t id) const { return scores_.at(static_cast<std::size_t>(id)); }

  // Whether the scores alone choose among the pieces of a text: each character of a piece is a piece, too, and no piece
  // is preferred to all others.
  bool has_plain_scores() const { return has_plain_scores_; }

  const std::string& kind() const { return kind_; }
  const std::string& model() const { return model_; }
  Whitespace whitespace() const { return whitespace_; }

 private:
  using Ids = std::vector<std::int32_t>;

  void read_pieces();
  Ids cut(std::string_view word) const;
  Ids first_best(const Ids& best) const;
  SubwordLattice all_cuts(std::string_view word) const;

  std::string kind_;
  Whitespace whitespace_;
  std::string model_;
  bool restores_text_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::int32_t unknown_ = 0;
  bool has_pieces_of_spaces_ = false;  // pieces, and so words, may begin with several spaces
  bool has_plain_scores_ = true;
  std::vector<std::string> pieces_;  // the text of each id
  std::vector<double> scores_;       // of each id
  mutable WordMemoPool<Ids> memos_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // by piece, only of pieces that texts have
  std::size_t longest_piece_ = 0;                           // bytes
  mutable WordMemoPool<SubwordLattice> lattice_memos_;
};

// Reads a model from elsewhere. `model`: the bytes of a tokenizer.model. Errors (exit code 3) name `source`: not a
// model; no pieces for bytes; a normaliser, with which not every text is restored; pieces that reach beyond a word.
std::unique_ptr<SubwordTokenizer> read_sentencepiece(std::string model, const std::string& source);

struct SentencePieceTraits {
  bool is_unigram = true;    // otherwise byte-pair encoding
  bool normalises = false;   // it replaces characters by a table
  bool marks_ends = false;   // the mark of a space stands behind a word
  bool has_symbols = false;  // symbols of several characters that are found before all else
};

// The properties of a valid model on which ids depend, besides its pieces and their scores.
SentencePieceTraits traits_of_sentencepiece(std::string_view model);

// Trains a model on a text; returns it serialized (sentencepiece's ModelProto), the same on any machine. The vocabulary
// is smaller than requested if the text has fewer pieces. Errors (exit code 3): a vocabulary too small for the text's
// characters, with the smallest possible one; no word in the text; not UTF-8.
template <class UnigramOrBpeOptions>
std::string train_sentencepiece(const UnigramOrBpeOptions& options, std::string_view text);

}  // namespace metaformer
