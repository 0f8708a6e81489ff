#pragma once
// A text as training and validation tokens, the documents in it, and the rows of a language model.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/random.h"
#include "data/corpus.h"
#include "data/packing.h"
#include "data/token_rows.h"
#include "text/tokenizer.h"

namespace metaformer {

// The training and the validation part of a corpus: its text and its held-out text or, if it has none, its text cut in
// two. The cut is by characters, so that every tokenizer has the same split: the last data.validation_fraction is held
// out (the first int(n (1 - fraction)) characters are training, as in nanoGPT).
std::array<std::string_view, 2> split_corpus(const Corpus& corpus, const TextDataConfig& config);

// The tokenizer of a config for a text, made from its training part only. Exception: characters, because a model must
// know all of them, held-out ones too (as in nanoGPT). Errors (exit code 3): not UTF-8.
std::unique_ptr<Tokenizer> make_text_tokenizer(const Corpus& corpus, const TextDataConfig& config);

// Consecutive tokens of one document.
struct TextPiece {
  std::int64_t start = 0, length = 0;
};

// Pieces that share a row.
using TextPack = std::vector<TextPiece>;

class TextDataset {
 public:
  // Errors (exit code 3): not UTF-8, a split shorter than context + 1 tokens. An empty `tokenizer` is made from the
  // text.
  TextDataset(const Corpus& corpus, const TextDataConfig& config, std::int64_t context,
              std::shared_ptr<const Tokenizer>& tokenizer);

  const std::vector<std::int32_t>& tokens(Split split) const { return part(split).tokens; }

  // The number of every token's document; empty unless data.separate_documents is true, or with data.packing.
  const std::vector<std::int32_t>& documents(Split split) const { return part(split).documents; }
  std::int64_t characters(Split split) const { return part(split).characters; }
  std::int64_t bytes(Split split) const { return part(split).bytes; }

  // The bits that are needed, besides the tokens, to restore the text: 0 if decoding restores it; else the length of an
  // adaptive code of the information that the tokenizer loses. Nothing if it is not known.
  std::optional<double> lost_bits(Split split) const { return part(split).lost_bits; }

  // The number of characters that unknown tokens stand for. Nothing if white space is dropped, because no token stands
  // for it.
  std::optional<std::int64_t> unknown_characters(Split split) const { return part(split).unknown_characters; }

  // Entropy of a split's tokens in nats: the loss of predicting each by its frequency.
  double unigram_entropy(Split split) const;

  // Rows `first` ... `first + rows - 1` of step `step`: windows at random places, a function of (seed, step, row).
  TokenRows random_windows(Split split, std::uint64_t seed, RandomPurpose purpose, std::int64_t step,
                           std::int64_t first, std::int64_t rows) const {
    return windows(split, random_starts(split, seed, purpose, step, first, rows));
  }

  // The starts of those windows.
  std::vector<std::int64_t> random_starts(Split split, std::uint64_t seed, RandomPurpose purpose, std::int64_t step,
                                          std::int64_t first, std::int64_t rows) const;

  // The split as consecutive windows: every token but the first is a target exactly once. The last row may be padded.
  std::int64_t consecutive_window_count(Split split) const;
  TokenRows consecutive_windows(Split split, std::int64_t first, std::int64_t rows) const;

  // The documents, cut into pieces of at most `context` tokens, without the last `left_out` tokens of every document.
  // With `left_out` 1 the target of every token is the token behind it.
  std::vector<TextPiece> pieces(Split split, std::int64_t context, std::int64_t left_out = 0) const;

  // Rows of packs of pieces, padded to the longest, without targets. `separate`: pieces do not see each other, and
  // positions start again in each.
  TokenRows rows_of(Split split, const std::vector<TextPack>& packs, bool separate) const;

  // The same, with the token behind it as the target of each token. `by_sequence`: each piece weighs 1 in the loss,
  // whatever its length.
  TokenRows packed_rows(Split split, const std::vector<TextPack>& packs, bool separate, bool by_sequence) const;

  // The windows that begin at these tokens. Beyond the end of the split there is padding.
  TokenRows windows(Split split, const std::vector<std::int64_t>& starts) const;

 private:
  struct Part {
    std::vector<std::int32_t> tokens, documents;
    std::vector<std::int32_t> token_bytes;  // empty: bytes_of_id_ has them
    std::int64_t characters = 0, bytes = 0;
    std::optional<double> lost_bits;
    std::optional<std::int64_t> unknown_characters;
  };
  Part encode(std::string_view text, const std::vector<std::string_view>& documents, const Tokenizer& tokenizer);
  std::int64_t bytes_at(const Part& part, std::size_t at) const {
    return part.token_bytes.empty() ? bytes_of_id_[static_cast<std::size_t>(part.tokens[at])] : part.token_bytes[at];
  }
  const Part& part(Split split) const;  // errors (exit code 2): the test split, which a text does not have

  std::int64_t context_;
  std::vector<std::int32_t> bytes_of_id_;  // size of the text to which each id of a text is decoded
  std::array<Part, 2> parts_;              // by Split
};

// The documents of a text in packs.
class PackedDocuments {
 public:
  // `pieces`: of the training and the validation split, of 1 ... context tokens each.
  PackedDocuments(std::array<std::vector<TextPiece>, 2> pieces, std::int64_t context, const PackingConfig& config);

  std::int64_t packs(Split split) const { return order(split).packs(); }  // of every epoch
  std::int64_t tokens(Split split) const;                                 // of all pieces

  // Packs of the endless series of epochs, from the place `first` on: a function of (seed, place).
  std::vector<TextPack> packs_at(Split split, std::uint64_t seed, std::int64_t first, std::int64_t count) const;

  // Packs drawn from the first epoch: a function of (seed, index).
  std::vector<TextPack> random_packs(Split split, std::uint64_t seed, std::int64_t index, std::int64_t count) const;

 private:
  const PackedOrder& order(Split split) const { return orders_.at(static_cast<std::size_t>(split)); }

  std::array<std::vector<TextPiece>, 2> pieces_;
  std::vector<PackedOrder> orders_;  // by Split, like pieces_
};

}  // namespace metaformer
