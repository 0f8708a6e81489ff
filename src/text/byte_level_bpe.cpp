#include "text/byte_level_bpe.h"

#include <fmt/format.h>
#include <utf8.h>

#include <algorithm>
#include <compare>
#include <nlohmann/json.hpp>
#include <optional>
#include <queue>

#include "base/json.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

namespace {

// The character that stands for each byte.
constexpr std::array<std::uint32_t, 256> byte_characters = [] {
  std::array<std::uint32_t, 256> points{};
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    points[byte] = is_itself ? byte : next++;
  }
  return points;
}();

// The bytes for which the characters of `text`, valid UTF-8, stand; nothing if a character stands for no byte.
std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  for (auto at = text.begin(); at != text.end();) {
    const auto found = std::ranges::find(byte_characters, utf8::unchecked::next(at));
    if (found == byte_characters.end()) return std::nullopt;
    bytes += static_cast<char>(found - byte_characters.begin());
  }
  return bytes;
}

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

using Json = nlohmann::json;

constexpr std::uint64_t most_unused_ids = 1 << 16;
constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class Reader {
 public:
  Reader(Json file, const std::string& source) : file_(std::move(file)), source_(source) {}

  ByteLevelBpe read() {
    if (file_.is_discarded()) fail("not valid JSON");
    if (!file_.is_object()) fail("not a JSON object");
    const auto& normalizer = json_member(file_, "normalizer");
    if (!normalizer.is_null() && json_member(normalizer, "normalizers") != Json::array())
      refuse("normalizer.type", json_member(normalizer, "type"),
             "only null is supported: decoding must restore every text");
    read_pre_tokenizer();
    read_vocabulary();
    read_merges();
    read_added_tokens();
    return std::move(bpe_);
  }

 private:
  template <class... Values>
  [[noreturn]] void fail(fmt::format_string<Values...> what, Values&&... values) const {
    fail_data("{}: {}", source_, fmt::format(what, std::forward<Values>(values)...));
  }
  [[noreturn]] void refuse(const std::string& field, const Json& value, const std::string& expected) const {
    fail("{} is {}; {}", field, printable(json_text(value)), expected);
  }

  // Requires that an optional member is absent or has its default value, `usual`.
  void require(const Json& object, const std::string& place, const char* name, const Json& usual) const {
    const auto& value = json_member(object, name);
    const bool absent = value.is_null() || (usual.is_null() && (value == "" || value == 0));
    if (!absent && value != usual)
      refuse(place + "." + name, value, fmt::format("only {} is supported", json_text(usual)));
  }

  void read_pre_tokenizer() {
    const auto& given = json_member(file_, "pre_tokenizer");
    const bool is_sequence = json_member(given, "type") == "Sequence";
    const auto parts = is_sequence ? json_member(given, "pretokenizers") : Json::array({given});
    if (!parts.is_array() || parts.empty()) refuse("pre_tokenizer.pretokenizers", parts, "expected a list");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto place = is_sequence ? fmt::format("pre_tokenizer.pretokenizers[{}]", i) : "pre_tokenizer";
      add_pre_tokenizer(parts[i], place, i + 1 == parts.size());
    }
  }

  void add_pre_tokenizer(const Json& part, const std::string& place, bool is_last) {
    const auto& type = json_member(part, "type");
    const auto& pattern = json_member(json_member(part, "pattern"), "Regex");
    if (is_last && type == "ByteLevel") {
      if (json_member(part, "add_prefix_space") != false)
        refuse(place + ".add_prefix_space", json_member(part, "add_prefix_space"),
               "only false is supported: decoding must restore every text");
      if (json_member(part, "use_regex") != false) bpe_.patterns.emplace_back(gpt2_pattern, source_);
    } else if (!is_last && type == "Split") {
      if (json_member(part, "behavior") != "Isolated")
        refuse(place + ".behavior", json_member(part, "behavior"), "only Isolated is supported");
      require(part, place, "invert", false);
      if (!pattern.is_string()) refuse(place + ".pattern", json_member(part, "pattern"), "expected a Regex");
      bpe_.patterns.emplace_back(pattern.get<std::string>(), source_ + ": " + place + ".pattern.Regex");
    } else if (!is_last && type == "Digits") {
      bpe_.patterns.emplace_back(json_member(part, "individual_digits") == true ? R"(\p{N})" : R"(\p{N}+)", source_);
    } else {
      refuse(
          place + ".type", type,
          is_last ? "only ByteLevel is supported at the end" : "only Split and Digits are supported before ByteLevel");
    }
  }

  // Ids are bounded by the number of tokens, so that a file cannot ask for much more memory than it has.
  std::int32_t checked_id(const std::string& place, const Json& id) const {
    const auto count =
        json_member(json_member(file_, "model"), "vocab").size() + json_member(file_, "added_tokens").size();
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > count + most_unused_ids)
      refuse(place, id, fmt::format("expected an id of {} tokens", count));
    return id.get<std::int32_t>();
  }

  // Adds the token that an id stands for.
  void add_token(std::int32_t id, std::string bytes, const std::string& token) {
    const auto place = static_cast<std::size_t>(id);
    bpe_.tokens.resize(std::max(bpe_.tokens.size(), place + 1));
    bpe_.names.resize(bpe_.tokens.size());
    if (!bpe_.tokens[place].empty()) fail("two tokens have the id {}; one is {}", id, in_quotes(token));
    bpe_.tokens[place] = std::move(bytes);
    bpe_.names[place] = token;
  }

  void read_vocabulary() {
    const auto& model = json_member(file_, "model");
    const auto& type = json_member(model, "type");
    if (type != "BPE" && !type.is_null()) refuse("model.type", type, "only byte-level BPE is supported");
    if (json_member(model, "byte_fallback") == true)
      refuse("model.byte_fallback", true,
             "this is a tokenizer of sentencepiece, which is read from its tokenizer.model");
    for (const auto* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
      require(model, "model", name, nullptr);
    const auto& vocabulary = json_member(model, "vocab");
    if (!vocabulary.is_object() || vocabulary.empty()) fail("model.vocab is not an object of tokens with their ids");
    const bool has_whole_words = json_member(model, "ignore_merges") == true;
    for (const auto& [token, value] : vocabulary.items()) {
      if (token.empty()) fail("model.vocab has an empty token");
      const auto id = checked_id(fmt::format("model.vocab[{}]", in_quotes(token)), value);
      const auto bytes = from_byte_level(token);
      if (has_whole_words && bytes) bpe_.whole_words.emplace(*bytes, id);
      add_token(id, bytes.value_or(token), token);
      ids_.emplace(token, id);
    }
    next_added_id_ = static_cast<std::int32_t>(ids_.size());
    for (std::size_t byte = 0; byte < bpe_.byte_ids.size(); ++byte) {
      const auto token = to_byte_level(std::string(1, static_cast<char>(byte)));
      const auto found = ids_.find(token);
      if (found == ids_.end())
        fail("model.vocab has no token {} for the byte {}: not every text can be encoded", in_quotes(token), byte);
      bpe_.byte_ids[byte] = found->second;
    }
  }

  // "a b" or ["a", "b"].
  std::pair<std::string, std::string> read_merge(const Json& merge, std::size_t index) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    const auto text = merge.is_string() ? merge.get<std::string>() : "";
    if (const auto space = text.find(' '); space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
    refuse(fmt::format("model.merges[{}]", index), merge, "expected two tokens");
  }

  void read_merges() {
    const auto& merges = json_member(json_member(file_, "model"), "merges");
    if (!merges.is_array()) fail("model.merges is not a list");
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const auto [left, right] = read_merge(merges[i], i);
      const auto id_of = [&](const std::string& token) {
        const auto found = ids_.find(token);
        if (found == ids_.end())
          fail("model.merges[{}] needs the token {}, which model.vocab lacks", i, in_quotes(token));
        return found->second;
      };
      const auto left_id = id_of(left), right_id = id_of(right);
      bpe_.merges.add(left_id, right_id, id_of(left + right));
    }
  }

  void read_added_tokens() {
    const auto& tokens = json_member(file_, "added_tokens");
    if (!tokens.is_array() && !tokens.is_null()) fail("added_tokens is not a list");
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto place = fmt::format("added_tokens[{}]", i);
      for (const auto* flag : {"single_word", "lstrip", "rstrip"}) require(tokens[i], place, flag, false);
      const auto& content = json_member(tokens[i], "content");
      if (!content.is_string() || content == "") refuse(place + ".content", content, "expected a text");
      add_added_token(content.get<std::string>(), checked_id(place + ".id", json_member(tokens[i], "id")), place,
                      json_member(tokens[i], "normalized") == true);
    }
  }

  void add_added_token(const std::string& content, std::int32_t id, const std::string& place, bool is_late) {
    const auto known = ids_.find(content);
    const auto expected = known != ids_.end() ? known->second : next_added_id_;
    if (id != expected) refuse(place + ".id", id, fmt::format("the id of {} is {}", in_quotes(content), expected));
    if (known == ids_.end()) {
      ids_.emplace(content, id);
      add_token(id, content, content);
    } else {
      bpe_.tokens[static_cast<std::size_t>(id)] = content;
    }
    next_added_id_ = std::max(next_added_id_, id + 1);
    auto& alike = bpe_.added[is_late ? 1 : 0][static_cast<unsigned char>(content.front())];
    const auto is_shorter = [&](const AddedToken& token) { return token.content.size() < content.size(); };
    alike.insert(std::ranges::find_if(alike, is_shorter), {content, id});
  }

  const Json file_;
  const std::string& source_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::int32_t next_added_id_ = 0;  // of an added token that model.vocab lacks, as the library numbers them
  ByteLevelBpe bpe_;
};

