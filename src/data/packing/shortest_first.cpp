#include <limits>

#include "data/packing/pack_plan.h"

namespace metaformer {

namespace {

// Packs that can take another sequence, by the room that they have left.
class OpenPacks {
 public:
  OpenPacks(std::int64_t context, std::int64_t depth)
      : by_room_(static_cast<std::size_t>(context) + 1),
        depth_(depth == 0 ? std::numeric_limits<std::int64_t>::max() : depth) {}

  void add(PackKind pack, std::int64_t room) {
    const bool is_full = room == 0 || std::ssize(pack.lengths) == depth_;
    (is_full ? plan_.kinds : by_room_[static_cast<std::size_t>(room)]).push_back(std::move(pack));
  }

  std::vector<PackKind>& with_room(std::int64_t room) { return by_room_[static_cast<std::size_t>(room)]; }

  PackPlan finish() && {
    for (auto& packs : by_room_)
      for (auto& pack : packs) plan_.kinds.push_back(std::move(pack));
    return std::move(plan_);
  }

 private:
  std::vector<std::vector<PackKind>> by_room_;
  PackPlan plan_;
  std::int64_t depth_;
};

}  // namespace

PackPlan pack_shortest_first(const LengthHistogram& histogram, std::int64_t depth) {
  const auto context = std::ssize(histogram) - 1;
  OpenPacks open(context, depth);
  for (auto length = context; length > 0; --length) {
    auto left = histogram[static_cast<std::size_t>(length)];
    for (auto room = context; left > 0 && room >= length;) {
      auto& packs = open.with_room(room);
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
      open.add(std::move(longer), room - length);
    }
    if (left > 0) open.add({{length}, left}, context - length);
  }
  return std::move(open).finish();
}

}  // namespace metaformer
