#pragma once
// Small helpers for messages that people read.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

// "a, b or c"
std::string join_alternatives(const std::vector<std::string>& words);

// The candidate nearest to `word` by edit distance, or "" when none is near enough to be what was meant.
std::string closest_match(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean 'x'?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// A word as it may be shown inside one line: control characters escaped, cut after 60 bytes.
std::string printable(std::string_view word);

// The same between quotes.
std::string in_quotes(std::string_view value);

std::string human_bytes(std::uint64_t bytes);  // "1.5 GiB"
std::string human_count(double count);         // "12.3k"
std::string human_duration(double seconds);    // "1h02m", "3m20s", "12s"

}  // namespace metaformer