constexpr std::size_t memo_words = 1 << 19;  // of a memo: about 80 MB

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += to_utf8(byte_characters[static_cast<unsigned char>(byte)]);
  return text;
}

void PairMerges::add(std::int32_t left, std::int32_t right, std::int32_t merged) {
  rules_[pair_of(left, right)] = {next_rank_++, merged};
}

std::vector<std::int32_t> PairMerges::merge(const std::vector<std::int32_t>& ids) const {
  constexpr std::int32_t none = -1;  // as an id: the token was merged into the one before it
  struct Token {
    std::int32_t id, previous, next;
  };
  struct Candidate {
    std::int32_t rank, place, left, right, merged;
    auto operator<=>(const Candidate&) const = default;
  };
  std::vector<Token> tokens;  // a linked list
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto at = [&](std::int32_t place) -> Token& { return tokens[static_cast<std::size_t>(place)]; };
  const auto add_candidate = [&](std::int32_t place) {
    if (place == none || at(place).next == none) return;
    const auto left = at(place).id, right = at(at(place).next).id;
    if (const auto rule = rules_.find(pair_of(left, right)); rule != rules_.end())
      candidates.push({rule->second.rank, place, left, right, rule->second.merged});
  };
  const auto size = static_cast<std::int32_t>(ids.size());
  if (size < 2) return ids;
  for (const auto id : ids) {
    const auto place = static_cast<std::int32_t>(tokens.size());
    tokens.push_back({id, place - 1, place + 1 < size ? place + 1 : none});
  }
  for (std::int32_t place = 0; place < size; ++place) add_candidate(place);
  while (!candidates.empty()) {
    const auto [rank, place, left, right, merged] = candidates.top();
    candidates.pop();
    auto& token = at(place);
    if (token.id != left || token.next == none || at(token.next).id != right) continue;  // one of the two is gone
    auto& second = at(token.next);
    second.id = none;
    token.id = merged;
    token.next = second.next;
    if (token.next != none) at(token.next).previous = place;
    add_candidate(place);
    add_candidate(token.previous);
  }
  std::vector<std::int32_t> all;
  for (std::int32_t place = 0; place != none; place = at(place).next) all.push_back(at(place).id);
  return all;
}

