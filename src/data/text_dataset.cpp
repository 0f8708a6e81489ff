#include "data/text_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

TextDataset::TextDataset(TokenizedText text, const TextDataConfig& config, std::int64_t context,
                         std::optional<std::int64_t> fewest_tokens)
    : text_(std::move(text)),
      context_(context),
      has_documents_(config.separate_documents || packing_options(config.packing) != nullptr) {
  const bool decodes = std::ranges::any_of(text_.splits, [](const auto& split) { return split.token_bytes.empty(); });
  for (std::int32_t id = 0; decodes && id < text_.tokenizer->vocabulary_size(); ++id)
    bytes_of_id_.push_back(static_cast<std::int32_t>(text_.tokenizer->decode(std::vector{id}).size()));
  for (const auto split : {Split::train, Split::validation})
    if (const auto count = tokens(split).size(); count < fewest_tokens.value_or(context + 1))
      fewest_tokens ? fail_data("{}: has {} tokens; the first has nothing before it, so {} are needed",
                                text_.path.string(), count, *fewest_tokens)
                    : fail_data("{}: its {} split has {} tokens; model.context {} needs at least {}",
                                text_.path.string(), to_string(split), count, context, context + 1);
  for (const auto& corpus : text_.mixture)
    if (corpus.tokens < context + 1)
      fail_data("{}: a corpus of the mixture has {} training tokens; model.context {} needs at least {}",
                text_.path.string(), corpus.tokens, context, context + 1);
}

TextDataset::TextDataset(const Corpus& corpus, const TextDataConfig& config, std::int64_t context,
                         std::shared_ptr<const Tokenizer>& tokenizer)
    : TextDataset(encode_corpus(corpus, config, tokenizer), config, context) {
  tokenizer = text_.tokenizer;
}

const TokenizedSplit& TextDataset::part(Split split) const {
  if (split == Split::test) fail_usage("a text corpus has a train and a validation split, no test split");
  return text_.splits[static_cast<std::size_t>(split)];
}

std::vector<std::int32_t> TextDataset::documents(Split split, std::int64_t first, std::int64_t count) const {
  const auto& starts = part(split).document_starts;
  auto next = std::ranges::upper_bound(starts, first);
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    while (next != starts.end() && *next <= first + i) ++next;
    numbers[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(next - starts.begin()) - 1;
  }
  return numbers;
}

std::vector<std::int32_t> TextDataset::bytes_of(Split split, std::int64_t first,
                                                const std::vector<std::int32_t>& tokens) const {
  if (const auto& bytes = part(split).token_bytes; !bytes.empty()) return bytes.slice(first, std::ssize(tokens));
  std::vector<std::int32_t> bytes;
  for (const auto id : tokens) bytes.push_back(bytes_of_id_[static_cast<std::size_t>(id)]);
  return bytes;
}

std::optional<std::int64_t> TextDataset::unknown_characters(Split split) const {
  const auto* known = statistics(split);
  if (known == nullptr || text_.drops_whitespace) return std::nullopt;
  return known->unknown_characters(*text_.tokenizer);
}

double TextDataset::unigram_entropy(Split split) const {
  if (const auto* known = statistics(split)) return known->unigram_entropy();
  TextStatistics counted(text_.tokenizer->vocabulary_size());
  constexpr std::int64_t piece = 1 << 20;
  for (std::int64_t first = 0; first < tokens(split).size(); first += piece)
    counted.add({.ids = tokens(split).slice(first, std::min(piece, tokens(split).size() - first))});
  return counted.unigram_entropy();
}

std::vector<std::int64_t> TextDataset::random_starts(Split split, std::uint64_t seed, RandomPurpose purpose,
                                                     std::int64_t step, std::int64_t first, std::int64_t rows) const {
  const Rng rng(seed, purpose, static_cast<std::uint64_t>(step));
  const TokenizedText::Corpus whole{.tokens = tokens(split).size()};
  double weights = 0;
  for (const auto& corpus : text_.mixture) weights += corpus.weight;
  const auto corpus_of = [&](std::uint64_t row) {
    if (text_.mixture.empty() || split != Split::train) return whole;
    auto place = rng.uniform(~row) * weights;  // another draw than that of the place in the corpus
    const auto found =
        std::ranges::find_if(text_.mixture, [&](const auto& corpus) { return (place -= corpus.weight) < 0; });
    return found == text_.mixture.end() ? text_.mixture.back() : *found;
  };
  std::vector<std::int64_t> starts;
  for (auto row = static_cast<std::uint64_t>(first); row < static_cast<std::uint64_t>(first + rows); ++row) {
    const auto corpus = corpus_of(row);
    starts.push_back(corpus.first +
                     static_cast<std::int64_t>(rng.below(row, static_cast<std::uint64_t>(corpus.tokens - context_))));
  }
  return starts;
}

