#pragma once
// Subwords by sentencepiece.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/signals.h"
#include "config/data_config.h"
#include "text/special_tokens.h"
#include "text/word_memo.h"

namespace metaformer {

// The words that sentencepiece splits into pieces. No piece extends beyond a word, because marks of spaces (U+2581)
// occur only at its start. The pieces of a text are therefore those of its words, and can be reused.
constexpr std::string_view space_mark = "\u2581";

// ASCII white space that is a separate piece if white space is kept; otherwise it separates words, as a space does.
inline bool is_break(char c) { return c == '\n' || c == '\t' || c == '\r'; }

// Bytes of the word that starts `text`, which is not empty. A break and the mark of a space are words; a space
// belongs to the word after it, and of several spaces all but the last are words.
inline std::size_t word_length(std::string_view text) {
  if (is_break(text[0])) return 1;
  if (text.starts_with(space_mark)) return space_mark.size();
  std::size_t length = 1;
  const auto ends_at = [&](char c) {
    return c == ' ' || is_break(c) || (c == space_mark[0] && text.substr(length).starts_with(space_mark));
  };
  while (length < text.size() && !ends_at(text[length])) ++length;
  return length;
}

// The same where spaces in a row belong to the word after them, as pieces of several spaces need it.
inline std::size_t spaced_word_length(std::string_view text) {
  const auto spaces = std::min(text.find_first_not_of(' '), text.size());
  if (spaces < 2) return word_length(text);
  const auto rest = text.substr(spaces);
  const bool is_followed = !rest.empty() && !is_break(rest[0]) && !rest.starts_with(space_mark);
  return is_followed ? spaces + word_length(rest) : spaces;
}

// Calls `use(word)` in order. If white space is kept, the words are the whole text, otherwise they contain none.
// Throws Interrupted when a signal asks to stop.
template <class Use>
void for_each_word(std::string_view text, Whitespace whitespace, Use use,
                   std::size_t (*length_of)(std::string_view) = word_length) {
  constexpr int words_between_looks = 1 << 16;
  for (int words = 1; !text.empty(); ++words) {
    if (words % words_between_looks == 0) throw_if_stopped();
    auto word = text.substr(0, length_of(text));
    text.remove_prefix(word.size());
    if (whitespace == Whitespace::dropped) {
      if (word[0] == ' ') word.remove_prefix(1);
      if (word.empty() || is_break(word[0]) || word == space_mark) continue;
    }
    use(word);
  }
}

// All segmentations of a word into pieces, and a random one: forward filtering, backward sampling (Kudo 2018, 3.2).
class SubwordLattice {
 public:
  struct Edge {
    std::int32_t id;
    std::int32_t begin;  // the node that the piece starts at
    double score;        // logarithm of the piece's probability
  };

  // Adds a character, and with it a new node. `edges` are the pieces that end at the new node.
  void add_node(const std::vector<Edge>& edges);

  // Appends a path through all nodes to `ids`. Its probability is the product of those of its pieces to the power
  // `alpha`, divided by the sum over all paths. `uniform` in [0, 1) decides. There must be a path.
  void draw(double alpha, double uniform, std::vector<std::int32_t>& ids);

 private:
  struct WeighedEdge {
    Edge edge;
    double cumulative;  // probability of this and the edges before it that end at the same node
  };

  void weigh(double alpha);

  std::vector<WeighedEdge> edges_;            // by the node they end at
  std::vector<std::int32_t> first_ = {0, 0};  // of edges_, by node; the start has none
  double alpha_ = -1;                         // for which the probabilities were computed
};

}  // namespace metaformer

// Subwords: sentencepiece's unigram model (Kudo 2018) and byte-pair encoding (Sennrich et al. 2016).
//
// If white space is dropped, the library normalises a text (NFKC, white space to single spaces; folded to
// lower case if requested), and characters that no piece spells become the unknown token. If it is kept, only the
// case is normalised, if requested, and such characters are encoded as bytes: the ids of any valid UTF-8 text decode
// to that text.
//
// The ids are those that the library gives for the whole text, except for U+2581, with which the library marks spaces:
// it is dropped as white space, or encoded as its bytes. If white space is kept, two more differ: the space that some
// models put in front of a text is left out; and of segmentations with the same probability unigram takes the one that
// the library `tokenizers` takes, while the choice of sentencepiece depends on the rounding of float32.

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace metaformer {

// A piece that texts have, the unknown one, a byte, or one that no text has: a mark of a model, or a retired piece.
enum class PieceKind { text, unknown, byte, control, unused };

class SentencePieceTokenizer : public SubwordTokenizer {
 public:
  // In place of the score of a piece that no text has: below the score of any segmentation of its name.
  static constexpr double reserved_score = -1e6;

  // `kind`: unigram or bpe. Errors (exit code 3) name `source`: not a model, or not one for `whitespace`; a piece that
  // reaches beyond a word. Malicious models are not detected: check a digest first.
  SentencePieceTokenizer(std::string kind, Whitespace whitespace, std::string model, const std::string& source);
  ~SentencePieceTokenizer() override;

  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(pieces_.size()); }
  std::optional<std::int32_t> unknown_id() const override { return unknown_; }

  // May be called from several threads.
  std::vector<std::int32_t> encode(std::string_view text) const override;

  // A word reaches from white space to white space.
  bool begins_word(std::int32_t id, std::int32_t before) const override;

  // Unigram: draws one of all segmentations of each word; the likeliest for words of more than 64 bytes. May be
  // called from several threads.
  std::vector<std::int32_t> encode_sampled(std::string_view text, double alpha, const Rng& rng) const override;

  // Unknown tokens become U+FFFD. Bytes are copied: text that a model generates need not be UTF-8.
  std::string decode(std::span<const std::int32_t> ids) const override;

  // The model in base64, and its SHA-256.
  nlohmann::ordered_json to_json() const override;

  // As the model has it, with marks of spaces.
  std::string token_name(std::int32_t id) const override;

  PieceKind piece_kind(std::int32_t id) const;

  // The logarithm of a piece's probability; of bpe, its negative rank: the number with the fewest decimal digits.
  double score(std::int32_t id) const { return scores_.at(static_cast<std::size_t>(id)); }

  // Whether the scores alone choose among the pieces of a text: each character of a piece is a piece, too, and no piece
  // is preferred to all others.
  bool has_plain_scores() const { return has_plain_scores_; }

  const std::string& kind() const { return kind_; }
  const std::string& model() const { return model_; }
  Whitespace whitespace() const { return whitespace_; }

 private:
  using Ids = std::vector<std::int32_t>;
  using LengthOfWord = std::size_t (*)(std::string_view);

  void read_pieces();
  void require_piece_of_word(int id, std::string_view piece);
  LengthOfWord length_of_word() const;
  Ids cut(std::string_view word) const;
  Ids first_best(const Ids& best) const;
  SubwordLattice all_cuts(std::string_view word) const;

  std::string kind_;
  Whitespace whitespace_;
  std::string model_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::int32_t unknown_ = 0;
  bool has_pieces_of_spaces_ = false;  // that begin with several, so that words do, too
  bool has_plain_scores_ = true;
  std::vector<std::string> pieces_;  // the text of each id
  std::vector<double> scores_;       // of each id
  mutable WordMemoPool<Ids> memos_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // of the pieces of words
  std::size_t longest_piece_ = 0;                           // bytes
  mutable WordMemoPool<SubwordLattice> lattice_memos_;
};

}  // namespace metaformer
