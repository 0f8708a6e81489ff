#pragma once
// A text as training and validation tokens, and the batches a language model sees.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "data/corpus.h"
#include "data/tokenizer.h"

namespace metaformer {

enum class Split { train, validation, test };
template <>
struct EnumNames<Split> {
  static constexpr std::array<std::string_view, 3> values = {"train", "validation", "test"};
};

// Row-major [rows, length] token ids and the token that follows each; target -1: none (padding).
struct TokenRows {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> targets;
  std::int64_t target_count = 0;  // targets that are not -1
};

class TextDataset {
 public:
  // Cuts the text by characters, so that every tokenizer has the same split: the last `validation_fraction` is held out
  // (the first int(n (1 - fraction)) characters are training, as in nanoGPT). Errors (exit code 3): not UTF-8, a split
  // shorter than context + 1 tokens.
  TextDataset(const Corpus& corpus, const DataConfig& config, std::int64_t context,
              std::unique_ptr<Tokenizer> tokenizer = nullptr);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::vector<std::int32_t>& tokens(Split split) const;
  std::int64_t characters(Split split) const;

  // Rows first ... first + rows of step's global order: windows at uniform random places, a function of (seed, step,
  // row).
  TokenRows random_windows(Split split, std::uint64_t seed, RandomPurpose purpose, std::int64_t step,
                           std::int64_t first, std::int64_t rows) const;

  // The split as consecutive windows: every token but the first is a target exactly once. The last row may be padded.
  std::int64_t consecutive_window_count(Split split) const;
  TokenRows consecutive_windows(Split split, std::int64_t first, std::int64_t rows) const;

 private:
  TokenRows windows(Split split, const std::vector<std::int64_t>& starts) const;

  std::int64_t context_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::array<std::vector<std::int32_t>, 2> tokens_;  // by Split
  std::array<std::int64_t, 2> characters_{};
};

}  // namespace metaformer
