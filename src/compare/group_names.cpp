#include "compare/group_names.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace metaformer {

namespace {

// The length of what all words start with, up to the last underscore in it.
std::size_t common_start(const std::vector<std::string>& words) {
  auto common = words.front();
  for (const auto& word : words) {
    const auto differ = std::mismatch(common.begin(), common.end(), word.begin(), word.end()).first;
    common.erase(differ, common.end());
  }
  const auto end = common.rfind('_');
  return end == std::string::npos ? 0 : end + 1;
}

std::string shortened(const std::string& name, std::size_t start) {
  std::istringstream words(name.substr(start));
  std::string result;
  for (std::string word; words >> word;) {
    constexpr std::string_view ending = ".yaml";
    if (const auto at = word.find('='); at != std::string::npos)
      word.erase(0, std::min(word.rfind('.', at) + 1, at));
    else if (word.ends_with(ending))
      word.resize(word.size() - ending.size());
    result += (result.empty() ? "" : " ") + word;
  }
  return result;
}

}  // namespace

std::vector<std::string> short_names(const Comparison& comparison) {
  std::vector<std::string> configs, whole, names;
  for (const auto& group : comparison.groups) {
    configs.push_back(group.runs.front().config);
    whole.push_back(group.name);
  }
  const bool all_equal = std::all_of(configs.begin(), configs.end(), [&](auto& name) { return name == configs[0]; });
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const bool has_overrides = whole[i].size() > configs[i].size();
    const auto start = !all_equal ? common_start(configs) : has_overrides ? configs[i].size() : 0;
    names.push_back(shortened(whole[i], start));
  }
  const bool unique = std::set(names.begin(), names.end()).size() == names.size();
  return unique ? names : whole;
}

}  // namespace metaformer
