#pragma once
// A text as training and validation tokens, the documents in it, and the rows of a language model.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/random.h"
#include "data/packing.h"
#include "data/token_rows.h"
#include "data/tokenized_text.h"

namespace metaformer {

// Consecutive tokens of one document.
struct TextPiece {
  std::int64_t start = 0, length = 0;
};

// Pieces that share a row.
using TextPack = std::vector<TextPiece>;

class TextDataset {
 public:
  // Errors (exit code 3): a split shorter than `fewest_tokens`; default: context + 1.
  TextDataset(TokenizedText text, const TextDataConfig& config, std::int64_t context,
              std::optional<std::int64_t> fewest_tokens = std::nullopt);

  // The same for encode_corpus. Sets an empty `tokenizer`.
  TextDataset(const Corpus& corpus, const TextDataConfig& config, std::int64_t context,
              std::shared_ptr<const Tokenizer>& tokenizer);

  const TokenizedText& text() const { return text_; }
  const TokenArray& tokens(Split split) const { return part(split).tokens; }

  // nullptr for files of other programs.
  const TextStatistics* statistics(Split split) const {
    const auto& known = part(split).statistics;
    return known ? &*known : nullptr;
  }

  // Whether a row's tokens know their documents: with data.separate_documents or data.packing.
  bool has_documents() const { return has_documents_; }

  // The numbers of the documents of consecutive tokens.
  std::vector<std::int32_t> documents(Split split, std::int64_t first, std::int64_t count) const;

  // The number of characters that unknown tokens stand for. Nothing if white space is dropped, because no token stands
  // for it, or if it is not known.
  std::optional<std::int64_t> unknown_characters(Split split) const;

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

  // Starts to read the windows, or pieces, from the disk, without waiting for it.
  void prefetch(Split split, const std::vector<std::int64_t>& starts) const;
  void prefetch(Split split, const std::vector<TextPack>& packs) const;

 private:
  std::vector<std::int32_t> bytes_of(Split split, std::int64_t first, const std::vector<std::int32_t>& tokens) const;
  const TokenizedSplit& part(Split split) const;  // errors (exit code 2): the test split, which a text does not have

  TokenizedText text_;
  std::int64_t context_;
  bool has_documents_;
  std::vector<std::int32_t>
      bytes_of_id_;  // size of the text to which each id is decoded; for splits without token_bytes
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
