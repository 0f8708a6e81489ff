#pragma once
// Subwords: sentencepiece's unigram model (Kudo 2018) and byte-pair encoding (Sennrich et al. 2016).
//
// Where white space is dropped, a text is normalised by the library (NFKC, white space to single spaces; folded to
// lower case when asked), and characters that no piece spells are the unknown token. Where it is kept, nothing is
// normalised but the case when asked, and such characters come as bytes: every valid UTF-8 text is what its ids decode
// to.
//
// The ids are those that the library gives for the whole text, apart from U+2581, with which the library marks spaces:
// dropped as white space, or kept as its bytes.

#include <memory>
#include <unordered_map>

#include "text/subword_lattice.h"
#include "text/tokenizer.h"
#include "text/word_memo.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace metaformer {

class SentencePieceTokenizer : public Tokenizer {
 public:
  // `kind`: unigram or bpe. `model`: what train_sentencepiece gives. Errors (exit code 3) name `source`: not a model,
  // or not one for `kind` and `whitespace`. A model made to deceive is not found out: check a digest first.
  SentencePieceTokenizer(std::string kind, Whitespace whitespace, std::string model, const std::string& source);
  ~SentencePieceTokenizer() override;

  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(pieces_.size()); }
  std::optional<std::int32_t> unknown_id() const override { return unknown_; }

  // May be called from several threads.
  std::vector<std::int32_t> encode(std::string_view text) const override;

  // Unigram: each word is drawn from all ways to cut it. Words of more than 64 bytes are cut the likeliest way. May be
  // called from several threads.
  std::vector<std::int32_t> encode_sampled(std::string_view text, double alpha, const Rng& rng) const override;

  // Unknown tokens are U+FFFD. Bytes come as they are: what a model writes need not be UTF-8.
  std::string decode(std::span<const std::int32_t> ids) const override;

  // The model in base64, and its SHA-256.
  nlohmann::ordered_json to_json() const override;

 private:
  using Ids = std::vector<std::int32_t>;

  void read_pieces();
  Ids cut(std::string_view word) const;
  SubwordLattice all_cuts(std::string_view word) const;

  std::string kind_;
  Whitespace whitespace_;
  std::string model_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::int32_t unknown_ = 0;
  std::vector<std::string> pieces_;  // what each id says, by id
  mutable WordMemoPool<Ids> memos_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // of the pieces that words are cut into
  std::size_t longest_piece_ = 0;                           // bytes
  mutable WordMemoPool<SubwordLattice> lattice_memos_;
};

}  // namespace metaformer
