#include "data/text_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "text/make_tokenizer.h"

namespace metaformer {

namespace {

// Byte offset of the n-th character.
std::size_t byte_offset(std::string_view text, std::int64_t character) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts && character-- == 0) return i;
  }
  return text.size();
}

// Where documents start in the two parts of split_corpus, the first of which has `train_bytes` bytes. A document that
// the split cuts is a document in each part.
std::array<std::vector<std::size_t>, 2> split_document_starts(const Corpus& corpus, std::size_t train_bytes) {
  if (corpus.held_out) return {corpus.document_starts, corpus.held_out_document_starts};
  const auto cut = std::ranges::lower_bound(corpus.document_starts, train_bytes);
  std::array<std::vector<std::size_t>, 2> starts = {{{corpus.document_starts.begin(), cut}, {0}}};
  for (auto start = cut; start != corpus.document_starts.end(); ++start)
    if (*start > train_bytes) starts[1].push_back(*start - train_bytes);
  return starts;
}

// How many of the `characters` of a text are not represented by known tokens of its `ids`. Only for tokenizers that
// restore known text (with white space kept, and characters and bytes).
std::int64_t count_unknown_characters(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                                      std::int64_t characters) {
  const auto unknown = tokenizer.unknown_id();
  if (!unknown || std::ranges::find(ids, *unknown) == ids.end()) return 0;
  std::vector<std::int64_t> lengths;  // by id
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
    lengths.push_back(count_characters(tokenizer.decode(std::vector{id})));
  for (const auto id : ids)
    if (id != *unknown) characters -= lengths[static_cast<std::size_t>(id)];
  return characters;
}

// The length of an adaptive code in bits: a byte that occurred c times among n before has the probability
// (c + 1/2) / (n + 128) (Krichevsky and Trofimov 1981).
double adaptive_code_bits(std::string_view bytes) {
  std::array<std::int64_t, 256> counts{};
  double bits = 0, before = 0;
  for (const char byte : bytes) {
    auto& count = counts.at(static_cast<unsigned char>(byte));
    bits -= std::log2((static_cast<double>(count++) + 0.5) / (before++ + 128));
  }
  return bits;
}

}  // namespace

std::array<std::string_view, 2> split_corpus(const Corpus& corpus, const TextDataConfig& config) {
  if (corpus.held_out) return {corpus.text, *corpus.held_out};
  const std::string_view text = corpus.text;
  const auto characters = static_cast<double>(count_characters(text));
  const auto cut = byte_offset(text, static_cast<std::int64_t>(characters * (1 - config.validation_fraction)));
  return {text.substr(0, cut), text.substr(cut)};
}

std::unique_ptr<Tokenizer> make_text_tokenizer(const Corpus& corpus, const TextDataConfig& config) {
  if (std::holds_alternative<CharacterTokenizerOptions>(config.tokenizer))
    return make_tokenizer(config.tokenizer, corpus.held_out ? corpus.text + *corpus.held_out : corpus.text);
  return obtain_tokenizer(config, split_corpus(corpus, config)[0], Unknown::refuse);
}

TextDataset::TextDataset(const Corpus& corpus, const TextDataConfig& config, std::int64_t context,
                         std::shared_ptr<const Tokenizer>& tokenizer)
    : context_(context) {
  if (!tokenizer) tokenizer = make_text_tokenizer(corpus, config);
  const auto texts = split_corpus(corpus, config);
  const bool by_document = config.separate_documents || packing_options(config.packing) != nullptr;
  const auto starts = split_document_starts(corpus, texts[0].size());
  bytes_of_id_.assign(static_cast<std::size_t>(tokenizer->vocabulary_size()), 0);
  for (const auto split : {Split::train, Split::validation}) {
    const auto at = static_cast<std::size_t>(split);
    auto& part = parts_[at];
    std::vector<std::string_view> documents;
    for (std::size_t i = 0; by_document && i < starts[at].size(); ++i) {
      const auto end = i + 1 < starts[at].size() ? starts[at][i + 1] : texts[at].size();
      documents.push_back(texts[at].substr(starts[at][i], end - starts[at][i]));
    }
    try {
      part = encode(texts[at], documents, *tokenizer);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}; it is not the text this tokenizer was made from",
                                            corpus.path.string(), error.what()));
    }
    if (!drops_whitespace(config.tokenizer))
      part.unknown_characters = count_unknown_characters(*tokenizer, part.tokens, part.characters);
    if (std::ssize(part.tokens) < context + 1)
      fail_data("{}: its {} split has {} tokens; model.context {} needs at least {}", corpus.path.string(),
                to_string(split), part.tokens.size(), context, context + 1);
  }
}

// Encodes document by document, each with the line break behind it, so that no token belongs to two documents; without
// documents it encodes the text as a whole.
TextDataset::Part TextDataset::encode(std::string_view text, const std::vector<std::string_view>& documents,
                                      const Tokenizer& tokenizer) {
  Part part{.characters = 0, .bytes = std::ssize(text)};
  if (documents.empty()) part.tokens = tokenizer.encode(text);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const auto ids = tokenizer.encode(documents[i]);
    part.tokens.insert(part.tokens.end(), ids.begin(), ids.end());
    part.documents.insert(part.documents.end(), ids.size(), static_cast<std::int32_t>(i));
  }
  part.characters = count_characters(text);
  const auto unknown = tokenizer.unknown_id();
  const bool is_known = !unknown || std::ranges::find(part.tokens, *unknown) == part.tokens.end();
  if (is_known && tokenizer.decode(part.tokens) == text) {
    part.lost_bits = 0;
    for (const auto id : part.tokens)
      if (auto& bytes = bytes_of_id_[static_cast<std::size_t>(id)]; bytes == 0)
        bytes = static_cast<std::int32_t>(tokenizer.decode(std::vector{id}).size());
    return part;
  }
  if (const auto lost = tokenizer.lost(text)) {
    part.lost_bits = 0;
    for (const auto& kind : *lost) *part.lost_bits += adaptive_code_bits(kind);
  }
  if (documents.empty()) part.token_bytes = tokenizer.token_bytes(text);
  for (const auto document : documents) {
    const auto bytes = tokenizer.token_bytes(document);
    part.token_bytes.insert(part.token_bytes.end(), bytes.begin(), bytes.end());
  }
  return part;
}

