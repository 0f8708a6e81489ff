#pragma once
// Combinations of the values of several options, as few as a greedy choice needs for any two values of different
// options to meet in one: most faults need no more than two (Kuhn, Wallace, Gallo, "Software fault interactions",
// 2004).

#include <algorithm>
#include <array>
#include <set>
#include <vector>

namespace metaformer {

using Choice = std::vector<std::size_t>;  // the number of the value that each option has

// The next choice of options with so many values, or false after the last.
inline bool advance(Choice& choice, const Choice& counts) {
  for (std::size_t i = 0; i < choice.size(); ++i) {
    if (++choice[i] < counts[i]) return true;
    choice[i] = 0;
  }
  return false;
}

// Of `all` that are possible, those in which every two values meet that meet in any; by their places in `all`.
inline std::vector<std::size_t> pairwise(const std::vector<Choice>& all) {
  using Pairs = std::set<std::array<std::size_t, 4>>;
  const auto pairs_of = [](const Choice& choice) {
    Pairs pairs;
    for (std::size_t i = 0; i < choice.size(); ++i)
      for (std::size_t j = 0; j <= i; ++j) pairs.insert({i, choice[i], j, choice[j]});
    return pairs;
  };
  std::vector<Pairs> missing_in;  // of each choice, its pairs that have not met
  for (const auto& choice : all) missing_in.push_back(pairs_of(choice));
  std::vector<std::size_t> taken;
  do {
    const auto best = std::max_element(missing_in.begin(), missing_in.end(),
                                       [](const auto& one, const auto& other) { return one.size() < other.size(); });
    const auto met = *best;
    taken.push_back(static_cast<std::size_t>(best - missing_in.begin()));
    for (auto& missing : missing_in) std::erase_if(missing, [&](const auto& pair) { return met.contains(pair); });
  } while (std::any_of(missing_in.begin(), missing_in.end(), [](const auto& missing) { return !missing.empty(); }));
  return taken;
}

// Those of options with so many values.
inline std::vector<Choice> pairwise_choices(const Choice& counts) {
  std::vector<Choice> all, taken;
  Choice choice(counts.size());
  do all.push_back(choice);
  while (advance(choice, counts));
  for (const auto i : pairwise(all)) taken.push_back(all[i]);
  return taken;
}

}  // namespace metaformer
