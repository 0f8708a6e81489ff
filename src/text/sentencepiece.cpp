#include "text/sentencepiece.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <utility>

#include "base/child_process.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

namespace {

// ASCII white space that is a separate piece if white space is kept; otherwise it separates words, as a space does.
bool is_break(char c) { return c == '\n' || c == '\t' || c == '\r'; }

// The words that sentencepiece splits into pieces. No piece extends beyond a word, because marks of spaces occur only
// at its start. The pieces of a text are therefore those of its words, and can be reused.

// The number of bytes of the first word of `text`, which is not empty. A break and the mark of a space are words of
// their own; a space belongs to the word after it. Of several spaces each but the last is a word; with `joins_spaces`,
// which is for pieces of several spaces, all belong to the word after them.
std::size_t word_length(std::string_view text, bool joins_spaces) {
  if (is_break(text[0])) return 1;
  if (text.starts_with(space_mark)) return space_mark.size();
  if (const auto spaces = std::min(text.find_first_not_of(' '), text.size()); joins_spaces && spaces > 1) {
    const auto rest = text.substr(spaces);
    const bool is_followed = !rest.empty() && !is_break(rest[0]) && !rest.starts_with(space_mark);
    return is_followed ? spaces + word_length(rest, false) : spaces;
  }
  std::size_t length = 1;
  const auto ends_at = [&](char c) {
    return c == ' ' || is_break(c) || (c == space_mark[0] && text.substr(length).starts_with(space_mark));
  };
  while (length < text.size() && !ends_at(text[length])) ++length;
  return length;
}

// Calls `use(word)` in order. If white space is kept, the words together are the whole text, otherwise they contain no
// white space. Throws Interrupted when a signal asks to stop.
template <class Use>
void for_each_word(std::string_view text, Whitespace whitespace, bool joins_spaces, Use use) {
  constexpr int words_between_looks = 1 << 16;
  for (int words = 1; !text.empty(); ++words) {
    if (words % words_between_looks == 0) throw_if_stopped();
    auto word = text.substr(0, word_length(text, joins_spaces));
    text.remove_prefix(word.size());
    if (whitespace == Whitespace::dropped) {
      if (word[0] == ' ') word.remove_prefix(1);
      if (word.empty() || is_break(word[0]) || word == space_mark) continue;
    }
    use(word);
  }
}

constexpr std::size_t most_words = 1 << 19;       // of a memo: about 80 MB
constexpr std::size_t most_lattices = 1 << 18;    // about 300 MB
constexpr std::size_t longest_sampled_word = 64;  // bytes
constexpr char unspelt = '\xFF';                  // occurs in no piece, because it is not valid UTF-8

// These bytes, appended to a model (protobuf), set its field normalizer_spec.add_dummy_prefix to false: no space in
// front of a text.
constexpr std::string_view without_space_in_front("\x1a\x02\x18\x00", 4);

// "<0x0A>", the library's name for a byte.
std::string byte_piece(char byte) { return fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)); }

// The text of a piece: marks of spaces become spaces, names of bytes become bytes; "" for a piece that no text has.
std::string text_of_piece(PieceKind kind, const std::string& piece) {
  if (kind == PieceKind::unknown) return "\uFFFD";
  if (kind == PieceKind::byte) return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};
  return kind == PieceKind::text ? replaced(piece, space_mark, " ") : "";
}

// The double that the shortest decimal form of a float denotes: another program that reads this form has the same
// number.
double decimal(float value) { return as_number<double>(fmt::format("{}", value)).value(); }

// Requires that texts are restored. The texts are such that the usual normalisers change them: spaces in a row, forms
// of characters, case.
void require_restored_text(const Tokenizer& tokenizer, const std::string& source) {
  for (const std::string text : {"a", " a  b ", "\n\t a", "\uFF21", "e\u0301", "\u2460", "A"}) {
    const auto restored = tokenizer.decode(tokenizer.encode(text));
    if (restored != text)
      fail_data("{}: its normaliser makes {} of {}; only rule identity that keeps spaces in a row is supported", source,
                in_quotes(restored), in_quotes(text));
  }
}

