#pragma once
// The tokens that a masked language model has to predict, and the ids in their place (BERT, Devlin et al. 2019,
// section 3.1).
//
// A sequence is a window of a text, or a document in a pack. Each of its words (with task.whole_words) or tokens is a
// target with the probability task.fraction, independently; if none of a sequence is, the one with the smallest draw
// becomes one. The model then sees each token of a target, independently, as the mask token, as a random token, or as
// it is.

#include "base/random.h"
#include "config/experiment_config.h"
#include "data/text_dataset.h"
#include "text/tokenizer.h"

namespace metaformer {

class Masking {
 public:
  // Keeps a reference to the tokenizer.
  Masking(const MaskedLanguageModelConfig& config, const Tokenizer& tokenizer);

  std::int64_t mask_token() const { return vocabulary_; }

  // `rows`: the rows of `packs` (TextDataset::rows_of). Adds targets, their places and weights, and replaces ids. The
  // draws are a function of (seed, step, row, place in the row); the first row of `rows` is the row `first_row` of the
  // step.
  void mask_for_training(TokenRows& rows, const std::vector<TextPack>& packs, std::uint64_t seed, std::int64_t step,
                         std::int64_t first_row) const;

  // The same with draws that are a function of the split and the place in it. All targets weigh the same.
  void mask_for_evaluation(TokenRows& rows, const std::vector<TextPack>& packs, Split split) const;

  // Pads the places of targets to a number that few batches exceed, so that batches have few shapes.
  void pad_places(TokenRows& rows) const;

 private:
  template <class DrawsOf>
  void mask_packs(TokenRows& rows, const std::vector<TextPack>& packs, bool by_sequence, DrawsOf draws_of) const;

  // Masks a sequence that begins at `first` in rows.ids. Its tokens use the draws of `rng` for `place`, place + 1, ...
  void mask(TokenRows& rows, std::int64_t first, std::int64_t length, const Rng& rng, std::int64_t place,
            bool by_sequence) const;
  std::int64_t seen(std::int64_t id, const Rng& rng, std::int64_t place) const;

  MaskedLanguageModelConfig config_;
  const Tokenizer& tokenizer_;
  std::int64_t vocabulary_;
};

}  // namespace metaformer
