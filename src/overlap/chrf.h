#pragma once
// chrF2 (Popovic 2015, "chrF: character n-gram F-score for automatic MT evaluation") of a corpus with one reference for
// each line, as sacreBLEU computes it by default: 1- to 6-grams of code points without white space, F score with beta
// 2, no word n-grams.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace metaformer {

// What sacreBLEU prints beside such a score.
std::string chrf_signature();

// Counts of one line or, added up, of a corpus. Element n - 1 is of n-grams.
struct ChrfStatistics {
  static constexpr std::size_t orders = 6;

  std::array<std::int64_t, orders> hypothesis{};  // n-grams; 0 for a line whose reference has none of that order
  std::array<std::int64_t, orders> reference{};
  std::array<std::int64_t, orders> matches{};  // n-grams of both

  ChrfStatistics& operator+=(const ChrfStatistics& other);
};

// Of UTF-8; each byte that is not valid is a character.
ChrfStatistics chrf_statistics(std::string_view hypothesis, std::string_view reference);

// The score of a corpus in percent: (1 + beta^2) P R / (beta^2 P + R), where P and R are the means of precision and
// recall over the orders of which both sides have n-grams; 0 if there are none.
double chrf(const ChrfStatistics& statistics);

}  // namespace metaformer
