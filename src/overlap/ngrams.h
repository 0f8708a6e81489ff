#pragma once
// Counts of n-grams that BLEU, chrF and ROUGE are made of. A sequence is a vector or string of tokens.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace metaformer {

template <class Sequence>
std::int64_t count_ngrams(const Sequence& tokens, std::size_t n) {
  return tokens.size() < n ? 0 : static_cast<std::int64_t>(tokens.size() - n + 1);
}

template <class Sequence>
auto sorted_ngrams(const Sequence& tokens, std::size_t n) {
  std::vector<std::span<const typename Sequence::value_type>> ngrams;
  for (std::size_t start = 0; start + n <= tokens.size(); ++start) ngrams.emplace_back(tokens.data() + start, n);
  std::ranges::sort(ngrams, std::ranges::lexicographical_compare);
  return ngrams;
}

// The n-grams that both sequences have, each as often as the sequence with fewer of it has it (clipped counts).
template <class Sequence>
std::int64_t count_common_ngrams(const Sequence& first, const Sequence& second, std::size_t n) {
  const auto ngrams = sorted_ngrams(first, n), others = sorted_ngrams(second, n);
  decltype(sorted_ngrams(first, n)) common;
  std::ranges::set_intersection(ngrams, others, std::back_inserter(common), std::ranges::lexicographical_compare);
  return static_cast<std::int64_t>(common.size());
}

}  // namespace metaformer
