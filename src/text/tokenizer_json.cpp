#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "text/byte_level_alphabet.h"

namespace metaformer {

namespace {

using Json = nlohmann::json;

constexpr std::uint64_t most_unused_ids = 1 << 16;
constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class Reader {
 public:
  Reader(const Json& file, const std::string& source) : file_(file), source_(source) {}

  ByteLevelBpe read() {
    if (!file_.is_object()) fail("not a JSON object");
    require_no_normalizer();
    read_pre_tokenizer();
    read_vocabulary();
    find_bytes();
    read_merges();
    read_added_tokens();
    return std::move(bpe_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ExitCode::data, fmt::format("{}: {}", source_, what));
  }
  [[noreturn]] void refuse(const std::string& field, const Json& value, const std::string& expected) const {
    fail(fmt::format("{} is {}; {}", field, printable(json_text(value)), expected));
  }

  static const Json& member(const Json& object, const char* name) {
    static const Json none;
    return object.is_object() && object.contains(name) ? object[name] : none;
  }
  // Of a member that may be left out, and then is `usual`.
  void require(const Json& object, const std::string& place, const char* name, const Json& usual) const {
    const auto& value = member(object, name);
    const bool absent = value.is_null() || (usual.is_null() && (value == "" || value == 0));
    if (!absent && value != usual)
      refuse(place + "." + name, value, fmt::format("only {} is supported", json_text(usual)));
  }

  void require_no_normalizer() const {
    const auto& normalizer = member(file_, "normalizer");
    if (!normalizer.is_null() && member(normalizer, "normalizers") != Json::array())
      refuse("normalizer.type", member(normalizer, "type"), "only null is supported: decoding must restore every text");
  }

  void read_pre_tokenizer() {
    const auto& given = member(file_, "pre_tokenizer");
    const bool is_sequence = member(given, "type") == "Sequence";
    const auto parts = is_sequence ? member(given, "pretokenizers") : Json::array({given});
    if (!parts.is_array() || parts.empty()) refuse("pre_tokenizer.pretokenizers", parts, "expected a list");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto place = is_sequence ? fmt::format("pre_tokenizer.pretokenizers[{}]", i) : "pre_tokenizer";
      add_pre_tokenizer(parts[i], place, i + 1 == parts.size());
    }
  }

  void add_pre_tokenizer(const Json& part, const std::string& place, bool is_last) {
    const auto& type = member(part, "type");
    if (is_last && type == "ByteLevel")
      add_byte_level(part, place);
    else if (!is_last && type == "Split")
      add_split(part, place);
    else if (!is_last && type == "Digits")
      bpe_.patterns.emplace_back(member(part, "individual_digits") == true ? R"(\p{N})" : R"(\p{N}+)", source_);
    else
      refuse(
          place + ".type", type,
          is_last ? "only ByteLevel is supported at the end" : "only Split and Digits are supported before ByteLevel");
  }

  void add_split(const Json& part, const std::string& place) {
    if (member(part, "behavior") != "Isolated")
      refuse(place + ".behavior", member(part, "behavior"), "only Isolated is supported");
    require(part, place, "invert", false);
    const auto& pattern = member(member(part, "pattern"), "Regex");
    if (!pattern.is_string()) refuse(place + ".pattern", member(part, "pattern"), "expected a Regex");
    bpe_.patterns.emplace_back(pattern.get<std::string>(), source_ + ": " + place + ".pattern.Regex");
  }

  void add_byte_level(const Json& part, const std::string& place) {
    if (member(part, "add_prefix_space") != false)
      refuse(place + ".add_prefix_space", member(part, "add_prefix_space"),
             "only false is supported: decoding must restore every text");
    if (member(part, "use_regex") != false) bpe_.patterns.emplace_back(gpt2_pattern, source_);
  }

  // Bounded by the number of tokens, so that a file cannot ask for more memory than it has.
  std::int32_t checked_id(const std::string& place, const Json& id) const {
    const auto count = member(member(file_, "model"), "vocab").size() + member(file_, "added_tokens").size();
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > count + most_unused_ids)
      refuse(place, id, fmt::format("expected an id of {} tokens", count));
    return id.get<std::int32_t>();
  }

