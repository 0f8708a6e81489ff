#include "data/sources/group_split.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "base/random.h"

namespace metaformer {

std::vector<bool> hold_out_groups(const std::vector<std::string>& groups, double fraction) {
  std::map<std::string_view, std::int64_t> sizes;
  for (const auto& group : groups) ++sizes[group];
  std::vector<std::tuple<std::uint64_t, std::string_view, std::int64_t>> order;
  for (const auto& [name, size] : sizes) order.emplace_back(Rng::mix(hash_name(name)), name, size);
  std::sort(order.begin(), order.end());

  const auto wanted = std::llround(fraction * static_cast<double>(groups.size()));
  std::unordered_set<std::string_view> chosen;
  std::int64_t count = 0;
  for (const auto& [hash, name, size] : order) {
    if (count >= wanted) break;
    chosen.insert(name);
    count += size;
  }
  std::vector<bool> held_out;
  for (const auto& group : groups) held_out.push_back(chosen.contains(group));
  return held_out;
}

}  // namespace metaformer
