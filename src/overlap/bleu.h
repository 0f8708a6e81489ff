#pragma once
// BLEU (Papineni et al. 2002, "BLEU: a method for automatic evaluation of machine translation") of a corpus with one
// reference for each line, as sacreBLEU computes it by default (Post 2018): precisions of 1- to 4-grams, whose zeros
// are smoothed exponentially.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

struct BleuOptions {
  bool lowercase = false;
  bool is_tokenized = false;  // lines are tokens between white space ("none"); otherwise tokenize_13a makes them
};

// What sacreBLEU prints beside such a score, for example
// "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0".
std::string bleu_signature(const BleuOptions& options);

// The tokens of a line of UTF-8. Bytes that are not valid are parts of words.
std::vector<std::string> bleu_tokens(std::string_view line, const BleuOptions& options);

// Counts of one line or, added up, of a corpus. Element n - 1 is of n-grams.
struct BleuStatistics {
  static constexpr std::size_t orders = 4;

  std::int64_t hypothesis_length = 0, reference_length = 0;  // in tokens
  std::array<std::int64_t, orders> ngrams{};                 // of the hypothesis
  std::array<std::int64_t, orders> matches{};  // of these, clipped to how often the line's reference has each

  BleuStatistics& operator+=(const BleuStatistics& other);
};

BleuStatistics bleu_statistics(std::string_view hypothesis, std::string_view reference, const BleuOptions& options);

struct BleuScore {
  double bleu = 0;  // in percent: brevity penalty times the geometric mean of the precisions
  double brevity_penalty = 1;
  std::array<double, BleuStatistics::orders> precisions{};  // in percent, smoothed
};

// The score of a corpus. BLEU is 0 if nothing matches or no hypothesis has four tokens.
BleuScore bleu(const BleuStatistics& statistics);

}  // namespace metaformer
