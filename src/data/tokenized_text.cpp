#include "data/tokenized_text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"
#include "text/make_tokenizer.h"

namespace metaformer {

namespace {

EncodedChunk encode(const Tokenizer& tokenizer, const TextChunk& chunk) {
  EncodedChunk encoded{.bytes = std::ssize(chunk.text), .characters = count_characters(chunk.text)};
  const std::string_view text = chunk.text;
  const bool restores = tokenizer.restores_text();
  if (!restores) encoded.lost.emplace();
  const auto encode_part = [&](std::string_view part) {
    const auto ids = tokenizer.encode(part);
    encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
    if (restores) return;
    const auto bytes = tokenizer.token_bytes(part);
    encoded.token_bytes.insert(encoded.token_bytes.end(), bytes.begin(), bytes.end());
    const auto unknown = tokenizer.unknown_id();
    const bool is_known = !unknown || std::ranges::find(ids, *unknown) == ids.end();
    encoded.is_restored = encoded.is_restored && is_known && tokenizer.decode(ids) == part;
    const auto lost = tokenizer.lost(part);
    if (!lost) encoded.lost.reset();
    if (!lost || !encoded.lost) return;
    encoded.lost->resize(lost->size());
    for (std::size_t kind = 0; kind < lost->size(); ++kind) (*encoded.lost)[kind] += (*lost)[kind];
  };
  for (std::size_t begin = 0, next = 0; begin < text.size();) {
    const bool is_start = next < chunk.document_starts.size() && chunk.document_starts[next] == begin;
    if (is_start) encoded.document_starts.push_back(std::ssize(encoded.ids)), ++next;
    const auto end = next < chunk.document_starts.size() ? chunk.document_starts[next] : text.size();
    encode_part(text.substr(begin, end - begin));
    begin = end;
  }
  return encoded;
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_trail(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

void TextStatistics::AdaptiveCode::add(std::string_view bytes) {
  for (const char byte : bytes) {
    auto& count = counts.at(static_cast<unsigned char>(byte));
    bits -= std::log2((static_cast<double>(count++) + 0.5) / (before++ + 128));
  }
}

void TextStatistics::add(const EncodedChunk& chunk) {
  tokens_ += std::ssize(chunk.ids);
  characters_ += chunk.characters;
  bytes_ += chunk.bytes;
  documents_ += std::ssize(chunk.document_starts);
  for (const auto id : chunk.ids) ++counts_.at(static_cast<std::size_t>(id));
  is_restored_ = is_restored_ && chunk.is_restored;
  if (chunk.token_bytes.empty() && chunk.is_restored) return;
  if (!chunk.lost) return void(is_lost_known_ = false);
  lost_.resize(std::max(lost_.size(), chunk.lost->size()));
  for (std::size_t kind = 0; kind < chunk.lost->size(); ++kind) lost_[kind].add((*chunk.lost)[kind]);
}

void TextStatistics::add(const TextStatistics& other) {
  tokens_ += other.tokens_;
  characters_ += other.characters_;
  bytes_ += other.bytes_;
  documents_ += other.documents_;
  for (std::size_t id = 0; id < counts_.size(); ++id) counts_[id] += other.counts_[id];
  is_restored_ = is_restored_ && other.is_restored_;
  is_lost_known_ = is_lost_known_ && other.is_lost_known_;
  lost_.insert(lost_.end(), other.lost_.begin(), other.lost_.end());
}

double TextStatistics::unigram_entropy() const {
  double entropy = 0;
  for (const auto count : counts_)
    if (const auto fraction = static_cast<double>(count) / static_cast<double>(tokens_); count > 0)
      entropy -= fraction * std::log(fraction);
  return entropy;
}

std::optional<double> TextStatistics::lost_bits() const {
  if (is_restored_) return 0;
  if (!is_lost_known_) return std::nullopt;
  double bits = 0;
  for (const auto& kind : lost_) bits += kind.bits;
  return bits;
}

std::int64_t TextStatistics::unknown_characters(const Tokenizer& tokenizer) const {
  const auto unknown = tokenizer.unknown_id();
  if (!unknown || count_of(*unknown) == 0) return 0;
  auto characters = characters_;
  for (std::int32_t id = 0; id < std::ssize(counts_); ++id)
    if (const auto count = count_of(id); count > 0 && id != *unknown)
      characters -= count * count_characters(tokenizer.decode(std::vector{id}));
  return characters;
}

nlohmann::ordered_json TextStatistics::to_json() const {
  auto lost = nlohmann::ordered_json::array();
  for (const auto& kind : lost_)
    lost.push_back({{"bits", kind.bits}, {"before", kind.before}, {"counts", kind.counts}});
  return {{"tokens", tokens_},
          {"characters", characters_},
          {"bytes", bytes_},
          {"documents", documents_},
          {"is_restored", is_restored_},
          {"is_lost_known", is_lost_known_},
          {"lost", std::move(lost)},
          {"counts", counts_}};
}

std::optional<TextStatistics> TextStatistics::from_json(const nlohmann::json& json) try {
  TextStatistics statistics(0);
  json.at("tokens").get_to(statistics.tokens_);
  json.at("characters").get_to(statistics.characters_);
  json.at("bytes").get_to(statistics.bytes_);
  json.at("documents").get_to(statistics.documents_);
  json.at("is_restored").get_to(statistics.is_restored_);
  json.at("is_lost_known").get_to(statistics.is_lost_known_);
  json.at("counts").get_to(statistics.counts_);
  for (const auto& kind : json.at("lost")) {
    auto& code = statistics.lost_.emplace_back();
    kind.at("bits").get_to(code.bits);
    kind.at("before").get_to(code.before);
    kind.at("counts").get_to(code.counts);
  }
  return statistics;
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

TextEncoder::TextEncoder(const Tokenizer& tokenizer, int threads, UseChunk use)
    : tokenizer_(tokenizer), threads_(static_cast<std::size_t>(threads)), use_(std::move(use)) {}

TextEncoder::~TextEncoder() {
  for (auto& chunk : encoded_) chunk.wait();
}

void TextEncoder::add(std::string_view piece, bool starts_document) {
  while (!piece.empty()) {  // in small steps, so that a large piece does not take its size once more
    if (std::exchange(starts_document, false)) rest_.document_starts.push_back(rest_.text.size());
    const auto taken = std::min(piece.size(), chunk_bytes + range_ - rest_.text.size());
    rest_.text += piece.substr(0, taken);
    piece.remove_prefix(taken);
    if (rest_.text.size() < chunk_bytes + range_) continue;
    if (const auto cut = find_cut(); cut > 0) {
      encode_first(cut);
      range_ = cut_range;
      continue;
    }
    range_ *= 2;
    if (chunk_bytes + range_ > longest_uncut)
      fail_data(
          "a document of more than {} has no place where the tokenizer may cut it; divide it, or set "
          "data.tokenizer.kind to byte",
          human_bytes(longest_uncut));
  }
}

void TextEncoder::finish() {
  if (!rest_.text.empty()) encode_first(rest_.text.size());
  while (!encoded_.empty()) use_first();
  range_ = cut_range;
}

// A place at which `rest_`, of chunk_bytes + range_ bytes, may be cut: the last start of a document, else the first
// place behind chunk_bytes that changes no token; 0 if there is none.
std::size_t TextEncoder::find_cut() const {
  if (!rest_.document_starts.empty() && rest_.document_starts.back() > 0) return rest_.document_starts.back();
  const auto& text = rest_.text;
  constexpr int most_trials = 1000;
  const auto first = chunk_bytes + (range_ == cut_range ? 0 : range_ / 2);
  const auto find = [&](auto is_candidate) -> std::size_t {
    int trials = 0;
    for (auto at = first; at + 1 < text.size() && trials < most_trials; ++at)
      if (is_candidate(at) && (++trials, may_cut(at))) return at;
    return 0;
  };
  const auto before_space = find([&](std::size_t at) { return is_space(text[at]) && !is_space(text[at - 1]); });
  return before_space > 0 ? before_space : find([&](std::size_t at) { return !is_trail(text[at]); });
}

// Whether the tokens around the place are the same with and without the cut. Each side of it has some words.
bool TextEncoder::may_cut(std::size_t at) const {
  constexpr std::size_t around = 256;
  const std::string_view text = rest_.text;
  auto begin = at - around, end = std::min(at + around, text.size());
  while (begin > 0 && is_trail(text[begin])) --begin;
  while (end < text.size() && is_trail(text[end])) ++end;
  for (auto place = begin; place < at; ++place)  // from the start of a word on
    if (is_space(text[place])) {
      begin = place;
      break;
    }
  auto parts = tokenizer_.encode(text.substr(begin, at - begin));
  const auto second = tokenizer_.encode(text.substr(at, end - at));
  parts.insert(parts.end(), second.begin(), second.end());
  return parts == tokenizer_.encode(text.substr(begin, end - begin));
}

void TextEncoder::encode_first(std::size_t length) {
  throw_if_stopped();
  TextChunk chunk, rest{.text = rest_.text.substr(length), .document_starts = {}};
  chunk = std::move(rest_);
  chunk.text.resize(length);
  for (const auto start : chunk.document_starts)
    if (start >= length) rest.document_starts.push_back(start - length);
  std::erase_if(chunk.document_starts, [&](std::size_t start) { return start >= length; });
  rest_ = std::move(rest);
  if (encoded_.size() >= threads_) use_first();
  encoded_.push_back(
      std::async(std::launch::async, [this, own = std::move(chunk)] { return encode(tokenizer_, own); }));
}

void TextEncoder::use_first() {
  auto first = std::move(encoded_.front());
  encoded_.pop_front();
  use_(first.get());
}

int encoding_threads() {
  const char* given = std::getenv("OMP_NUM_THREADS");
  const auto count = given == nullptr ? std::nullopt : as_number<int>(given);
  return std::clamp(count.value_or(static_cast<int>(std::thread::hardware_concurrency())), 1, 64);
}

namespace {

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

// Encodes one part of a text, in memory.
TokenizedSplit encode_split(std::string_view text, std::vector<std::size_t> starts, const Tokenizer& tokenizer) {
  if (starts.empty()) starts = {0};
  std::vector<std::int32_t> ids, bytes;
  std::vector<std::int64_t> documents;
  TextStatistics statistics(tokenizer.vocabulary_size());
  TextEncoder encoder(tokenizer, encoding_threads(), [&](EncodedChunk&& chunk) {
    for (const auto start : chunk.document_starts) documents.push_back(std::ssize(ids) + start);
    ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    bytes.insert(bytes.end(), chunk.token_bytes.begin(), chunk.token_bytes.end());
    statistics.add(chunk);
  });
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto end = i + 1 < starts.size() ? starts[i + 1] : text.size();
    encoder.add(text.substr(starts[i], end - starts[i]), true);
  }
  encoder.finish();
  return {.tokens = TokenArray(std::move(ids)),
          .token_bytes = TokenArray(std::move(bytes)),
          .document_starts = std::move(documents),
          .statistics = std::move(statistics)};
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

TokenizedText encode_corpus(const Corpus& corpus, const TextDataConfig& config,
                            std::shared_ptr<const Tokenizer> tokenizer) {
  if (!tokenizer) tokenizer = make_text_tokenizer(corpus, config);
  const auto texts = split_corpus(corpus, config);
  const auto starts = split_document_starts(corpus, texts[0].size());
  TokenizedText encoded{.path = corpus.path,
                        .description = corpus.description,
                        .tokenizer = tokenizer,
                        .drops_whitespace = drops_whitespace(config.tokenizer),
                        .splits = {}};
  try {
    for (std::size_t split = 0; split < texts.size(); ++split)
      encoded.splits[split] = encode_split(texts[split], starts[split], *tokenizer);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}; it is not the text this tokenizer was made from",
                                          corpus.path.string(), error.what()));
  }
  return encoded;
}

TokenizedText encode_whole(const std::filesystem::path& path, const TextDataConfig& config,
                           std::shared_ptr<const Tokenizer> tokenizer) {
  const auto files = read_text_files(path, config);
  TokenizedText encoded{.path = path,
                        .description = files.description,
                        .tokenizer = std::move(tokenizer),
                        .drops_whitespace = drops_whitespace(config.tokenizer),
                        .splits = {}};
  try {
    encoded.splits[0] = encode_split(files.text, files.document_starts, *encoded.tokenizer);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", path.string(), error.what()));
  }
  encoded.splits[1] = encoded.splits[0];
  return encoded;
}

}  // namespace metaformer
