#include "overlap/bleu.h"

#include <fmt/format.h>

#include <cmath>

#include "overlap/ngrams.h"
#include "overlap/python_text.h"
#include "overlap/sacrebleu_version.h"
#include "overlap/tokenize_13a.h"

namespace metaformer {

namespace {

double brevity_penalty(double hypothesis_length, double reference_length) {
  if (hypothesis_length >= reference_length) return 1;
  return hypothesis_length == 0 ? 0 : std::exp(1 - reference_length / hypothesis_length);
}

// Of orders without n-grams they stay 0. The k-th that would be 0 otherwise counts 1 / 2^k matches instead.
std::array<double, BleuStatistics::orders> smoothed_precisions(const BleuStatistics& statistics) {
  std::array<double, BleuStatistics::orders> precisions{};
  double smoothed_matches = 1;
  for (std::size_t i = 0; i < precisions.size() && statistics.ngrams[i] > 0; ++i) {
    if (statistics.matches[i] == 0) smoothed_matches /= 2;
    const auto matches = statistics.matches[i] > 0 ? static_cast<double>(statistics.matches[i]) : smoothed_matches;
    precisions[i] = 100 * matches / static_cast<double>(statistics.ngrams[i]);
  }
  return precisions;
}

}  // namespace

std::string bleu_signature(const BleuOptions& options) {
  return fmt::format("nrefs:1|case:{}|eff:no|tok:{}|smooth:exp|version:{}", options.lowercase ? "lc" : "mixed",
                     options.is_tokenized ? "none" : "13a", sacrebleu_version);
}

std::vector<std::string> bleu_tokens(std::string_view line, const BleuOptions& options) {
  const auto text = options.lowercase ? lower_case(line) : std::string(line);
  return options.is_tokenized ? split_words(text) : tokenize_13a(without_trailing_space(text));
}

BleuStatistics& BleuStatistics::operator+=(const BleuStatistics& other) {
  hypothesis_length += other.hypothesis_length;
  reference_length += other.reference_length;
  for (std::size_t i = 0; i < orders; ++i) {
    ngrams[i] += other.ngrams[i];
    matches[i] += other.matches[i];
  }
  return *this;
}

BleuStatistics bleu_statistics(std::string_view hypothesis, std::string_view reference, const BleuOptions& options) {
  const auto tokens = bleu_tokens(hypothesis, options), expected = bleu_tokens(reference, options);
  BleuStatistics statistics{.hypothesis_length = count_ngrams(tokens, 1),
                            .reference_length = count_ngrams(expected, 1)};
  for (std::size_t i = 0; i < BleuStatistics::orders; ++i) {
    statistics.ngrams[i] = count_ngrams(tokens, i + 1);
    statistics.matches[i] = count_common_ngrams(tokens, expected, i + 1);
  }
  return statistics;
}

BleuScore bleu(const BleuStatistics& statistics) {
  BleuScore score{.brevity_penalty = brevity_penalty(static_cast<double>(statistics.hypothesis_length),
                                                     static_cast<double>(statistics.reference_length))};
  if (statistics.matches[0] == 0) return score;  // an n-gram that matches has words that do
  score.precisions = smoothed_precisions(statistics);
  double sum_of_logarithms = 0;
  for (const auto precision : score.precisions) sum_of_logarithms += std::log(precision);  // of 0: -inf, and BLEU is 0
  score.bleu = score.brevity_penalty * std::exp(sum_of_logarithms / BleuStatistics::orders);
  return score;
}

}  // namespace metaformer
