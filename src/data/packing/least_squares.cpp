#include <algorithm>
#include <cmath>

#include "data/packing/nonnegative_least_squares.h"
#include "data/packing/pack_plan.h"

namespace metaformer {

namespace {

// Every way to fill `room` with at most `depth` lengths that do not fall, the first at least `shortest`.
void add_fillings(std::int64_t room, std::int64_t shortest, std::int64_t depth, PackKind& begun,
                  std::vector<PackKind>& all) {
  if (room == 0) return all.push_back(begun);
  if (depth == 0) return;
  const auto last = depth == 1 ? room : room / 2;
  const auto add = [&](std::int64_t length) {
    begun.lengths.push_back(length);
    add_fillings(room - length, length, depth - 1, begun, all);
    begun.lengths.pop_back();
  };
  for (auto length = depth == 1 ? room : shortest; length <= last; ++length) add(length);
  if (depth > 1 && room >= shortest) add(room);
}

// The residual of a length counts this much: short ones cost little padding.
double weight_of(std::int64_t length) {
  constexpr std::int64_t short_length = 8;
  return length <= short_length ? 0.09 : 1;
}

SparseColumn column_of(const PackKind& kind) {
  SparseColumn column;
  for (const auto length : kind.lengths) {
    const double weight = weight_of(length);
    if (!column.empty() && column.back().row == length)  // equal lengths are neighbours
      column.back().value += weight;
    else
      column.push_back({length, weight});
  }
  return column;
}

std::vector<double> weighted(const LengthHistogram& histogram) {
  std::vector<double> b;
  for (std::int64_t length = 0; length < std::ssize(histogram); ++length)
    b.push_back(weight_of(length) * static_cast<double>(histogram[static_cast<std::size_t>(length)]));
  return b;
}

// Sequences without a place.
LengthHistogram left_over(LengthHistogram histogram, const PackPlan& plan) {
  for (const auto& kind : plan.kinds)
    for (const auto length : kind.lengths) histogram[static_cast<std::size_t>(length)] -= kind.count;
  return histogram;
}

// Lengths can have more places than sequences. Where sequences take the places in the order of the plan, packs would
// stay empty: the last ones of a kind.
void drop_empty_packs(PackPlan& plan, LengthHistogram left) {
  for (auto& kind : plan.kinds) {
    std::int64_t filled = 0;  // packs
    for (const auto length : kind.lengths) {
      const auto places = std::count(kind.lengths.begin(), kind.lengths.end(), length);
      filled = std::max(filled, (left[static_cast<std::size_t>(length)] + places - 1) / places);
    }
    kind.count = std::min(kind.count, filled);
    for (const auto length : kind.lengths) {
      auto& sequences = left[static_cast<std::size_t>(length)];
      sequences -= std::min(sequences, kind.count);
    }
  }
  std::erase_if(plan.kinds, [](const PackKind& kind) { return kind.count == 0; });
}

}  // namespace

PackPlan pack_by_least_squares(const LengthHistogram& histogram, std::int64_t depth) {
  const auto context = std::ssize(histogram) - 1;
  PackPlan plan;
  PackKind begun;
  add_fillings(context, 1, depth, begun, plan.kinds);
  std::vector<SparseColumn> columns;
  for (const auto& kind : plan.kinds) columns.push_back(column_of(kind));
  const auto counts = nonnegative_least_squares(columns, weighted(histogram));
  for (std::size_t i = 0; i < counts.size(); ++i) plan.kinds[i].count = std::llround(counts[i]);
  std::erase_if(plan.kinds, [](const PackKind& kind) { return kind.count == 0; });
  auto left = left_over(histogram, plan);
  for (auto& count : left) count = std::max<std::int64_t>(count, 0);
  for (auto& kind : pack_shortest_first(left, depth).kinds) plan.kinds.push_back(std::move(kind));
  drop_empty_packs(plan, histogram);
  return plan;
}

}  // namespace metaformer