ByteLevelBpeTokenizer::ByteLevelBpeTokenizer(std::string file, std::int64_t vocabulary, const std::string& source)
    : file_(std::move(file)),
      bpe_(Reader(parse_json(file_), source).read()),
      vocabulary_(std::max(vocabulary, std::ssize(bpe_.tokens))),
      memos_(memo_words) {}

std::vector<std::int32_t> ByteLevelBpeTokenizer::encode(std::string_view text) const {
  require_utf8(text);
  Ids ids;
  memos_.borrow([&](WordMemo<Ids>& memo) { encode(text, 0, memo, ids); });
  return ids;
}

// Encodes a text that has no tokens of the lists before `added`. Of overlapping added tokens the first is used, of
// those that start at the same place the longest.
void ByteLevelBpeTokenizer::encode(std::string_view text, std::size_t added, WordMemo<Ids>& memo, Ids& ids) const {
  if (text.empty()) return;
  if (added == bpe_.added.size()) {
    constexpr int words_between_looks = 1 << 16;
    int words = 0;
    return cut(text, 0, [&](std::string_view word) {
      if (++words % words_between_looks == 0) throw_if_stopped();
      const auto& found = memo.get(word, [&] { return ids_of_word(word); });
      ids.insert(ids.end(), found.begin(), found.end());
    });
  }
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto& alike = bpe_.added[added][static_cast<unsigned char>(text[at])];
    const auto is_here = [&](const AddedToken& token) { return text.substr(at).starts_with(token.content); };
    const auto token = std::ranges::find_if(alike, is_here);
    if (token == alike.end()) {
      ++at;
      continue;
    }
    encode(text.substr(begin, at - begin), added + 1, memo, ids);
    ids.push_back(token->id);
    begin = at += token->content.size();
  }
  encode(text.substr(begin), added + 1, memo, ids);
}

