#pragma once
// Text for people: error messages, numbers, lists.

#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace metaformer {

// fail_usage throws an Error with exit code 2, fail_data one with exit code 3.
template <class... Values>
[[noreturn]] void fail_usage(fmt::format_string<Values...> what, Values&&... values) {
  throw Error(ExitCode::usage, fmt::format(what, std::forward<Values>(values)...));
}
template <class... Values>
[[noreturn]] void fail_data(fmt::format_string<Values...> what, Values&&... values) {
  throw Error(ExitCode::data, fmt::format(what, std::forward<Values>(values)...));
}

// Whole numbers as people write them: 12, +3, -4, also 1e3 and 2.5e2.
enum class WholeNumber {
  valid,
  malformed,  // not a number, or with a fraction
  too_large,  // whole, but not between -2^63 and 2^63 - 1, or with an exponent and not exact in double precision
};

// Sets `value` if the text is valid.
WholeNumber parse_whole_number(std::string_view text, std::int64_t& value);

// Reads the whole text as a number; nothing for other text. A plus sign is not allowed, a fraction or exponent only for
// a floating-point type.
template <class Number>
std::optional<Number> as_number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// "a, b or c"
std::string join_alternatives(const std::vector<std::string>& words);

// The candidate nearest to `word` by edit distance, or "" if none is near enough.
std::string closest_match(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean 'x'?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// Text that is safe on one line of a terminal: control characters (including ESC, line breaks, and those that
// reverse the direction of writing) and bytes that are not UTF-8 become \n, \x1b, \u009b.
std::string escaped(std::string_view text);

// Like `escaped`, but line breaks and tabs stay, for results of several lines.
std::string escaped_lines(std::string_view text);

// `escaped` for one word, cut after 60 bytes.
std::string printable(std::string_view word);

// The columns of a terminal that a text takes: two for a wide character of East Asia, none for a combining mark.
std::size_t display_width(std::string_view text);

// The longest beginning that takes at most `width` columns.
std::string_view first_columns(std::string_view text, std::size_t width);

// The text if it takes at most `width` columns, else its beginning and its end with "…" between them.
std::string cut_in_middle(std::string_view text, std::size_t width);

// `printable` between quotes.
std::string in_quotes(std::string_view value);

// A word for a shell: as it is, or in single quotes if a character means something to the shell.
std::string shell_word(std::string_view word);

std::string with_noun(std::int64_t count, std::string_view noun);  // "1 run", "2 runs"
std::string human_bytes(std::uint64_t bytes);                      // "1.5 GiB"
std::string without_last_break(std::string text);                  // "text\r\n" -> "text"
std::string human_count(double count);                             // "12.3k"
std::string human_duration(double seconds);                        // "1h02m", "3m20s", "12s"

// Replaces every `from` by `to`; the replacements are not searched again.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

// Takes the first line off `text`, and returns it without its line feed.
std::string_view take_line(std::string_view& text);

// Removes ASCII white space on both sides.
std::string_view trim(std::string_view text);

// Names in quotes for a message; if there are more than ten, the first ten and their number.
std::string quoted_list(const std::vector<std::string>& names);

}  // namespace metaformer
