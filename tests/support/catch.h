#pragma once
// Catch2, version 2 or 3, a matcher for messages, and reasons for test cases that assert nothing.
#include <sstream>
#include <string>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
inline auto ContainsSubstring(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif

// Matches a message with all `parts`, separated by '|', in this order: a key, a line, a value, a word of the rule.
inline auto Mentions(const std::string& parts) {
  const auto matches = [parts](const std::string& message) {
    std::istringstream each(parts);
    std::size_t at = 0;
    for (std::string part; std::getline(each, part, '|'); at += part.size())
      if ((at = message.find(part, at)) == std::string::npos) return false;
    return true;
  };
  return Catch::Matchers::Predicate<std::string>(matches, "mentions " + parts);
}

inline std::uint64_t skips = 0;  // in this run of the executable

// For a test case that this machine cannot run: prints the reason. CTest reports a case that only skips as skipped
// (support/main.cpp).
inline void skip(const std::string& reason) {
  WARN("skipped: " << reason);
  SUCCEED();  // every case must assert something (--warn NoAssertions)
  ++skips;
}

// For a generated value to which the property does not apply.
inline void does_not_apply(const std::string& reason) { SUCCEED(reason); }
