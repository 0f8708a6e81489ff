#include "text/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

void SubwordLattice::add_node(const std::vector<Edge>& edges) {
  for (const auto& edge : edges) edges_.push_back({edge, 0});
  first_.push_back(static_cast<std::int32_t>(edges_.size()));
}

void SubwordLattice::weigh(double alpha) {
  constexpr double never = -std::numeric_limits<double>::infinity();
  alpha_ = alpha;
  std::vector<double> forward = {0};  // by node: logarithm of the sum over all paths to it
  for (std::size_t node = 1; node + 1 < first_.size(); ++node) {
    const auto begin = edges_.begin() + first_[node], end = edges_.begin() + first_[node + 1];
    const auto weight = [&](const Edge& edge) {
      return forward[static_cast<std::size_t>(edge.begin)] + alpha * edge.score;
    };
    double greatest = never, sum = 0;
    for (auto at = begin; at != end; ++at) greatest = std::max(greatest, weight(at->edge));
    if (greatest != never)
      for (auto at = begin; at != end; ++at) at->cumulative = sum += std::exp(weight(at->edge) - greatest);
    for (auto at = begin; at != end; ++at) at->cumulative /= sum;
    forward.push_back(greatest + std::log(sum));
  }
}

void SubwordLattice::draw(double alpha, double uniform, std::vector<std::int32_t>& ids) {
  if (alpha != alpha_) weigh(alpha);
  const auto before = ids.size();
  for (auto node = first_.size() - 2; node > 0;) {
    const auto begin = edges_.begin() + first_[node], end = edges_.begin() + first_[node + 1];
    auto drawn = std::upper_bound(begin, end, uniform, [](double u, const auto& edge) { return u < edge.cumulative; });
    if (drawn == end) --drawn;
    // The number's place within the edge's interval is uniform again.
    const double below = drawn == begin ? 0 : std::prev(drawn)->cumulative;
    uniform = std::clamp((uniform - below) / (drawn->cumulative - below), 0.0, 1.0);
    ids.push_back(drawn->edge.id);
    node = static_cast<std::size_t>(drawn->edge.begin);
  }
  std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
}

namespace {

constexpr std::size_t most_words = 1 << 19;       // of a memo: about 80 MB
constexpr std::size_t most_lattices = 1 << 18;    // about 300 MB
constexpr std::size_t longest_sampled_word = 64;  // bytes
constexpr char unspelt = '\xFF';                  // occurs in no piece, because it is not valid UTF-8
constexpr std::string_view replacement_character = "\uFFFD";

// What follows the bytes of a model changes single values of it (protobuf): no space in front of a text
// (normalizer_spec.add_dummy_prefix).
constexpr std::string_view without_space_in_front("\x1a\x02\x18\x00", 4);

// "<0x0A>", the library's name for a byte.
std::string byte_piece(char byte) { return fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)); }

// The text of a piece: marks of spaces become spaces, names of bytes become bytes.
std::string spoken(const sentencepiece::SentencePieceProcessor& processor, int id) {
  std::string text = processor.IdToPiece(id);
  if (processor.IsUnknown(id)) return std::string(replacement_character);
  if (processor.IsByte(id)) return {static_cast<char>(std::stoi(text.substr(3, 2), nullptr, 16))};
  for (std::size_t at = 0; (at = text.find(space_mark, at)) != std::string::npos; ++at)
    text.replace(at, space_mark.size(), " ");
  return text;
}

