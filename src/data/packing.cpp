#include "data/packing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace metaformer {

std::int64_t PackPlan::packs() const {
  std::int64_t packs = 0;
  for (const auto& kind : kinds) packs += kind.count;
  return packs;
}

PackPlan make_pack_plan(const LengthHistogram& histogram, const PackingConfig& config) {
  if (const auto* squares = std::get_if<LeastSquaresPackingConfig>(&config))
    return pack_by_least_squares(histogram, squares->depth);
  const auto* shortest = std::get_if<ShortestFirstPackingConfig>(&config);
  return pack_shortest_first(histogram, shortest == nullptr ? 1 : shortest->depth);
}

PackStats measure_packs(const LengthHistogram& histogram, const PackPlan& plan) {
  PackStats stats{.packs = plan.packs()};
  for (std::size_t length = 0; length < histogram.size(); ++length) {
    stats.sequences += histogram[length];
    stats.tokens += histogram[length] * static_cast<std::int64_t>(length);
  }
  if (stats.tokens == 0) return stats;
  const auto context = static_cast<double>(histogram.size() - 1);
  const auto sequences = static_cast<double>(stats.sequences), packs = static_cast<double>(stats.packs);
  stats.efficiency = static_cast<double>(stats.tokens) / (packs * context);
  stats.factor = sequences / packs;
  stats.speed_up_limit = sequences * context / static_cast<double>(stats.tokens);
  return stats;
}

namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b, std::size_t count) {
  return std::inner_product(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin(), 0.0);
}

double dot(const SparseColumn& column, const Vector& b) {
  double sum = 0;
  for (const auto& entry : column) sum += entry.value * b[static_cast<std::size_t>(entry.row)];
  return sum;
}

// The columns whose values may be above 0, with the Cholesky factor of their Gram matrix.
class PassiveSet {
 public:
  PassiveSet(const std::vector<SparseColumn>& columns, std::size_t rows) : columns_(columns), dense_(rows) {}

  const std::vector<std::size_t>& members() const { return members_; }

  // Returns false if the column is a linear combination of the members.
  bool add(std::size_t column) {
    for (const auto& entry : columns_[column]) dense_[static_cast<std::size_t>(entry.row)] = entry.value;
    const double square = dot(columns_[column], dense_);
    Vector row;
    for (const auto member : members_) row.push_back(dot(columns_[member], dense_));
    for (const auto& entry : columns_[column]) dense_[static_cast<std::size_t>(entry.row)] = 0;
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = (row[i] - dot(row, factor_[i], i)) / factor_[i][i];
    const double rest = square - dot(row, row, row.size());
    if (rest < 1e-10 * square) return false;
    row.push_back(std::sqrt(rest));
    factor_.push_back(std::move(row));
    members_.push_back(column);
    return true;
  }

  // Keeps the members whose index satisfies `keep`, and computes the factor again from the first removed member on.
  template <class Keep>
  void keep_if(Keep keep) {
    std::size_t first = 0;
    while (first < members_.size() && keep(first)) ++first;
    std::vector<std::size_t> behind;
    for (auto i = first; i < members_.size(); ++i)
      if (keep(i)) behind.push_back(members_[i]);
    members_.resize(first);
    factor_.resize(first);
    for (const auto column : behind) add(column);
  }

  // The least squares solution z of A z = b, where A has only the members as columns, in their order.
  Vector solve(const Vector& b) const {
    Vector z;
    for (std::size_t i = 0; i < members_.size(); ++i)
      z.push_back((dot(columns_[members_[i]], b) - dot(factor_[i], z, i)) / factor_[i][i]);
    for (auto i = z.size(); i-- > 0;) {
      z[i] /= factor_[i][i];
      for (std::size_t j = 0; j < i; ++j) z[j] -= factor_[i][j] * z[i];
    }
    return z;
  }

 private:
  const std::vector<SparseColumn>& columns_;
  std::vector<std::size_t> members_;
  std::vector<Vector> factor_;  // lower triangle, by rows
  Vector dense_;
};