  // Adds the token that an id stands for.
  void add_token(std::int32_t id, std::string bytes, const std::string& token) {
    const auto place = static_cast<std::size_t>(id);
    if (place >= bpe_.tokens.size()) {
      bpe_.tokens.resize(place + 1);
      bpe_.names.resize(place + 1);
    }
    if (!bpe_.tokens[place].empty()) fail(fmt::format("two tokens have the id {}; one is {}", id, in_quotes(token)));
    bpe_.tokens[place] = std::move(bytes);
    bpe_.names[place] = token;
  }

  void read_vocabulary() {
    const auto& model = member(file_, "model");
    const auto& type = member(model, "type");
    if (type != "BPE" && !type.is_null()) refuse("model.type", type, "only byte-level BPE is supported");
    if (member(model, "byte_fallback") == true)
      refuse("model.byte_fallback", true,
             "this is a tokenizer of sentencepiece, which is read from its tokenizer.model");
    for (const auto* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
      require(model, "model", name, nullptr);
    const auto& vocabulary = member(model, "vocab");
    if (!vocabulary.is_object() || vocabulary.empty()) fail("model.vocab is not an object of tokens with their ids");
    const bool has_whole_words = member(model, "ignore_merges") == true;
    for (const auto& [token, value] : vocabulary.items()) {
      if (token.empty()) fail("model.vocab has an empty token");
      const auto id = checked_id(fmt::format("model.vocab[{}]", in_quotes(token)), value);
      const auto bytes = from_byte_level(token);
      if (has_whole_words && bytes) bpe_.whole_words.emplace(*bytes, id);
      add_token(id, bytes.value_or(token), token);
      ids_.emplace(token, id);
    }
    next_added_id_ = static_cast<std::int32_t>(ids_.size());
  }

  // "a b" or ["a", "b"].
  std::pair<std::string, std::string> read_merge(const Json& merge, std::size_t index) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const auto space = text.find(' ');
      if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
        return {text.substr(0, space), text.substr(space + 1)};
    }
    refuse(fmt::format("model.merges[{}]", index), merge, "expected two tokens");
  }

  void read_merges() {
    const auto& merges = member(member(file_, "model"), "merges");
    if (!merges.is_array()) fail("model.merges is not a list");
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const auto [left, right] = read_merge(merges[i], i);
      const auto id_of = [&](const std::string& token) {
        const auto found = ids_.find(token);
        if (found == ids_.end())
          fail(fmt::format("model.merges[{}] needs the token {}, which model.vocab lacks", i, in_quotes(token)));
        return found->second;
      };
      const auto left_id = id_of(left), right_id = id_of(right);
      bpe_.merges.add(left_id, right_id, id_of(left + right));
    }
  }

  void read_added_tokens() {
    const auto& tokens = member(file_, "added_tokens");
    if (!tokens.is_array() && !tokens.is_null()) fail("added_tokens is not a list");
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto place = fmt::format("added_tokens[{}]", i);
      for (const auto* flag : {"single_word", "lstrip", "rstrip"}) require(tokens[i], place, flag, false);
      const auto& content = member(tokens[i], "content");
      if (!content.is_string() || content == "") refuse(place + ".content", content, "expected a text");
      add_added_token(content.get<std::string>(), checked_id(place + ".id", member(tokens[i], "id")), place,
                      member(tokens[i], "normalized") == true);
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
    bpe_.added[is_late ? 1 : 0].add(content, id);
  }

  void find_bytes() {
    for (std::size_t byte = 0; byte < bpe_.byte_ids.size(); ++byte) {
      const auto token = to_byte_level(std::string(1, static_cast<char>(byte)));
      const auto found = ids_.find(token);
      if (found == ids_.end())
        fail(fmt::format("model.vocab has no token {} for the byte {}: not every text can be encoded", in_quotes(token),
                         byte));
      bpe_.byte_ids[byte] = found->second;
    }
  }

  const Json& file_;
  const std::string& source_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::int32_t next_added_id_ = 0;  // of an added token that model.vocab lacks, as the library numbers them
  ByteLevelBpe bpe_;
};

}  // namespace

ByteLevelBpe read_tokenizer_json(const std::string& text, const std::string& source) {
  const auto file = parse_json(text);
  if (file.is_discarded()) throw Error(ExitCode::data, source + ": not valid JSON");
  return Reader(file, source).read();
}

}  // namespace metaformer
