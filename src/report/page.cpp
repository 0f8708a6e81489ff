#include "report/page.h"

#include <string_view>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "figures/colors.h"
#include "figures/svg.h"
#include "report/embedded_files.h"

namespace metaformer {

namespace {

// Only "<" could end the script element or start a comment in it. JSON has it only inside strings, where it can be
// escaped.
std::string script_safe(const std::string& json) {
  std::string result;
  result.reserve(json.size());
  for (const char letter : json) {
    if (letter == '<')
      result += "\\u003c";
    else
      result += letter;
  }
  return result;
}

// Puts values for @names@; text that was put in is not searched again.
std::string fill(std::string_view pattern, const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string result;
  while (!pattern.empty()) {
    const auto start = pattern.find('@');
    result += pattern.substr(0, start);
    if (start == pattern.npos) break;
    pattern.remove_prefix(start);
    bool found = false;
    for (const auto& [name, value] : values) {
      const auto mark = "@" + std::string(name) + "@";
      if (!pattern.starts_with(mark)) continue;
      result += value;
      pattern.remove_prefix(mark.size());
      found = true;
      break;
    }
    if (found) continue;
    result += '@';
    pattern.remove_prefix(1);
  }
  return result;
}

}  // namespace

std::string make_page(const std::string& title, const nlohmann::ordered_json& data) {
  const auto json = script_safe(json_text(data));
  const auto heading = figures::escape(title), palette = figures::palette_variables();
  return fill(embedded::html, {{"title", heading},
                               {"palette", palette},
                               {"style", embedded::style},
                               {"data", json},
                               {"d3_licence", embedded::d3_licence},
                               {"d3", embedded::d3},
                               {"script", embedded::script}});
}

}  // namespace metaformer
