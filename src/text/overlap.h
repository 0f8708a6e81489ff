#pragma once
// Scores of a text against a reference: BLEU, chrF, ROUGE.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

// BLEU (Papineni et al. 2002, "BLEU: a method for automatic evaluation of machine translation") of a corpus with one
// reference for each line, as sacreBLEU computes it by default (Post 2018): precisions of 1- to 4-grams, whose zeros
// are smoothed exponentially.
struct BleuOptions {
  bool lowercase = false;
  bool is_tokenized = false;  // white space separates the tokens of lines ("none"); else sacreBLEU's "13a" makes them
};

// The signature that sacreBLEU prints beside such a score, for example
// "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0".
std::string bleu_signature(const BleuOptions& options);

// The tokens of a line of UTF-8. Bytes that are not valid are parts of words.
std::vector<std::string> bleu_tokens(std::string_view line, const BleuOptions& options);

// Counts of n-grams in one line or, added up, in a corpus. Element n - 1 is that of n-grams, so element 0 is the
// length.
template <std::size_t orders>
struct NgramCounts {
  std::array<std::int64_t, orders> hypothesis{}, reference{};
  std::array<std::int64_t, orders> matches{};  // n-grams of both, each counted at most as often as in the reference

  NgramCounts& operator+=(const NgramCounts& other) {
    for (std::size_t i = 0; i < orders; ++i) {
      hypothesis[i] += other.hypothesis[i];
      reference[i] += other.reference[i];
      matches[i] += other.matches[i];
    }
    return *this;
  }
};

constexpr std::size_t bleu_orders = 4, chrf_orders = 6;
using BleuStatistics = NgramCounts<bleu_orders>;  // of tokens
using ChrfStatistics = NgramCounts<chrf_orders>;  // of characters

BleuStatistics bleu_statistics(std::string_view hypothesis, std::string_view reference, const BleuOptions& options);

struct BleuScore {
  double bleu = 0;  // in percent: brevity penalty times the geometric mean of the precisions
  double brevity_penalty = 1;
  std::array<double, bleu_orders> precisions{};  // in percent, smoothed
};

// The score of a corpus. BLEU is 0 if nothing matches or no hypothesis has four tokens.
BleuScore bleu(const BleuStatistics& statistics);

// chrF2 (Popovic 2015, "chrF: character n-gram F-score for automatic MT evaluation") of a corpus with one reference for
// each line, as sacreBLEU computes it by default: 1- to 6-grams of code points without white space, F score with beta
// 2, no word n-grams.

std::string chrf_signature();

// The counts of a line of UTF-8, in which each invalid byte is a character. If the reference has no n-grams of an
// order, those of the hypothesis are not counted.
ChrfStatistics chrf_statistics(std::string_view hypothesis, std::string_view reference);

// The score of a corpus in percent: (1 + beta^2) P R / (beta^2 P + R), where P and R are the means of precision and
// recall over the orders of which both sides have n-grams; 0 if there are none.
double chrf(const ChrfStatistics& statistics);

// ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004, "ROUGE: a package for automatic evaluation of summaries") as Google's package
// rouge-score computes them without a stemmer. A line is a summary: ROUGE-L takes it as one sequence.

// Fractions from 0 to 1. 0 where a side has nothing to count.
struct RougeScore {
  double precision = 0, recall = 0, f1 = 0;
};

struct RougeScores {
  RougeScore rouge_1, rouge_2;  // common 1-grams and 2-grams
  RougeScore rouge_l;           // the longest common subsequence of words
};

// The scores of one line or, added up, of a corpus.
struct RougeStatistics {
  RougeScores sums;
  std::int64_t lines = 0;

  RougeStatistics& operator+=(const RougeStatistics& other);
};

// Takes time proportional to the product of the two numbers of words.
RougeStatistics rouge_statistics(std::string_view hypothesis, std::string_view reference);

// The means over lines; 0 if there are none.
RougeScores rouge(const RougeStatistics& statistics);

}  // namespace metaformer