// The double with the shortest decimal form of a float: another program that reads it there has the same number.
double decimal(float value) {
  const auto text = fmt::format("{}", value);
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::size_t first_character(std::string_view text) {
  auto at = text.begin();
  utf8::unchecked::next(at);
  return static_cast<std::size_t>(at - text.begin());
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string kind, Whitespace whitespace, std::string model,
                                               const std::string& source)
    : kind_(std::move(kind)),
      whitespace_(whitespace),
      model_(std::move(model)),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()),
      memos_(most_words),
      lattice_memos_(most_lattices) {
  try {
    const bool keeps = whitespace == Whitespace::kept;
    const auto status =
        processor_->LoadFromSerializedProto(keeps ? model_ + std::string(without_space_in_front) : model_);
    if (!status.ok()) throw Error(ExitCode::data, status.error_message());
    read_pieces();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // the library throws if one of its checks fails
    throw Error(ExitCode::data, fmt::format("{}: not a sentencepiece model: {}", source, error.what()));
  }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::read_pieces() {
  const auto require = [&](bool valid, const std::string& what) {
    if (!valid) throw Error(ExitCode::data, what);
  };
  unknown_ = processor_->unk_id();
  const auto size = processor_->GetPieceSize();
  require(unknown_ >= 0 && unknown_ < size && processor_->IsUnknown(unknown_), "it has no unknown token");
  for (int id = 0; id < size; ++id) {
    require(std::isfinite(processor_->GetScore(id)), fmt::format("piece {} has no finite score", id));
    scores_.push_back(decimal(processor_->GetScore(id)));
    if (processor_->IsControl(id) || processor_->IsUnused(id)) {  // no text has it
      pieces_.emplace_back();
      continue;
    }
    pieces_.push_back(spoken(*processor_, id));
    if (processor_->IsUnknown(id) || processor_->IsByte(id)) continue;
    const auto& piece = processor_->IdToPiece(id);
    require(utf8_defect(piece).empty(), fmt::format("piece {} is not UTF-8", id));
    require_piece_of_word(id, pieces_.back());
    ids_[piece] = id;
    longest_piece_ = std::max(longest_piece_, piece.size());
  }
  for (const auto& [piece, id] : ids_) {
    const bool is_preferred = score(id) >= 0 && first_character(piece) < piece.size();
    if (kind_ == UnigramTokenizerOptions::kind && is_preferred) has_plain_scores_ = false;
    for (auto rest = piece; !rest.empty(); rest.remove_prefix(first_character(rest)))
      if (!ids_.contains(rest.substr(0, first_character(rest)))) has_plain_scores_ = false;
  }
  const auto& any_byte = processor_->IdToPiece(processor_->PieceToId(byte_piece('\0')));
  const bool has_bytes = any_byte == byte_piece('\0');
  require(has_bytes == (whitespace_ == Whitespace::kept),
          fmt::format("it is not one that has white space {}", to_string(whitespace_)));
}

void SentencePieceTokenizer::require_piece_of_word(int id, std::string_view piece) {
  const auto spaces = std::min(piece.find_first_not_of(' '), piece.size());
  const bool reaches_beyond = piece.find(' ', spaces) != std::string_view::npos ||
                              (piece.size() > 1 && std::any_of(piece.begin(), piece.end(), is_break));
  if (reaches_beyond)
    throw Error(ExitCode::data,
                fmt::format("piece {} reaches beyond a word, which is not supported: {}", id, in_quotes(piece)));
  has_pieces_of_spaces_ = has_pieces_of_spaces_ || (spaces > 1 && whitespace_ == Whitespace::kept);
}

std::vector<std::int32_t> SentencePieceTokenizer::cut(std::string_view word) const {
  Ids ids;
  if (word == space_mark) {  // occurs only if white space is kept
    for (const char byte : word) ids.push_back(processor_->PieceToId(byte_piece(byte)));
    return ids;
  }
  if (const auto status = processor_->Encode(word, &ids); !status.ok())
    throw Error(ExitCode::failure, fmt::format("sentencepiece: {}", status.error_message()));
  const bool may_tie = kind_ == UnigramTokenizerOptions::kind && whitespace_ == Whitespace::kept && has_plain_scores_;
  return may_tie ? first_best(ids) : ids;
}

// The most probable segmentation (Viterbi 1967) of the text of `best`, which is one: where several are, the one whose
// last piece begins first, and so on. The sums are those of `tokenizers`, digit by digit. They begin again behind a
// character that no piece spells, which every segmentation leaves to its bytes.
std::vector<std::int32_t> SentencePieceTokenizer::first_best(const Ids& best) const {
  std::string text;  // normalised
  for (const auto id : best)
    text += processor_->IsByte(id) ? pieces_[static_cast<std::size_t>(id)] : processor_->IdToPiece(id);
  struct End {
    double score = -std::numeric_limits<double>::infinity();  // of the best segmentation up to here
    std::size_t begin = 0;                                    // of its last piece
    std::int32_t id = 0;
  };
  constexpr std::int32_t unspelt = -1;
  std::vector<End> ends(text.size() + 1);
  ends[0].score = 0;
  const std::string_view all = text;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto character = first_character(all.substr(begin));
    for (auto length = character; length <= longest_piece_ && begin + length <= text.size();) {
      auto& end = ends[begin + length];
      if (const auto piece = ids_.find(all.substr(begin, length)); piece != ids_.end())
        if (const double sum = score(piece->second) + ends[begin].score; sum > end.score)
          end = {sum, begin, piece->second};
      if (begin + length == text.size()) break;
      length += first_character(all.substr(begin + length));
    }
    if (!ids_.contains(all.substr(begin, character))) ends[begin + character] = {0, begin, unspelt};
    begin += character;
  }
  Ids ids;
  for (auto end = text.size(); end > 0; end = ends[end].begin) {
    if (ends[end].id != unspelt) {
      ids.push_back(ends[end].id);
      continue;
    }
    for (auto byte = end; byte-- > ends[end].begin;) ids.push_back(processor_->PieceToId(byte_piece(text[byte])));
  }
  std::reverse(ids.begin(), ids.end());
  return ids;
}

