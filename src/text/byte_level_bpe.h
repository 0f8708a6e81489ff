#pragma once
// Byte-level byte-pair encoding (GPT-2, Radford et al. 2019).

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/special_tokens.h"
#include "text/split_pattern.h"
#include "text/word_memo.h"

namespace metaformer {

// The characters that stand for bytes in the files of byte-level tokenizers: most bytes that are printed in Latin-1
// stand for themselves, the others follow from U+0100 on; a space is U+0120.
std::string to_byte_level(std::string_view bytes);

// The merge rules of byte-pair encoding (Sennrich et al. 2016): pairs of neighbouring tokens that become one, in order
// of priority.
class PairMerges {
 public:
  // Adds a rule of lower priority than all others; it replaces an earlier rule for the same pair.
  void add(std::int32_t left, std::int32_t right, std::int32_t merged);

  // Applies the rules to the tokens of a word until none applies: always the applicable rule of the highest priority,
  // at the first place where it applies. O(n log n).
  std::vector<std::int32_t> merge(const std::vector<std::int32_t>& ids) const;

 private:
  struct Rule {
    std::int32_t rank, merged;
  };
  struct HashPair {
    std::size_t operator()(std::uint64_t pair) const { return (pair ^ (pair >> 29)) * 0x9E3779B97F4A7C15ULL; }
  };

  std::unordered_map<std::uint64_t, Rule, HashPair> rules_;
  std::int32_t next_rank_ = 0;
};

// A token that stands for a text of its own, such as <|endoftext|>: it is found in a text before the text is cut into
// words.
struct AddedToken {
  std::string content;  // not empty
  std::int32_t id;
};

// Byte-level BPE in the format of the library `tokenizers`: regular expressions cut a text into words, whose bytes are
// merged pair by pair.
struct ByteLevelBpe {
  std::vector<std::string> tokens;  // the bytes of each id; "" for an id that no token has
  std::vector<std::string> names;   // the tokens of each id as the file writes them
  std::array<std::int32_t, 256> byte_ids{};
  PairMerges merges;
  // Words that are not merged, because they are tokens (the file's ignore_merges).
  std::unordered_map<std::string, std::int32_t> whole_words;
  std::vector<SplitPattern> patterns;  // each cuts the parts that the patterns before it have made
  // Two lists: tokens that are searched for first, and tokens that are searched for in the rest. By first byte, the
  // longest first.
  std::array<std::array<std::vector<AddedToken>, 256>, 2> added;
};

// Byte-level BPE as GPT-2 and LLaMA 3 have it. The ids equal those of the library `tokenizers` without the special
// tokens that its post-processing adds; every text that is valid UTF-8 is restored.
class ByteLevelBpeTokenizer : public SubwordTokenizer {
 public:
  static constexpr std::int64_t largest_vocabulary = 1 << 24;

  // `file`: the content of tokenizer.json. Its decoder, post-processing, truncation and padding are ignored, because
  // they have no effect on the ids of plain text. `vocabulary`: the least number of ids, as the model's table of
  // embeddings may have more rows than the file has tokens; the additional ids stand for nothing. Errors (exit code 3)
  // name `source` and the field: absent, damaged, or changing text so that decoding cannot restore it (normalisers, a
  // space in front), and models other than byte-level BPE.
  ByteLevelBpeTokenizer(std::string file, std::int64_t vocabulary, const std::string& source);

  std::int64_t vocabulary_size() const override { return vocabulary_; }

  // May be called from several threads.
  std::vector<std::int32_t> encode(std::string_view text) const override;
  bool restores_text() const override { return true; }

  // A word reaches from white space to white space.
  bool begins_word(std::int32_t id, std::int32_t before) const override;

  // Text that a model generates need not be UTF-8.
  std::string decode(std::span<const std::int32_t> ids) const override;

  nlohmann::ordered_json to_json() const override;
  std::string token_name(std::int32_t id) const override;

  const std::string& file() const { return file_; }

 private:
  using Ids = std::vector<std::int32_t>;

  void encode(std::string_view text, std::size_t added, WordMemo<Ids>& memo, Ids& ids) const;
  void cut(std::string_view text, std::size_t pattern, const std::function<void(std::string_view)>& use_word) const;
  Ids ids_of_word(std::string_view word) const;
  std::string_view bytes_of(std::int32_t id) const;

  std::string file_;
  ByteLevelBpe bpe_;
  std::int64_t vocabulary_;
  mutable WordMemoPool<Ids> memos_;
};

}  // namespace metaformer
