#include "text/character_statistics.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "base/utf8.h"

namespace metaformer {

CharacterStatistics::CharacterStatistics()
    : seen_(UCHAR_MAX_VALUE + 1), counts_(static_cast<std::size_t>(u_getIntPropertyMaxValue(UCHAR_SCRIPT)) + 1) {}

void CharacterStatistics::add(std::string_view text) {
  for_each_code_point(text, [&](char32_t point) {
    ++characters_;
    seen_[point] = true;
    const auto c = static_cast<UChar32>(point);
    if (u_isalpha(c) == 0) return;
    auto error = U_ZERO_ERROR;
    const auto script = point < 0x80 ? USCRIPT_LATIN : uscript_getScript(c, &error);
    if (script > USCRIPT_INHERITED) ++counts_.at(static_cast<std::size_t>(script));
  });
}

std::int64_t CharacterStatistics::distinct() const { return std::ranges::count(seen_, true); }

std::int64_t CharacterStatistics::letters() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
}

std::vector<std::pair<std::string, double>> CharacterStatistics::scripts() const {
  std::vector<std::pair<std::string, double>> found;
  const auto all = static_cast<double>(letters());
  for (std::size_t script = 0; script < counts_.size(); ++script)
    if (counts_[script] > 0)
      found.emplace_back(uscript_getName(static_cast<UScriptCode>(script)), static_cast<double>(counts_[script]) / all);
  std::ranges::stable_sort(found, std::greater(), &std::pair<std::string, double>::second);
  return found;
}

double CharacterStatistics::fraction_without_spaces() const {
  constexpr std::array scripts = {USCRIPT_HAN, USCRIPT_HIRAGANA, USCRIPT_KATAKANA, USCRIPT_BOPOMOFO, USCRIPT_THAI,
                                  USCRIPT_LAO, USCRIPT_KHMER,    USCRIPT_MYANMAR,  USCRIPT_TIBETAN};
  std::int64_t without = 0;
  for (const auto script : scripts) without += counts_[static_cast<std::size_t>(script)];
  const auto all = letters();
  return all == 0 ? 0 : static_cast<double>(without) / static_cast<double>(all);
}

}  // namespace metaformer
