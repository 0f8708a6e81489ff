#include "overlap/chrf.h"

#include <fmt/format.h>

#include "overlap/ngrams.h"
#include "overlap/python_text.h"
#include "overlap/sacrebleu_version.h"

namespace metaformer {

static std::u32string without_white_space(std::string_view text) {
  auto points = code_points(text);
  std::erase_if(points, is_white_space);
  return points;
}

std::string chrf_signature() {
  return fmt::format("nrefs:1|case:mixed|eff:yes|nc:{}|nw:0|space:no|version:{}", ChrfStatistics::orders,
                     sacrebleu_version);
}

ChrfStatistics& ChrfStatistics::operator+=(const ChrfStatistics& other) {
  for (std::size_t i = 0; i < orders; ++i) {
    hypothesis[i] += other.hypothesis[i];
    reference[i] += other.reference[i];
    matches[i] += other.matches[i];
  }
  return *this;
}

ChrfStatistics chrf_statistics(std::string_view hypothesis, std::string_view reference) {
  const auto characters = without_white_space(hypothesis), expected = without_white_space(reference);
  ChrfStatistics statistics;
  for (std::size_t i = 0; i < ChrfStatistics::orders; ++i) {
    statistics.reference[i] = count_ngrams(expected, i + 1);
    statistics.hypothesis[i] = statistics.reference[i] > 0 ? count_ngrams(characters, i + 1) : 0;
    statistics.matches[i] = count_common_ngrams(characters, expected, i + 1);
  }
  return statistics;
}

double chrf(const ChrfStatistics& statistics) {
  constexpr double beta_squared = 4;
  double precisions = 0, recalls = 0;
  int used_orders = 0;
  for (std::size_t i = 0; i < ChrfStatistics::orders; ++i) {
    if (statistics.hypothesis[i] == 0 || statistics.reference[i] == 0) continue;
    const auto matches = static_cast<double>(statistics.matches[i]);
    precisions += matches / static_cast<double>(statistics.hypothesis[i]);
    recalls += matches / static_cast<double>(statistics.reference[i]);
    ++used_orders;
  }
  if (precisions == 0) return 0;  // nothing matches
  return 100 * (1 + beta_squared) * precisions * recalls / (beta_squared * precisions + recalls) / used_orders;
}

}  // namespace metaformer