// Calls `use(number, value, bytes)` for the fields of a message in the wire format of protocol buffers, up to the first
// that is damaged.
template <class Use>
void for_each_field(std::string_view message, Use use) {
  const auto varint = [&] {
    std::uint64_t result = 0;
    for (int shift = 0; shift < 64 && !message.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message.front());
      message.remove_prefix(1);
      result |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) break;
    }
    return result;
  };
  while (!message.empty()) {
    enum WireType { number, eight_bytes, counted_bytes, four_bytes = 5 };
    const auto tag = varint();
    const auto type = tag & 7;
    if (type > counted_bytes && type != four_bytes) return;
    const auto value = type == number || type == counted_bytes ? varint() : 0;
    const auto size = type == number ? 0 : type == eight_bytes ? 8 : type == four_bytes ? 4 : value;
    if (size > message.size()) return;
    use(tag >> 3, value, type == counted_bytes ? message.substr(0, size) : std::string_view());
    message.remove_prefix(size);
  }
}

using WordCounts = std::vector<std::pair<std::string, std::int64_t>>;

// Distinct words in byte order. Very long words, as in languages without spaces, are cut.
WordCounts count_words(std::string_view text, Whitespace whitespace) {
  constexpr std::size_t longest = 1024;
  require_utf8(text);
  std::unordered_map<std::string_view, std::int64_t> counts;
  for_each_word(text, whitespace, /*joins_spaces=*/false, [&](std::string_view word) {
    if (is_break(word[0]) || word == space_mark) return;
    while (word.size() > longest) {
      auto cut = longest;
      while (utf8::internal::is_trail(word[cut])) --cut;
      ++counts[word.substr(0, cut)];
      word.remove_prefix(cut);
    }
    ++counts[word];
  });
  WordCounts words(counts.begin(), counts.end());
  std::sort(words.begin(), words.end());
  return words;
}

// Gives the trainer "word\tcount". The unigram trainer's candidates are substrings that occur at least twice, whatever
// the counts, so a frequent word is given several times, with its count divided among them.
class WordIterator : public sentencepiece::SentenceIterator {
 public:
  explicit WordIterator(const WordCounts& words) : words_(words) { write(); }

  bool done() const override { return word_ == words_.size() || stop_signal() != 0; }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    if (++copy_ == copies()) copy_ = 0, ++word_;
    write();
  }

 private:
  std::int64_t copies() const { return std::min<std::int64_t>(words_[word_].second, 16); }
  void write() {
    if (word_ == words_.size()) return;
    const auto& [word, count] = words_[word_];
    value_ = fmt::format("{}\t{}", word, count * (copy_ + 1) / copies() - count * copy_ / copies());
  }

  const WordCounts& words_;
  std::size_t word_ = 0;
  std::int64_t copy_ = 0;
  std::string value_;
};

template <class Options>
std::unordered_map<std::string, std::string> trainer_arguments(const Options& options) {
  const bool keeps = options.whitespace == Whitespace::kept;
  const auto rule = keeps && !options.lowercase
                        ? "identity"
                        : fmt::format("{}nfkc{}", keeps ? "" : "nmt_", options.lowercase ? "_cf" : "");
  std::unordered_map<std::string, std::string> arguments = {
      {"model_type", std::string(Options::kind)},
      {"normalization_rule_name", rule},
      {"vocab_size", std::to_string(options.vocabulary)},
      {"hard_vocab_limit", "false"},
      {"character_coverage", fmt::format("{}", options.character_coverage)},
      {"required_chars", std::string(space_mark)},
      {"input_format", "tsv"},
      {"seed_sentencepiece_size", "200000"},  // a fifth of the default: equally good here, and faster
      {"num_threads", "4"},                   // the order of sums, and so the model, depends on it
      {"unk_id", "0"},
      {"bos_id", "-1"},
      {"eos_id", "-1"},
      {"minloglevel", "3"},
  };
  if (keeps)
    arguments.insert({{"add_dummy_prefix", "false"},
                      {"remove_extra_whitespaces", "false"},
                      {"byte_fallback", "true"},
                      {"user_defined_symbols", "\n,\t,\r"}});
  return arguments;
}

