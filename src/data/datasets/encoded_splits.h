#pragma once
// Labelled texts as tokens and class ids, by split: the step between a source and the batches of training.

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/sources/labelled_source.h"
#include "text/codec.h"

namespace metaformer {

struct EncodedText {
  std::vector<std::int32_t> ids;  // all of them, at least one
  std::int64_t label = 0;
  std::string text;  // only for training texts that are split into subwords again in every epoch
};

struct EncodedSplits {
  Codec codec;
  std::array<std::vector<EncodedText>, 3> texts;  // by Split
  nlohmann::ordered_json description;             // of their source
  std::array<std::string, 3> text_digests;        // by Split: SHA-256 over the texts in the order of the source

  std::vector<EncodedText>& operator[](Split split) { return texts[static_cast<std::size_t>(split)]; }
  const std::vector<EncodedText>& operator[](Split split) const { return texts[static_cast<std::size_t>(split)]; }
};

// Makes what the codec lacks, tokenizer and labels, from the training texts. Errors (exit code 3): only one label, a
// label that is not among the codec's, a text without a token.
EncodedSplits encode_splits(LabelledSplits splits, const LabelledDataConfig& config, Codec codec);

// data.tokenizer.sampling: the power of probabilities in the segmentations of training texts; 0: no resampling.
double sampling_of(const TokenizerOptions& options);

}  // namespace metaformer
