#include "data/masking.h"

#include <algorithm>
#include <cmath>

namespace metaformer {

namespace {

// The random numbers that are drawn for a token.
enum class Draw : std::uint64_t { target, replacement, random_token };
std::uint64_t index_of(std::int64_t place, Draw draw) {
  constexpr std::uint64_t draws = 3;
  return draws * static_cast<std::uint64_t>(place) + static_cast<std::uint64_t>(draw);
}

}  // namespace

Masking::Masking(const MaskedLanguageModelConfig& config, const Tokenizer& tokenizer)
    : config_(config), tokenizer_(tokenizer), vocabulary_(tokenizer.vocabulary_size()) {}

std::int64_t Masking::seen(std::int64_t id, const Rng& rng, std::int64_t place) const {
  const double draw = rng.uniform(index_of(place, Draw::replacement));
  if (draw < config_.masked) return mask_token();
  if (draw >= config_.masked + config_.random) return id;
  return static_cast<std::int64_t>(
      rng.below(index_of(place, Draw::random_token), static_cast<std::uint64_t>(vocabulary_)));
}

void Masking::mask(TokenRows& rows, std::int64_t first, std::int64_t length, const Rng& rng, std::int64_t place,
                   bool by_sequence) const {
  std::vector<std::pair<std::int64_t, double>> words;  // where each begins, and its draw
  double least = 1;
  for (std::int64_t i = 0; i < length; ++i) {
    const auto* ids = rows.ids.data() + first + i;
    if (i > 0 && config_.whole_words &&
        !tokenizer_.begins_word(static_cast<std::int32_t>(ids[0]), static_cast<std::int32_t>(ids[-1])))
      continue;
    words.emplace_back(i, rng.uniform(index_of(place + i, Draw::target)));
    least = std::min(least, words.back().second);
  }
  words.emplace_back(length, 1);
  const auto before = rows.places.size();
  for (std::size_t word = 0; word + 1 < words.size(); ++word) {
    const auto [begin, draw] = words[word];
    if (draw >= config_.fraction && draw > least) continue;
    for (auto i = begin; i < words[word + 1].first; ++i) {
      const auto at = static_cast<std::size_t>(first + i);
      rows.places.push_back(first + i);
      rows.targets[at] = rows.ids[at];
      rows.ids[at] = seen(rows.ids[at], rng, place + i);
    }
  }
  const auto count = static_cast<std::int64_t>(rows.places.size() - before);
  rows.target_count += count;
  if (!by_sequence) return;
  for (auto at = before; at < rows.places.size(); ++at)
    rows.target_weights[static_cast<std::size_t>(rows.places[at])] = 1.0F / static_cast<float>(count);
}

template <class DrawsOf>
void Masking::mask_packs(TokenRows& rows, const std::vector<TextPack>& packs, bool by_sequence,
                         DrawsOf draws_of) const {
  rows.targets.assign(rows.ids.size(), -1);
  if (by_sequence) rows.target_weights.assign(rows.ids.size(), 0);
  for (std::size_t row = 0; row < packs.size(); ++row) {
    const auto row_start = static_cast<std::int64_t>(row) * rows.length;
    std::int64_t column = 0;
    for (const auto& piece : packs[row]) {
      const auto [rng, place] = draws_of(static_cast<std::int64_t>(row), column, piece);
      mask(rows, row_start + column, piece.length, rng, place, by_sequence);
      column += piece.length;
    }
  }
}

void Masking::mask_for_training(TokenRows& rows, const std::vector<TextPack>& packs, std::uint64_t seed,
                                std::int64_t step, std::int64_t first_row) const {
  const Rng of_step(seed, RandomPurpose::masking, static_cast<std::uint64_t>(step));
  mask_packs(rows, packs, config_.loss == LossUnit::sequence,
             [&](std::int64_t row, std::int64_t column, const TextPiece&) {
               return std::pair(Rng::with_key(of_step.bits(static_cast<std::uint64_t>(first_row + row))), column);
             });
}

// The margin is larger for whole words, because the number of targets then varies more.
void Masking::pad_places(TokenRows& rows) const {
  const double margin = config_.whole_words ? 10 : 6;  // in standard deviations for tokens that are drawn independently
  const auto tokens = static_cast<double>(rows.ids.size());
  const double mean = tokens * config_.fraction, deviation = std::sqrt(mean * (1 - config_.fraction));
  const auto usual = static_cast<std::size_t>(std::min(std::ceil(mean + margin * deviation), tokens));
  if (rows.places.size() < usual) rows.places.resize(usual, -1);
}

void Masking::mask_for_evaluation(TokenRows& rows, const std::vector<TextPack>& packs, Split split) const {
  const Rng of_split(/*seed=*/0, RandomPurpose::masking, static_cast<std::uint64_t>(split));
  mask_packs(rows, packs, /*by_sequence=*/false,
             [&](std::int64_t, std::int64_t, const TextPiece& piece) { return std::pair(of_split, piece.start); });
}

}  // namespace metaformer
