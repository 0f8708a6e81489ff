#include "data/packing/packed_order.h"

#include "base/random.h"

namespace metaformer {

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

// Sequences of a length go to its places in another order in every epoch; places without a sequence stay empty.
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
