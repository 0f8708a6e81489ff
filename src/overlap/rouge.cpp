#include "overlap/rouge.h"

#include <algorithm>

#include "overlap/ngrams.h"

namespace metaformer {

namespace {

using Words = std::vector<std::string>;

bool is_in_word(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// Lower-cases ASCII, and replaces the only other letters whose lower case has a letter of ASCII: the dotted capital I,
// U+0130, becomes an i and a mark, and the Kelvin sign, U+212A, a k.
std::string with_ascii_lower_case(std::string_view text) {
  constexpr std::string_view dotted_i = "\u0130", kelvin = "\u212A";
  std::string lowered;
  while (!text.empty()) {
    std::size_t length = 1;
    if (text.starts_with(dotted_i)) {
      lowered += "i ";
      length = dotted_i.size();
    } else if (text.starts_with(kelvin)) {
      lowered += 'k';
      length = kelvin.size();
    } else {
      const bool is_upper = text[0] >= 'A' && text[0] <= 'Z';
      lowered += is_upper ? static_cast<char>(text[0] - 'A' + 'a') : text[0];
    }
    text.remove_prefix(length);
  }
  return lowered;
}

RougeScore score_of(std::int64_t common, std::int64_t in_hypothesis, std::int64_t in_reference) {
  if (common == 0) return {};
  const auto precision = static_cast<double>(common) / static_cast<double>(in_hypothesis);
  const auto recall = static_cast<double>(common) / static_cast<double>(in_reference);
  return {precision, recall, 2 * precision * recall / (precision + recall)};
}

RougeScore ngram_score(const Words& hypothesis, const Words& reference, std::size_t n) {
  return score_of(count_common_ngrams(hypothesis, reference, n), count_ngrams(hypothesis, n),
                  count_ngrams(reference, n));
}

std::int64_t common_subsequence_length(const Words& first, const Words& second) {
  // lengths[j]: of the words of `first` so far and the first j words of `second`.
  std::vector<std::int64_t> lengths(second.size() + 1);
  for (const auto& word : first) {
    std::int64_t diagonal = 0;  // lengths[j] before this word
    for (std::size_t j = 0; j < second.size(); ++j) {
      const auto above = lengths[j + 1];
      lengths[j + 1] = word == second[j] ? diagonal + 1 : std::max(above, lengths[j]);
      diagonal = above;
    }
  }
  return lengths.back();
}

RougeScore divided(const RougeScore& score, double divisor) {
  return {score.precision / divisor, score.recall / divisor, score.f1 / divisor};
}

}  // namespace

Words rouge_tokens(std::string_view text) {
  Words words;
  bool is_within_word = false;
  for (const char c : with_ascii_lower_case(text)) {
    if (is_in_word(c)) {
      if (!is_within_word) words.emplace_back();
      words.back() += c;
    }
    is_within_word = is_in_word(c);
  }
  return words;
}

RougeScore& RougeScore::operator+=(const RougeScore& other) {
  precision += other.precision;
  recall += other.recall;
  f1 += other.f1;
  return *this;
}

RougeStatistics& RougeStatistics::operator+=(const RougeStatistics& other) {
  sums.rouge_1 += other.sums.rouge_1;
  sums.rouge_2 += other.sums.rouge_2;
  sums.rouge_l += other.sums.rouge_l;
  lines += other.lines;
  return *this;
}

RougeStatistics rouge_statistics(std::string_view hypothesis, std::string_view reference) {
  const auto words = rouge_tokens(hypothesis), expected = rouge_tokens(reference);
  const auto longest =
      score_of(common_subsequence_length(words, expected), count_ngrams(words, 1), count_ngrams(expected, 1));
  return {.sums = {ngram_score(words, expected, 1), ngram_score(words, expected, 2), longest}, .lines = 1};
}

RougeScores rouge(const RougeStatistics& statistics) {
  if (statistics.lines == 0) return {};
  const auto lines = static_cast<double>(statistics.lines);
  return {divided(statistics.sums.rouge_1, lines), divided(statistics.sums.rouge_2, lines),
          divided(statistics.sums.rouge_l, lines)};
}

}  // namespace metaformer
