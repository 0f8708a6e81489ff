#pragma once
// ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004, "ROUGE: a package for automatic evaluation of summaries") as Google's package
// rouge-score computes them without a stemmer. A line is a summary: ROUGE-L takes it as one sequence.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

// The words of UTF-8 that are made of a-z and 0-9 after lower-casing; all else separates them.
std::vector<std::string> rouge_tokens(std::string_view text);

// Fractions from 0 to 1. 0 where a side has nothing to count.
struct RougeScore {
  double precision = 0, recall = 0, f1 = 0;

  RougeScore& operator+=(const RougeScore& other);
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
