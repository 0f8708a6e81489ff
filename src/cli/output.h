#pragma once
// What commands write to standard output.

#include <nlohmann/json.hpp>
#include <string>

namespace metaformer {

// JSON as one line; what is not UTF-8 is replaced, and what a terminal would act on escaped.
std::string to_line(const nlohmann::ordered_json& json);

// A result for programs: one line of JSON on stdout.
void print_json(const nlohmann::ordered_json& json);

// Text to stdout; throws Error when nobody can receive it (a full disk).
void print(const std::string& text);

// The same for people: what a terminal would act on is escaped, but for line breaks and tabs.
void print_lines(const std::string& text);

}  // namespace metaformer
