#include "yaml/yaml_error.h"

#include <yaml-cpp/yaml.h>

#include <sstream>

namespace metaformer {

namespace {

// The line with that number, from 0.
std::string line_of(const std::string& text, int number) {
  std::istringstream stream(text);
  std::string line;
  for (int i = 0; i <= number; ++i)
    if (!std::getline(stream, line)) return "";
  return line;
}

// What is not closed; "" where the error is another one.
std::string unclosed_bracket(const std::string& message, const std::string& line, int column) {
  if (message == YAML::ErrorMsg::END_OF_SEQ_FLOW) return "[";
  if (message == YAML::ErrorMsg::END_OF_MAP_FLOW) return "{";
  if (message != YAML::ErrorMsg::FLOW_END || column < 0 || static_cast<std::size_t>(column) >= line.size()) return "";
  return line[static_cast<std::size_t>(column)] == '}' ? "[" : "{";
}

}  // namespace

YamlError describe_yaml_error(const YAML::Exception& error, const std::string& text) {
  const auto& mark = error.mark;
  const auto line = line_of(text, mark.line);
  const int number = mark.line + 1, column = mark.column + 1;
  if (const auto bracket = unclosed_bracket(error.msg, line, mark.column); !bracket.empty())
    return {number, column, "not valid YAML: a '" + bracket + "' is not closed"};
  // Of such a line yaml-cpp says that its value is illegal.
  const auto tab = line.substr(0, line.find_first_not_of(" \t")).find('\t');
  if (tab != std::string::npos) return {number, static_cast<int>(tab) + 1, "indented with a tab; use spaces"};
  return {number, column, "not valid YAML: " + error.msg};
}

}  // namespace metaformer
