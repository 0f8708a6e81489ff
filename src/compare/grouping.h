#pragma once
// Puts runs that differ only in their seed into groups, and says what differs between the groups.

#include "compare/comparison.h"

namespace metaformer {

// Groups in the order of their first runs, without metrics; each is its own reference. Runs of other data than the
// first one (with a key `by`: than the first with its value of that key), and second runs of a group with the same
// seed, are named in the notes and left out.
std::vector<ComparedGroup> group_runs(std::vector<RunRecord> given, const std::string& by,
                                      std::vector<std::string>& notes);

// The config keys that are not equal in all groups, sorted, and their values into ComparedGroup::settings.
std::vector<std::string> find_differing_keys(std::vector<ComparedGroup>& groups);

// Sets every group's reference: the group that `reference` names, or the first one; with `by`, of those that are equal
// in that key. Errors (exit code 2): no such group, several of them, or no group with such a key.
void choose_references(std::vector<ComparedGroup>& groups, const ComparisonOptions& options);

}  // namespace metaformer
