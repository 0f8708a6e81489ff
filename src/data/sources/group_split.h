#pragma once
// A validation split of whole groups: reviews of one film, neighbouring ids.

#include <string>
#include <vector>

namespace metaformer {

// Which items are held out, given the name of each item's group. The groups are ordered by a stable hash of their names
// and held out one after the other until they have `fraction` of the items: the count is exact to the last group, and a
// larger fraction holds out the same groups and more.
std::vector<bool> hold_out_groups(const std::vector<std::string>& groups, double fraction);

}  // namespace metaformer