SentencePieceTokenizer::LengthOfWord SentencePieceTokenizer::length_of_word() const {
  return has_pieces_of_spaces_ ? spaced_word_length : word_length;
}

std::vector<std::int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  require_utf8(text);
  Ids ids;
  memos_.borrow([&](WordMemo<Ids>& memo) {
    const auto add = [&](std::string_view word) {
      const auto& found = memo.get(word, [&] { return cut(word); });
      ids.insert(ids.end(), found.begin(), found.end());
    };
    for_each_word(text, whitespace_, add, length_of_word());
  });
  return ids;
}

bool SentencePieceTokenizer::begins_word(std::int32_t id, std::int32_t before) const {
  const auto& piece = pieces_.at(static_cast<std::size_t>(id));
  const auto& last = pieces_.at(static_cast<std::size_t>(before));
  return piece.starts_with(' ') || is_break(piece[0]) || is_break(last[0]);
}

SubwordLattice SentencePieceTokenizer::all_cuts(std::string_view word) const {
  const auto likeliest = cut(word);
  // The normalised word as a lattice with nodes between characters. Text that no piece spells has a single path.
  std::string text;
  std::vector<std::size_t> nodes = {0};
  std::vector<SubwordLattice::Edge> edges;
  SubwordLattice lattice;
  for (const auto id : likeliest) {
    const bool spelt = !processor_->IsUnknown(id) && !processor_->IsByte(id);
    if (!spelt || word.size() > longest_sampled_word) {
      text += unspelt;
      lattice.add_node({{.id = id, .begin = static_cast<std::int32_t>(nodes.size()) - 1, .score = 0}});
      nodes.push_back(text.size());
      continue;
    }
    const auto& piece = processor_->IdToPiece(id);
    for (auto at = piece.begin(); at != piece.end();) {
      const auto start = at;
      utf8::unchecked::next(at);
      text.append(start, at);
      edges.clear();
      for (auto begin = nodes.size(); begin-- > 0 && text.size() - nodes[begin] <= longest_piece_;)
        if (const auto known = ids_.find(std::string_view(text).substr(nodes[begin])); known != ids_.end())
          edges.push_back({.id = known->second,
                           .begin = static_cast<std::int32_t>(begin),
                           .score = processor_->GetScore(known->second)});
      lattice.add_node(edges);
      nodes.push_back(text.size());
    }
  }
  return lattice;
}

std::vector<std::int32_t> SentencePieceTokenizer::encode_sampled(std::string_view text, double alpha,
                                                                 const Rng& rng) const {
  if (kind_ != UnigramTokenizerOptions::kind) return encode(text);
  require_utf8(text);
  Ids ids;
  std::uint64_t index = 0;
  lattice_memos_.borrow([&](WordMemo<SubwordLattice>& memo) {
    const auto add = [&](std::string_view word) {
      memo.get(word, [&] { return all_cuts(word); }).draw(alpha, rng.uniform(index++), ids);
    };
    for_each_word(text, whitespace_, add, length_of_word());
  });
  return ids;
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const auto id : ids) text += pieces_.at(static_cast<std::size_t>(id));
  if (whitespace_ == Whitespace::dropped && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string SentencePieceTokenizer::token_name(std::int32_t id) const { return processor_->IdToPiece(id); }

PieceKind SentencePieceTokenizer::piece_kind(std::int32_t id) const {
  if (processor_->IsUnknown(id)) return PieceKind::unknown;
  if (processor_->IsByte(id)) return PieceKind::byte;
  if (processor_->IsControl(id)) return PieceKind::control;
  return processor_->IsUnused(id) ? PieceKind::unused : PieceKind::text;
}

nlohmann::ordered_json SentencePieceTokenizer::to_json() const {
  return with_special_tokens({{"kind", kind_},
                              {"whitespace", to_string(whitespace_)},
                              {"sha256", sha256(model_)},
                              {"model", to_base64(model_)}});
}

}  // namespace metaformer