[[noreturn]] void refuse(const std::string& library_message, std::int64_t vocabulary) {
  static const std::regex too_small(R"(required_chars\. \d+ vs (\d+)\.)");
  if (std::smatch match; std::regex_search(library_message, match, too_small))
    fail_data(
        "data.tokenizer.vocabulary {} is too small: the characters of the training text take {}; set it to more than "
        "that, or lower data.tokenizer.character_coverage",
        vocabulary, match[1].str());
  fail_data("sentencepiece cannot learn from the training text: {}", library_message);
}

}  // namespace

// All segmentations of a word into pieces. Draws a random one by forward filtering and backward sampling (Kudo 2018,
// 3.2).
class SubwordLattice {
 public:
  struct Edge {
    std::int32_t id;
    std::int32_t begin;     // the node that the piece starts at
    double score;           // logarithm of the piece's probability
    double cumulative = 0;  // probability of this and the edges before it that end at the same node
  };

  // Adds a character, and with it a new node. `edges` are the pieces that end at the new node.
  void add_node(const std::vector<Edge>& edges) {
    edges_.insert(edges_.end(), edges.begin(), edges.end());
    first_.push_back(static_cast<std::int32_t>(edges_.size()));
  }

  // Draws a path from the first node to the last and appends its pieces to `ids`. The probability of a path is the
  // product of those of its pieces to the power `alpha`, divided by the sum over all paths. `uniform` in [0, 1) selects
  // the path. There must be one.
  void draw(double alpha, double uniform, std::vector<std::int32_t>& ids) {
    if (alpha != alpha_) weigh(alpha);
    const auto before = ids.size();
    for (auto node = first_.size() - 2; node > 0;) {
      const auto begin = edges_.begin() + first_[node], end = edges_.begin() + first_[node + 1];
      auto drawn =
          std::upper_bound(begin, end, uniform, [](double u, const auto& edge) { return u < edge.cumulative; });
      if (drawn == end) --drawn;
      // The number's place within the edge's interval is uniform again.
      const double below = drawn == begin ? 0 : std::prev(drawn)->cumulative;
      uniform = std::clamp((uniform - below) / (drawn->cumulative - below), 0.0, 1.0);
      ids.push_back(drawn->id);
      node = static_cast<std::size_t>(drawn->begin);
    }
    std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
  }

 private:
  void weigh(double alpha) {
    constexpr double never = -std::numeric_limits<double>::infinity();
    alpha_ = alpha;
    std::vector<double> forward = {0};  // by node: logarithm of the sum over all paths to it
    for (std::size_t node = 1; node + 1 < first_.size(); ++node) {
      const auto begin = edges_.begin() + first_[node], end = edges_.begin() + first_[node + 1];
      const auto weight = [&](const Edge& edge) {
        return forward[static_cast<std::size_t>(edge.begin)] + alpha * edge.score;
      };
      double greatest = never, sum = 0;
      for (auto at = begin; at != end; ++at) greatest = std::max(greatest, weight(*at));
      if (greatest != never)
        for (auto at = begin; at != end; ++at) at->cumulative = sum += std::exp(weight(*at) - greatest);
      for (auto at = begin; at != end; ++at) at->cumulative /= sum;
      forward.push_back(greatest + std::log(sum));
    }
  }

  std::vector<Edge> edges_;                   // ordered by the node at which they end
  std::vector<std::int32_t> first_ = {0, 0};  // index of each node's first edge; the start has no edges
  double alpha_ = -1;                         // the power for which the probabilities were computed
};

