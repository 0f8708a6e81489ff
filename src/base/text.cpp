#include "base/text.h"

#include <fmt/format.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>
#include <utf8.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/utf8.h"

namespace metaformer {

// Like std::from_chars, but for the whole text: invalid_argument if characters are left over.
template <class Number>
static std::errc parse_all(std::string_view text, Number& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return stop == text.data() + text.size() ? error : std::errc::invalid_argument;
}

WholeNumber parse_whole_number(std::string_view text, std::int64_t& value) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  std::int64_t whole = 0;
  const auto error = parse_all(text, whole);
  if (error == std::errc::result_out_of_range) return WholeNumber::too_large;
  if (error == std::errc()) {
    value = whole;
    return WholeNumber::valid;
  }
  constexpr double largest_exact = 9007199254740992;  // 2^53
  double number = 0;
  const auto other_error = parse_all(text, number);
  const bool is_tiny = text.find("e-") != std::string_view::npos || text.find("E-") != std::string_view::npos;
  if (other_error == std::errc::result_out_of_range) return is_tiny ? WholeNumber::malformed : WholeNumber::too_large;
  if (other_error != std::errc() || !std::isfinite(number) || number != std::trunc(number))
    return WholeNumber::malformed;
  if (std::abs(number) > largest_exact) return WholeNumber::too_large;
  value = static_cast<std::int64_t>(number);
  return WholeNumber::valid;
}

std::string join_alternatives(const std::vector<std::string>& words) {
  if (words.size() < 2) return fmt::format("{}", fmt::join(words, ""));
  return fmt::format("{} or {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

// Levenshtein distance in which an exchange of two neighbours counts once (optimal string alignment).
static std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (same ? 0 : 1)});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

std::string closest_match(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t longest_sensible = 100;  // the distance is quadratic in the length
  if (word.size() > longest_sensible) return "";
  std::string best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const auto& candidate : candidates) {
    if (candidate.size() > longest_sensible) continue;
    const auto distance = edit_distance(word, candidate);
    if (distance < best_distance) std::tie(best_distance, best) = std::pair(distance, candidate);
  }
  const auto tolerated = std::max<std::size_t>(1, std::max(word.size(), best.size()) / 3);
  return best_distance <= tolerated ? best : "";
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const auto match = closest_match(word, candidates);
  return match.empty() ? "" : fmt::format("; did you mean '{}'?", match);
}

// Whether a terminal would interpret or hide the character: C0 and C1 controls, DEL, direction marks, line separators.
static bool acts_on_terminals(char32_t point) {
  return point < 0x20 || (point >= 0x7F && point < 0xA0) || point == 0x061C || point == 0x200E || point == 0x200F ||
         (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
}

static std::string escape_of(char32_t point) {
  if (point == '\n') return "\\n";
  if (point == '\t') return "\\t";
  if (point == '\r') return "\\r";
  const auto number = static_cast<std::uint32_t>(point);
  return point < 0x7F ? fmt::format("\\x{:02x}", number) : fmt::format("\\u{:04x}", number);
}

static std::string escape(std::string_view text, std::u32string_view harmless) {
  std::string shown;
  for (auto at = text.begin(); at != text.end();) {
    const auto valid = utf8::find_invalid(at, text.end());
    while (at != valid) {
      const auto start = at;
      const char32_t point = utf8::unchecked::next(at);
      const bool is_shown = !acts_on_terminals(point) || harmless.find(point) != harmless.npos;
      shown += is_shown ? std::string(start, at) : escape_of(point);
    }
    if (at != text.end()) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(*at++));
  }
  return shown;
}

std::string escaped(std::string_view text) { return escape(text, U""); }

std::string escaped_lines(std::string_view text) { return escape(text, U"\n\t"); }

std::string printable(std::string_view word) {
  constexpr std::size_t longest = 60;
  if (word.size() <= longest) return escaped(word);
  auto end = longest;
  while (end > 0 && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) --end;  // does not cut within a character
  return escaped(word.substr(0, end)) + "...";
}

// Columns of a terminal that a character takes. `point` is negative for a byte that is not UTF-8.
static std::size_t columns_of(UChar32 point) {
  constexpr auto without_width = U_GC_MN_MASK | U_GC_ME_MASK | U_GC_CF_MASK;
  if (point < 0) return 1;
  if ((U_GET_GC_MASK(point) & without_width) != 0) return 0;
  const auto width = u_getIntPropertyValue(point, UCHAR_EAST_ASIAN_WIDTH);
  return width == U_EA_WIDE || width == U_EA_FULLWIDTH ? 2 : 1;
}

// Calls use(columns, end) for every character, with the place behind it, until `use` returns false.
template <class Use>
static void for_each_shown(std::string_view text, Use use) {
  for (std::size_t at = 0; at < text.size();) {
    UChar32 point = 0;
    U8_NEXT(text.data(), at, text.size(), point);
    if (!use(columns_of(point), at)) return;
  }
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for_each_shown(text, [&](std::size_t columns, std::size_t) {
    width += columns;
    return true;
  });
  return width;
}

std::string_view first_columns(std::string_view text, std::size_t width) {
  std::size_t bytes = 0, taken = 0;
  for_each_shown(text, [&](std::size_t columns, std::size_t end) {
    if (taken + columns > width) return false;
    taken += columns;
    bytes = end;
    return true;
  });
  return text.substr(0, bytes);
}

// The first byte of the longest end that takes at most `width` columns and does not begin with a combining mark.
static std::size_t longest_end(std::string_view text, std::size_t width) {
  std::size_t begin = 0, left = display_width(text);
  for_each_shown(text, [&](std::size_t columns, std::size_t end) {
    if (left <= width && columns > 0) return false;
    left -= columns;
    begin = end;
    return true;
  });
  return begin;
}

std::string cut_in_middle(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  const auto kept = std::max<std::size_t>(width, 1) - 1;
  const auto beginning = first_columns(text, kept / 2);
  return fmt::format("{}…{}", beginning, text.substr(longest_end(text, kept - display_width(beginning))));
}

std::string in_quotes(std::string_view value) { return "'" + printable(value) + "'"; }

std::string shell_word(std::string_view word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+:,@%=";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return std::string(word);
  return "'" + replaced(word, "'", R"('\'')") + "'";
}

std::string without_last_break(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array units = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string with_noun(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string human_count(double count) {
  if (count < 10) return fmt::format("{:.2g}", count);
  if (count < 1e3) return fmt::format("{:.0f}", count);
  if (count < 1e6) return fmt::format("{:.1f}k", count / 1e3);
  return fmt::format("{:.2f}M", count / 1e6);
}

std::string human_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (auto at = text.find(from); at != text.npos; at = text.find(from)) {
    (result += text.substr(0, at)) += to;
    text.remove_prefix(at + from.size());
  }
  return result += text;
}

std::string_view take_line(std::string_view& text) {
  const auto line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view white_space = " \t\n\v\f\r";
  const auto first = std::min(text.find_first_not_of(white_space), text.size());
  return text.substr(first, text.find_last_not_of(white_space) + 1 - first);
}

std::string quoted_list(const std::vector<std::string>& names) {
  constexpr std::size_t most_shown = 10;
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(names.size(), most_shown); ++i) shown.push_back(in_quotes(names[i]));
  if (names.size() > most_shown) shown.push_back(fmt::format("... ({} in all)", names.size()));
  return names.empty() ? "none" : fmt::format("{}", fmt::join(shown, ", "));
}

}  // namespace metaformer