// Moves x to the least squares solution of the members, and removes the members that become 0 on the way.
void settle(PassiveSet& passive, const Vector& b, double nothing, Vector& x) {
  while (true) {
    const auto z = passive.solve(b);
    const auto& members = passive.members();
    double step = 1;  // how far x may go towards z so that none of the members falls below 0
    for (std::size_t i = 0; i < members.size(); ++i)
      if (const double from = x[members[i]]; z[i] <= 0) step = std::min(step, from / (from - z[i]));
    const bool all_stay = std::ranges::all_of(z, [](double value) { return value > 0; });
    std::vector<bool> stays(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
      auto& value = x[members[i]];
      value = all_stay ? z[i] : value + step * (z[i] - value);
      stays[i] = z[i] > 0 || value > 1e-3 * nothing;
      if (!stays[i]) value = 0;
    }
    if (all_stay) return;
    passive.keep_if([&](std::size_t i) { return stays[i]; });
  }
}

// Adds every way to fill `room` with at most `depth` lengths in non-descending order, the first at least `shortest` <=
// room.
void add_fillings(std::int64_t room, std::int64_t shortest, std::int64_t depth, PackKind& begun,
                  std::vector<PackKind>& all) {
  if (room == 0) return all.push_back(begun);
  const auto add = [&](std::int64_t length) {
    begun.lengths.push_back(length);
    add_fillings(room - length, length, depth - 1, begun, all);
    begun.lengths.pop_back();
  };
  for (auto length = shortest; depth > 1 && length <= room / 2; ++length) add(length);
  add(room);
}

// The weight of the residual of a length: short sequences cost little padding.
double weight_of(std::int64_t length) {
  constexpr std::int64_t short_length = 8;
  return length <= short_length ? 0.09 : 1;
}

SparseColumn column_of(const PackKind& kind) {
  SparseColumn column;
  for (const auto length : kind.lengths) {  // equal lengths are neighbours
    if (column.empty() || column.back().row != length) column.push_back({length, 0});
    column.back().value += weight_of(length);
  }
  return column;
}

// A plan can have more places for a length than there are sequences. If sequences take places in the order of the plan,
// the last packs of a kind can stay empty; these are removed.
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

std::vector<double> nonnegative_least_squares(const std::vector<SparseColumn>& columns, const std::vector<double>& b) {
  Vector x(columns.size());
  PassiveSet passive(columns, b.size());
  std::vector<bool> is_out(columns.size());  // no step along them makes the residual smaller
  double nothing = 0;                        // values up to this may be rounding errors
  for (const auto value : b) nothing = std::max(nothing, 1e-10 * std::abs(value));
  while (true) {
    auto residual = b;  // b - A x
    for (const auto j : passive.members())
      for (const auto& entry : columns[j]) residual[static_cast<std::size_t>(entry.row)] -= entry.value * x[j];
    std::size_t best = columns.size();
    double steepest = nothing;
    for (std::size_t j = 0; j < columns.size(); ++j) {
      if (is_out[j] || x[j] > 0) continue;
      if (const double s = dot(columns[j], residual); s > steepest) steepest = s, best = j;
    }
    if (best == columns.size()) return x;
    is_out[best] = true;
    if (!passive.add(best)) continue;
    if (passive.solve(b).back() <= 0) {  // by rounding: its slope is 0
      passive.keep_if([&](std::size_t i) { return i + 1 < passive.members().size(); });
      continue;
    }
    std::fill(is_out.begin(), is_out.end(), false);
    settle(passive, b, nothing, x);
  }
}

PackPlan pack_by_least_squares(const LengthHistogram& histogram, std::int64_t depth) {
  const auto context = std::ssize(histogram) - 1;
  PackPlan plan;
  PackKind begun;
  add_fillings(context, 1, depth, begun, plan.kinds);
  std::vector<SparseColumn> columns;
  for (const auto& kind : plan.kinds) columns.push_back(column_of(kind));
  std::vector<double> weighted;
  for (std::int64_t length = 0; length <= context; ++length)
    weighted.push_back(weight_of(length) * static_cast<double>(histogram[static_cast<std::size_t>(length)]));
  const auto counts = nonnegative_least_squares(columns, weighted);
  for (std::size_t i = 0; i < counts.size(); ++i) plan.kinds[i].count = std::llround(counts[i]);
  std::erase_if(plan.kinds, [](const PackKind& kind) { return kind.count == 0; });
  auto left = histogram;  // sequences without a place
  for (const auto& kind : plan.kinds)
    for (const auto length : kind.lengths) left[static_cast<std::size_t>(length)] -= kind.count;
  for (auto& count : left) count = std::max<std::int64_t>(count, 0);
  for (auto& kind : pack_shortest_first(left, depth).kinds) plan.kinds.push_back(std::move(kind));
  drop_empty_packs(plan, histogram);
  return plan;
}