void ByteLevelBpeTokenizer::cut(std::string_view text, std::size_t pattern,
                                const std::function<void(std::string_view)>& use_word) const {
  if (pattern == bpe_.patterns.size()) return use_word(text);
  bpe_.patterns[pattern].split(text, [&](std::string_view part) { cut(part, pattern + 1, use_word); });
}

std::vector<std::int32_t> ByteLevelBpeTokenizer::ids_of_word(std::string_view word) const {
  if (const auto whole = bpe_.whole_words.find(std::string(word)); whole != bpe_.whole_words.end())
    return {whole->second};
  Ids bytes;
  for (const char byte : word) bytes.push_back(bpe_.byte_ids[static_cast<unsigned char>(byte)]);
  return bpe_.merges.merge(bytes);
}

std::string_view ByteLevelBpeTokenizer::bytes_of(std::int32_t id) const {
  const auto place = static_cast<std::size_t>(id);
  return place < bpe_.tokens.size() ? std::string_view(bpe_.tokens[place]) : "";
}

bool ByteLevelBpeTokenizer::begins_word(std::int32_t id, std::int32_t before) const {
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  const auto token = bytes_of(id), last = bytes_of(before);
  return (!token.empty() && is_space(token.front())) || (!last.empty() && is_space(last.back()));
}

std::string ByteLevelBpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const auto id : ids) text += bytes_of(id);
  return text;
}

nlohmann::ordered_json ByteLevelBpeTokenizer::to_json() const {
  return with_special_tokens(
      {{"kind", PretrainedTokenizerOptions::kind}, {"vocabulary", vocabulary_}, {"file", file_}});
}

std::string ByteLevelBpeTokenizer::token_name(std::int32_t id) const {
  const auto place = static_cast<std::size_t>(id);
  return place < bpe_.names.size() ? bpe_.names[place] : "";
}

}  // namespace metaformer