SentencePieceTokenizer::SentencePieceTokenizer(std::string kind, Whitespace whitespace, std::string model,
                                               const std::string& source)
    : kind_(std::move(kind)),
      whitespace_(whitespace),
      model_(std::move(model)),
      restores_text_(whitespace == Whitespace::kept && !traits_of_sentencepiece(model_).normalises),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()),
      memos_(most_words),
      lattice_memos_(most_lattices) {
  try {
    const bool keeps = whitespace == Whitespace::kept;
    const auto status =
        processor_->LoadFromSerializedProto(keeps ? model_ + std::string(without_space_in_front) : model_);
    if (!status.ok()) fail_data("{}", status.error_message());
    read_pieces();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // the library throws if one of its checks fails
    fail_data("{}: not a sentencepiece model: {}", source, error.what());
  }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::read_pieces() {
  unknown_ = processor_->unk_id();
  const auto size = processor_->GetPieceSize();
  if (unknown_ < 0 || unknown_ >= size || !processor_->IsUnknown(unknown_)) fail_data("it has no unknown token");
  for (int id = 0; id < size; ++id) {
    if (!std::isfinite(processor_->GetScore(id))) fail_data("piece {} has no finite score", id);
    scores_.push_back(decimal(processor_->GetScore(id)));
    const auto kind = piece_kind(id);
    pieces_.push_back(text_of_piece(kind, processor_->IdToPiece(id)));
    if (kind != PieceKind::text) continue;
    const auto& piece = processor_->IdToPiece(id);
    if (!utf8::is_valid(piece)) fail_data("piece {} is not UTF-8", id);
    const auto& text = pieces_.back();
    const auto spaces = std::min(text.find_first_not_of(' '), text.size());
    if (text.find(' ', spaces) != std::string::npos || (text.size() > 1 && std::ranges::any_of(text, is_break)))
      fail_data("piece {} reaches beyond a word, which is not supported: {}", id, in_quotes(text));
    has_pieces_of_spaces_ = has_pieces_of_spaces_ || (spaces > 1 && whitespace_ == Whitespace::kept);
    ids_[piece] = id;
    longest_piece_ = std::max(longest_piece_, piece.size());
  }
  for (const auto& [piece, id] : ids_) {
    const bool is_preferred = score(id) >= 0 && character_size(piece) < piece.size();
    if (kind_ == UnigramTokenizerOptions::kind && is_preferred) has_plain_scores_ = false;
    for (auto rest = piece; !rest.empty(); rest.remove_prefix(character_size(rest)))
      if (!ids_.contains(rest.substr(0, character_size(rest)))) has_plain_scores_ = false;
  }
  const auto& any_byte = processor_->IdToPiece(processor_->PieceToId(byte_piece('\0')));
  if ((any_byte == byte_piece('\0')) != (whitespace_ == Whitespace::kept))
    fail_data("it is not one that has white space {}", to_string(whitespace_));
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

// The most probable segmentation (Viterbi 1967) of the text of `best`, which is a most probable one, too. If there are
// several, takes the one whose last piece begins first, and so on. The sums have the same digits as those of
// `tokenizers`. They restart after a character that no piece spells, which every segmentation leaves to its bytes.
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
    const auto character = character_size(all.substr(begin));
    for (auto length = character; length <= longest_piece_ && begin + length <= text.size();) {
      auto& end = ends[begin + length];
      if (const auto piece = ids_.find(all.substr(begin, length)); piece != ids_.end())
        if (const double sum = score(piece->second) + ends[begin].score; sum > end.score)
          end = {sum, begin, piece->second};
      if (begin + length == text.size()) break;
      length += character_size(all.substr(begin + length));
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

std::vector<std::int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  require_utf8(text);
  Ids ids;
  memos_.borrow([&](WordMemo<Ids>& memo) {
    const auto add = [&](std::string_view word) {
      const auto& found = memo.get(word, [&] { return cut(word); });
      ids.insert(ids.end(), found.begin(), found.end());
    };
    for_each_word(text, whitespace_, has_pieces_of_spaces_, add);
  });
  return ids;
}

std::vector<std::int32_t> SentencePieceTokenizer::token_bytes(std::string_view text) const {
  std::vector<std::int32_t> bytes;
  const auto* rest = text.begin();
  for_each_word(text, whitespace_, has_pieces_of_spaces_, [&](std::string_view word) {
    const auto ids = cut(word);
    if (ids.empty()) return;  // its bytes go to the next word
    const bool is_restored = rest == word.begin() && decode(ids) == word;
    const auto first = bytes.size();
    for (const auto id : ids)
      bytes.push_back(is_restored ? static_cast<std::int32_t>(pieces_[static_cast<std::size_t>(id)].size()) : 0);
    if (!is_restored) bytes[first] = static_cast<std::int32_t>(word.end() - rest);
    rest = word.end();
  });
  if (!bytes.empty()) bytes.back() += static_cast<std::int32_t>(text.end() - rest);
  return bytes;
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
    for (std::string_view rest = processor_->IdToPiece(id); !rest.empty();) {
      const auto size = character_size(rest);
      text += rest.substr(0, size);
      rest.remove_prefix(size);
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
    for_each_word(text, whitespace_, has_pieces_of_spaces_, add);
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

std::unique_ptr<SubwordTokenizer> read_sentencepiece(std::string model, const std::string& source) {
  const bool is_unigram = traits_of_sentencepiece(model).is_unigram;
  const std::string kind(is_unigram ? UnigramTokenizerOptions::kind : BpeTokenizerOptions::kind);
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(kind, Whitespace::kept, std::move(model), source);
  require_restored_text(*tokenizer, source);
  return tokenizer;
}

// The numbers of the fields are those in sentencepiece_model.proto.
SentencePieceTraits traits_of_sentencepiece(std::string_view model) {
  SentencePieceTraits traits;
  for_each_field(model, [&](std::uint64_t part, std::uint64_t, std::string_view message) {
    constexpr std::uint64_t normal = 1, user_defined = 4;
    std::string_view piece;
    std::uint64_t type = normal;
    for_each_field(message, [&](std::uint64_t number, std::uint64_t value, std::string_view bytes) {
      if (part == 1 && number == 1) piece = bytes;
      if (part == 1 && number == 3) type = value;
      if (part == 2 && number == 3) traits.is_unigram = value == 1;
      if (part == 2 && number == 24) traits.marks_ends = value != 0;
      if (part == 3 && number == 2) traits.normalises = !bytes.empty();
    });
    traits.has_symbols = traits.has_symbols || (type == user_defined && count_characters(piece) > 1);
  });
  return traits;
}

template <class UnigramOrBpeOptions>
std::string train_sentencepiece(const UnigramOrBpeOptions& options, std::string_view text) {
  auto words = count_words(text, options.whitespace);
  if (words.empty()) fail_data("the training text has no word to learn pieces from");
  // The library ends the process if a required character is in no word.
  const auto starts_with_space = [](const auto& word) { return word.first[0] == ' '; };
  if (options.whitespace == Whitespace::kept && std::none_of(words.begin(), words.end(), starts_with_space))
    words.emplace(words.begin(), " ", 1);
  const auto learn = [&] {
    WordIterator iterator(words);
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(trainer_arguments(options), &iterator, &model);
    throw_if_stopped();
    if (!status.ok()) refuse(status.error_message(), options.vocabulary);
    return model;
  };
  // In a child, because the library ends the process for other unexpected texts, too.
  return compute_in_child(learn, "sentencepiece cannot learn pieces from the training text");
}

template std::string train_sentencepiece(const UnigramTokenizerOptions&, std::string_view);
template std::string train_sentencepiece(const BpeTokenizerOptions&, std::string_view);

}  // namespace metaformer
