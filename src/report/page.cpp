#include "report/page.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "report/figure.h"

namespace metaformer {

namespace {

// Only "<" could end the script element or start a comment in it. JSON has it only inside strings, where it can be
// escaped.
std::string script_safe(const std::string& json) {
  std::string result;
  result.reserve(json.size());
  for (const char letter : json)
    if (letter == '<')
      result += "\\u003c";
    else
      result += letter;
  return result;
}

// Puts values for @names@; text that was put in is not searched again.
std::string fill(std::string_view pattern, const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string result;
  while (!pattern.empty()) {
    const auto start = std::min(pattern.find('@'), pattern.size());
    result += pattern.substr(0, start);
    pattern.remove_prefix(start);
    const auto found = std::find_if(values.begin(), values.end(), [&](const auto& value) {
      return pattern.starts_with("@" + std::string(value.first) + "@");
    });
    if (found != values.end()) {
      result += found->second;
      pattern.remove_prefix(found->first.size() + 2);
    } else if (!pattern.empty()) {
      result += '@';
      pattern.remove_prefix(1);
    }
  }
  return result;
}

}  // namespace

std::string make_page(const std::string& title, const std::string& json) {
  const auto heading = figures::escape(title), palette = figures::palette_variables(), data = script_safe(json);
  return fill(embedded::html, {{"title", heading},
                               {"palette", palette},
                               {"style", embedded::style},
                               {"data", data},
                               {"d3_licence", embedded::d3_licence},
                               {"d3", embedded::d3},
                               {"script", embedded::script}});
}

}  // namespace metaformer