std::int64_t TextDataset::consecutive_window_count(Split split) const {
  const auto targets = tokens(split).size() - 1;
  return (targets + context_ - 1) / context_;
}

TokenRows TextDataset::consecutive_windows(Split split, std::int64_t first, std::int64_t rows) const {
  const auto last = std::min(first + rows, consecutive_window_count(split));
  std::vector<std::int64_t> starts;
  for (auto window = first; window < last; ++window) starts.push_back(window * context_);
  return windows(split, starts);
}

std::vector<TextPiece> TextDataset::pieces(Split split, std::int64_t context, std::int64_t left_out) const {
  std::vector<TextPiece> pieces;
  if (!has_documents_) return pieces;
  const auto& starts = part(split).document_starts;
  for (std::size_t document = 0; document < starts.size(); ++document) {
    const auto end = document + 1 < starts.size() ? starts[document + 1] : tokens(split).size();
    for (auto start = starts[document]; start < end - left_out; start += context)
      pieces.push_back({start, std::min(context, end - left_out - start)});
  }
  return pieces;
}

TokenRows TextDataset::rows_of(Split split, const std::vector<TextPack>& packs, bool separate) const {
  std::vector<std::vector<std::int32_t>> own;  // tokens of every piece
  for (const auto& pack : packs)
    for (const auto& [start, length] : pack) own.push_back(tokens(split).slice(start, length));
  std::vector<std::vector<std::span<const std::int32_t>>> texts;
  for (auto next = own.begin(); const auto& pack : packs) {
    texts.emplace_back(next, next + std::ssize(pack));
    next += std::ssize(pack);
  }
  constexpr std::int64_t step = 8;  // for few shapes, since libraries may compile a kernel for each shape
  auto packed = pack_rows(texts, step, context_);
  TokenRows batch{.rows = packed.rows,
                  .length = packed.length,
                  .ids = std::move(packed.ids),
                  .segments = std::move(packed.segments),
                  .restarts = separate,
                  .sequences = std::ssize(packed.label_rows) / 2};
  if (!separate)
    for (auto& segment : batch.segments) segment = std::min<std::int64_t>(segment, 0);
  return batch;
}

TokenRows TextDataset::packed_rows(Split split, const std::vector<TextPack>& packs, bool separate,
                                   bool by_sequence) const {
  auto batch = rows_of(split, packs, separate);
  batch.targets.assign(batch.ids.size(), -1);
  batch.target_bytes.assign(batch.ids.size(), 0);
  if (by_sequence) batch.target_weights.assign(batch.ids.size(), 0);
  for (std::size_t row = 0; row < packs.size(); ++row) {
    auto place = static_cast<std::int64_t>(row) * batch.length;
    for (const auto& [start, length] : packs[row]) {
      const auto next = tokens(split).slice(start + 1, length);
      std::ranges::copy(next, batch.targets.begin() + place);
      std::ranges::copy(bytes_of(split, start + 1, next), batch.target_bytes.begin() + place);
      if (by_sequence) std::fill_n(batch.target_weights.begin() + place, length, 1.0F / static_cast<float>(length));
      batch.target_count += length;
      place += length;
    }
  }
  return batch;
}

TokenRows TextDataset::windows(Split split, const std::vector<std::int64_t>& starts) const {
  TokenRows batch{.rows = std::ssize(starts), .length = context_};
  const auto size = starts.size() * static_cast<std::size_t>(context_);
  batch.ids.assign(size, 0);
  batch.targets.assign(size, -1);
  batch.target_bytes.assign(size, 0);
  if (has_documents_) batch.segments.assign(size, -1);
  for (std::int64_t place = 0; const auto start : starts) {
    if (const auto count = std::min(context_, tokens(split).size() - 1 - start); count > 0) {
      const auto next = tokens(split).slice(start + 1, count);
      std::ranges::copy(tokens(split).slice(start, count), batch.ids.begin() + place);
      std::ranges::copy(next, batch.targets.begin() + place);
      std::ranges::copy(bytes_of(split, start + 1, next), batch.target_bytes.begin() + place);
      if (has_documents_) std::ranges::copy(documents(split, start, count), batch.segments.begin() + place);
      batch.target_count += count;
    }
    place += context_;
  }
  return batch;
}

void TextDataset::prefetch(Split split, const std::vector<std::int64_t>& starts) const {
  for (const auto start : starts) tokens(split).prefetch(start, context_ + 1);
}

void TextDataset::prefetch(Split split, const std::vector<TextPack>& packs) const {
  for (const auto& pack : packs)
    for (const auto& [start, length] : pack) tokens(split).prefetch(start, length + 1);
}

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
