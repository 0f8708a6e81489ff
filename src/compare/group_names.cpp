#include "compare/group_names.h"

#include <algorithm>
#include <iterator>
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

// Of a group's name after its config, "KEY=VALUE" words, and a number where the name was not unique.
std::vector<std::string> words_after_config(const ComparedGroup& group) {
  std::istringstream text(group.name.substr(std::min(group.name.size(), group.runs.front().config.size())));
  return {std::istream_iterator<std::string>(text), {}};
}

// "score_std=0.3" for "model.mixer.score_std=0.3".
std::string shortened(std::string word) {
  if (const auto at = word.find('='); at != std::string::npos) word.erase(0, std::min(word.rfind('.', at) + 1, at));
  return word;
}

std::set<std::string> words_of_all(const std::vector<std::vector<std::string>>& groups) {
  std::set<std::string> common(groups.front().begin(), groups.front().end());
  for (const auto& words : groups)
    std::erase_if(common, [&](const auto& word) { return std::find(words.begin(), words.end(), word) == words.end(); });
  return common;
}

}  // namespace

std::string without_ending(const std::string& name) {
  constexpr std::string_view ending = ".yaml";
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : name;
}

std::vector<std::string> short_names(const std::vector<ComparedGroup>& groups) {
  std::vector<std::string> configs, whole, names;
  std::vector<std::vector<std::string>> words;
  for (const auto& group : groups) {
    configs.push_back(without_ending(group.runs.front().config));
    whole.push_back(group.name);
    words.push_back(words_after_config(group));
  }
  const auto common = words_of_all(words);
  const auto different = std::set(configs.begin(), configs.end()).size();
  const bool is_one_config = different == 1, has_own_config = different == groups.size();
  const auto start = common_start(configs);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    auto name = is_one_config ? "" : configs[i].substr(start);
    for (const auto& word : words[i])
      if (!common.contains(word) && (is_one_config || !has_own_config))
        name += (name.empty() ? "" : " ") + shortened(word);
    names.push_back(name.empty() ? configs[i] : name);
  }
  const bool unique = std::set(names.begin(), names.end()).size() == names.size();
  return unique ? names : whole;
}

}  // namespace metaformer
