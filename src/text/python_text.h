#pragma once
// Text as Python's str has it: the published scorers are written in Python, and scores depend on what it calls a
// character, white space and lower case.

#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

// The code points of UTF-8. A byte that is not valid stands for 0xDC00 + byte, as with Python's error handler
// surrogateescape, so that a scorer refuses no text.
std::u32string code_points(std::string_view text);

// As str.isspace.
bool is_white_space(char32_t point);

// As str.split: the words between white space.
std::vector<std::string> split_words(std::string_view text);

// As str.rstrip.
std::string_view without_trailing_space(std::string_view text);

// As str.lower, with the letters of Unicode 17. Bytes that are not valid stay. Which signs and letters beside a capital
// sigma make it a final one is known of those that occur in Greek, Latin and Cyrillic text.
std::string lower_case(std::string_view text);

}  // namespace metaformer
