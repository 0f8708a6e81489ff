#pragma once
// Combinations of option values that contain every pair of values of different options, as few as a greedy choice
// needs: most faults depend on at most two values (Kuhn, Wallace, Gallo, "Software fault interactions", 2004).

#include <algorithm>
#include <array>
#include <set>
#include <vector>

namespace metaformer {

using Choice = std::vector<std::size_t>;  // the index of the value of each option

// Advances to the next choice of options with `counts` values; false after the last.
inline bool advance(Choice& choice, const Choice& counts) {
  for (std::size_t i = 0; i < choice.size(); ++i) {
    if (++choice[i] < counts[i]) return true;
    choice[i] = 0;
  }
  return false;
}

// A subset of `all` possible choices, as indices, that contains every pair of values that any of them contains.
inline std::vector<std::size_t> pairwise(const std::vector<Choice>& all) {
  using Pairs = std::set<std::array<std::size_t, 4>>;
  const auto pairs_of = [](const Choice& choice) {
    Pairs pairs;
    for (std::size_t i = 0; i < choice.size(); ++i)
      for (std::size_t j = 0; j <= i; ++j) pairs.insert({i, choice[i], j, choice[j]});
    return pairs;
  };
  std::vector<Pairs> missing_in;  // for each choice its pairs that the subset lacks
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

// The pairwise choices of options with these numbers of values.
inline std::vector<Choice> pairwise_choices(const Choice& counts) {
  std::vector<Choice> all, taken;
  Choice choice(counts.size());
  do all.push_back(choice);
  while (advance(choice, counts));
  for (const auto i : pairwise(all)) taken.push_back(all[i]);
  return taken;
}

}  // namespace metaformer
