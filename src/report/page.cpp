#include "report/page.h"

#include <map>
#include <regex>

#include "report/figure.h"

namespace metaformer {

namespace {

// Only "<" could end the script element or start a comment in it. JSON has it only inside strings, where it can be
// escaped.
std::string script_safe(const std::string& json) {
  std::string result;
  result.reserve(json.size());
  for (const char letter : json) letter == '<' ? result += "\\u003c" : result += letter;
  return result;
}

// Puts values for @names@; text that was put in is not searched again.
std::string fill(std::string_view pattern, const std::map<std::string, std::string_view>& values) {
  static const std::regex name("@([a-z0-9_]+)@");
  std::string result;
  const auto* rest = pattern.begin();
  for (std::cregex_iterator match(pattern.begin(), pattern.end(), name), end; match != end; ++match) {
    result.append(rest, (*match)[0].first);
    result += values.at((*match)[1]);
    rest = (*match)[0].second;
  }
  return result.append(rest, pattern.end());
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
