#include "data/datasets/packed_documents.h"

namespace metaformer {

PackedDocuments::PackedDocuments(std::array<std::vector<TextPiece>, 2> pieces, std::int64_t context,
                                 const PackingConfig& config)
    : pieces_(std::move(pieces)) {
  for (const auto& of_split : pieces_) {
    std::vector<std::int64_t> lengths;
    for (const auto& piece : of_split) lengths.push_back(piece.length);
    orders_.emplace_back(lengths, context, config);
  }
}

std::int64_t PackedDocuments::tokens(Split split) const {
  std::int64_t tokens = 0;
  for (const auto& piece : pieces_.at(static_cast<std::size_t>(split))) tokens += piece.length;
  return tokens;
}

std::vector<TextPack> PackedDocuments::packs_at(Split split, std::uint64_t seed, std::int64_t first,
                                                std::int64_t count) const {
  std::vector<TextPack> packs;
  for (auto place = first; place < first + count; ++place) {
    auto& pack = packs.emplace_back();
    for (const auto index : order(split).at(seed, place))
      pack.push_back(pieces_[static_cast<std::size_t>(split)][index]);
  }
  return packs;
}

std::vector<TextPack> PackedDocuments::random_packs(Split split, std::uint64_t seed, std::int64_t index,
                                                    std::int64_t count) const {
  const Rng rng(seed, RandomPurpose::evaluation, static_cast<std::uint64_t>(index));
  std::vector<TextPack> packs;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto place = rng.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(order(split).packs()));
    packs.push_back(packs_at(split, seed, static_cast<std::int64_t>(place), 1).front());
  }
  return packs;
}

}  // namespace metaformer