const TextDataset::Part& TextDataset::part(Split split) const {
  if (split == Split::test) fail_usage("a text corpus has a train and a validation split, no test split");
  return parts_[static_cast<std::size_t>(split)];
}

double TextDataset::unigram_entropy(Split split) const {
  std::vector<std::int64_t> counts(1 + static_cast<std::size_t>(std::ranges::max(tokens(split))));  // by id
  for (const auto token : tokens(split)) ++counts[static_cast<std::size_t>(token)];
  const auto all = static_cast<double>(tokens(split).size());
  double entropy = 0;
  for (const auto count : counts)
    if (const auto fraction = static_cast<double>(count) / all; count > 0) entropy -= fraction * std::log(fraction);
  return entropy;
}

std::vector<std::int64_t> TextDataset::random_starts(Split split, std::uint64_t seed, RandomPurpose purpose,
                                                     std::int64_t step, std::int64_t first, std::int64_t rows) const {
  const Rng rng(seed, purpose, static_cast<std::uint64_t>(step));
  const auto places = tokens(split).size() - static_cast<std::size_t>(context_);
  std::vector<std::int64_t> starts;
  for (auto row = first; row < first + rows; ++row)
    starts.push_back(static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(row), places)));
  return starts;
}

std::int64_t TextDataset::consecutive_window_count(Split split) const {
  const auto targets = static_cast<std::int64_t>(tokens(split).size()) - 1;
  return (targets + context_ - 1) / context_;
}

TokenRows TextDataset::consecutive_windows(Split split, std::int64_t first, std::int64_t rows) const {
  const auto last = std::min(first + rows, consecutive_window_count(split));
  std::vector<std::int64_t> starts;
  for (auto window = first; window < last; ++window) starts.push_back(window * context_);
  return windows(split, starts);
}

std::vector<TextPiece> TextDataset::pieces(Split split, std::int64_t context, std::int64_t left_out) const {
  const auto& document = documents(split);
  const auto size = std::ssize(document);
  std::vector<TextPiece> pieces;
  for (std::int64_t start = 0; start < size;) {
    const auto own = document[static_cast<std::size_t>(start)];
    const auto end = std::upper_bound(document.begin() + start, document.end(), own) - document.begin();
    for (const auto last = end - left_out; start < last; start += context)
      pieces.push_back({start, std::min(context, last - start)});
    start = end;
  }
  return pieces;
}

TokenRows TextDataset::rows_of(Split split, const std::vector<TextPack>& packs, bool separate) const {
  std::vector<std::vector<std::span<const std::int32_t>>> texts;
  for (const auto& pack : packs) {
    auto& own = texts.emplace_back();
    for (const auto& [start, length] : pack) own.emplace_back(tokens(split).begin() + start, length);
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
  const auto& source = tokens(split);
  auto batch = rows_of(split, packs, separate);
  batch.targets.assign(batch.ids.size(), -1);
  batch.target_bytes.assign(batch.ids.size(), 0);
  if (by_sequence) batch.target_weights.assign(batch.ids.size(), 0);
  for (std::size_t row = 0; row < packs.size(); ++row) {
    auto place = static_cast<std::int64_t>(row) * batch.length;
    for (const auto& [start, length] : packs[row]) {
      const auto next = source.begin() + start + 1;
      std::copy(next, next + length, batch.targets.begin() + place);
      for (std::int64_t i = 0; i < length; ++i)
        batch.target_bytes[static_cast<std::size_t>(place + i)] =
            bytes_at(part(split), static_cast<std::size_t>(start + 1 + i));
      if (by_sequence) std::fill_n(batch.target_weights.begin() + place, length, 1.0F / static_cast<float>(length));
      batch.target_count += length;
      place += length;
    }
  }
  return batch;
}

TokenRows TextDataset::windows(Split split, const std::vector<std::int64_t>& starts) const {
  const auto &source = tokens(split), &document = documents(split);
  const auto size = static_cast<std::int64_t>(source.size());
  TokenRows batch{.rows = static_cast<std::int64_t>(starts.size()), .length = context_};
  batch.ids.reserve(starts.size() * static_cast<std::size_t>(context_));
  batch.targets.reserve(batch.ids.capacity());
  for (const auto start : starts) {
    for (auto at = start; at < start + context_; ++at) {
      const bool inside = at + 1 < size;
      batch.target_bytes.push_back(inside ? bytes_at(part(split), static_cast<std::size_t>(at + 1)) : 0);
      batch.ids.push_back(inside ? source[static_cast<std::size_t>(at)] : 0);
      batch.targets.push_back(inside ? source[static_cast<std::size_t>(at + 1)] : -1);
      batch.target_count += inside;
      if (!document.empty()) batch.segments.push_back(inside ? document[static_cast<std::size_t>(at)] : -1);
    }
  }
  return batch;
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
