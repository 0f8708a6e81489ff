#pragma once
// Writing to standard output.

#include <nlohmann/json.hpp>
#include <string>

namespace metaformer {

// JSON as one line. Bytes that are not UTF-8 are replaced, and control characters are escaped.
std::string to_line(const nlohmann::ordered_json& json);

// A result for programs: one line of JSON on stdout.
void print_json(const nlohmann::ordered_json& json);

// Writes text to stdout. Throws Error when that fails, for example on a full disk.
void print(const std::string& text);

// The same with control characters escaped, except line breaks and tabs.
void print_lines(const std::string& text);

}  // namespace metaformer