PackPlan pack_shortest_first(const LengthHistogram& histogram, std::int64_t depth) {
  const auto context = std::ssize(histogram) - 1;
  PackPlan plan;
  std::vector<std::vector<PackKind>> open(histogram.size());  // packs that can take another sequence, by their room
  const auto put = [&](PackKind pack, std::int64_t room) {
    const bool is_full = room == 0 || (depth > 0 && std::ssize(pack.lengths) == depth);
    (is_full ? plan.kinds : open[static_cast<std::size_t>(room)]).push_back(std::move(pack));
  };
  for (auto length = context; length > 0; --length) {
    auto left = histogram[static_cast<std::size_t>(length)];
    for (auto room = context; left > 0 && room >= length;) {
      auto& packs = open[static_cast<std::size_t>(room)];
      if (packs.empty()) {
        --room;
        continue;
      }
      auto longer = std::move(packs.back());
      packs.pop_back();
      if (longer.count > left) packs.push_back({longer.lengths, longer.count - left});
      longer.count = std::min(longer.count, left);
      longer.lengths.push_back(length);
      left -= longer.count;
      put(std::move(longer), room - length);
    }
    if (left > 0) put({{length}, left}, context - length);
  }
  for (auto& packs : open)
    for (auto& pack : packs) plan.kinds.push_back(std::move(pack));
  return plan;
}

LengthHistogram length_histogram(const std::vector<std::int64_t>& lengths, std::int64_t context) {
  LengthHistogram histogram(static_cast<std::size_t>(context) + 1);
  for (const auto length : lengths) ++histogram.at(static_cast<std::size_t>(length));
  return histogram;
}

PackStats measure_packing(const std::vector<std::int64_t>& lengths, std::int64_t context, const PackingConfig& config) {
  const auto histogram = length_histogram(lengths, context);
  return measure_packs(histogram, make_pack_plan(histogram, config));
}

PackedOrder::PackedOrder(const std::vector<std::int64_t>& lengths, std::int64_t context, const PackingConfig& config)
    : sequences_(static_cast<std::size_t>(context) + 1),
      plan_(make_pack_plan(length_histogram(lengths, context), config)),
      packs_(plan_.packs()) {
  for (std::size_t i = 0; i < lengths.size(); ++i) sequences_.at(static_cast<std::size_t>(lengths[i])).push_back(i);
}

// The sequences of a length are put into its places in a new random order every epoch; places without a sequence stay
// empty.
PackedOrder::Packs PackedOrder::deal(std::uint64_t seed, std::int64_t epoch) const {
  const Rng rng(seed, RandomPurpose::batches, static_cast<std::uint64_t>(epoch));
  auto left = sequences_;
  for (std::size_t length = 0; length < left.size(); ++length) shuffle(left[length], Rng::with_key(rng.bits(length)));
  Packs packs;
  for (const auto& kind : plan_.kinds) {
    for (std::int64_t i = 0; i < kind.count; ++i) {
      std::vector<std::size_t> pack;
      for (const auto length : kind.lengths) {
        auto& sequences = left[static_cast<std::size_t>(length)];
        if (sequences.empty()) continue;
        pack.push_back(sequences.back());
        sequences.pop_back();
      }
      packs.push_back(std::move(pack));
    }
  }
  shuffle(packs, Rng::with_key(rng.bits(left.size())));
  return packs;
}

const std::vector<std::size_t>& PackedOrder::at(std::uint64_t seed, std::int64_t place) const {
  if (const auto key = std::pair(seed, place / packs_); epoch_key_ != key) {
    epoch_ = deal(seed, key.second);
    epoch_key_ = key;
  }
  return epoch_[static_cast<std::size_t>(place % packs_)];
}

}  // namespace metaformer
