#pragma once
// The documents of a text in packs.

#include <array>
#include <vector>

#include "data/datasets/text_dataset.h"
#include "data/packing/packed_order.h"

namespace metaformer {

class PackedDocuments {
 public:
  // `pieces`: of the training and the validation split, of 1 ... context tokens each.
  PackedDocuments(std::array<std::vector<TextPiece>, 2> pieces, std::int64_t context, const PackingConfig& config);

  std::int64_t packs(Split split) const { return order(split).packs(); }  // of every epoch
  std::int64_t tokens(Split split) const;                                 // of all pieces

  // Packs of the endless series of epochs, from the place `first` on: a function of (seed, place).
  std::vector<TextPack> packs_at(Split split, std::uint64_t seed, std::int64_t first, std::int64_t count) const;

  // Packs drawn from the first epoch: a function of (seed, index).
  std::vector<TextPack> random_packs(Split split, std::uint64_t seed, std::int64_t index, std::int64_t count) const;

 private:
  const PackedOrder& order(Split split) const { return orders_.at(static_cast<std::size_t>(split)); }

  std::array<std::vector<TextPiece>, 2> pieces_;
  std::vector<PackedOrder> orders_;  // by Split, as these
};

}  // namespace metaformer
