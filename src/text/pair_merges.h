#pragma once
// Byte-pair encoding (Sennrich et al. 2016): which pairs of neighbouring tokens become one, the first rule first.

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace metaformer {

class PairMerges {
 public:
  // A rule after all others; a later rule for the same pair replaces the earlier one.
  void add(std::int32_t left, std::int32_t right, std::int32_t merged);

  // Applies the rules to the tokens of a word until none applies: always the first rule that does, where it applies
  // first. O(n log n).
  std::vector<std::int32_t> merge(const std::vector<std::int32_t>& ids) const;

 private:
  struct Rule {
    std::int32_t rank = 0;
    std::int32_t merged = 0;
  };
  struct HashPair {
    std::size_t operator()(std::uint64_t pair) const { return (pair ^ (pair >> 29)) * 0x9E3779B97F4A7C15ULL; }
  };
  class Word;

  const Rule* find(std::int32_t left, std::int32_t right) const;

  std::unordered_map<std::uint64_t, Rule, HashPair> rules_;
  std::int32_t next_rank_ = 0;
};

}  // namespace metaformer
