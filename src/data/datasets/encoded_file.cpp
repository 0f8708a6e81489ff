#include "data/datasets/encoded_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/digest.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "text/load_tokenizer.h"

namespace metaformer {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

namespace {

constexpr std::string_view signature = "metaformer tokens\n";
constexpr std::size_t digest_size = 64;
constexpr std::size_t numbers_of_text = 3 * sizeof(std::uint64_t);  // label, count of ids, count of the text's bytes

class Writer {
 public:
  void add(std::string_view raw) { bytes_ += raw; }
  void add_number(std::uint64_t number) { add({reinterpret_cast<const char*>(&number), sizeof number}); }
  void add_string(std::string_view text) {
    add_number(text.size());
    add(text);
  }
  void add_ids(const std::vector<std::int32_t>& ids) {
    add_number(ids.size());
    add({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]});
  }
  void reserve(std::size_t size) { bytes_.reserve(size); }
  std::string take() {
    bytes_ += sha256(bytes_);
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

// Compares every count with the remaining bytes before it allocates memory for it.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  [[noreturn]] void fail(const std::string& why) const { throw Error(ExitCode::data, source_ + ": " + why); }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size()) fail("cut off");
    const auto taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::uint64_t number() {
    std::uint64_t number = 0;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  // A count of items that take at least `least` bytes each.
  std::uint64_t count(std::size_t least) {
    const auto count = number();
    if (count > bytes_.size() / least) fail("cut off");
    return count;
  }
  std::string string() { return std::string(take(number())); }
  std::vector<std::int32_t> ids() {
    std::vector<std::int32_t> ids(count(sizeof(std::int32_t)));
    const auto raw = take(ids.size() * sizeof ids[0]);
    if (!raw.empty()) std::memcpy(ids.data(), raw.data(), raw.size());
    return ids;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  const std::string& source_;
};

// The bytes between the signature and the digest, after both were checked.
Reader open(std::string_view bytes, std::string_view key, const std::string& source) {
  const Reader whole(bytes, source);
  if (!bytes.starts_with(signature) || bytes.size() < signature.size() + key.size() + digest_size)
    whole.fail("cut off or no file of tokens");
  const auto content = bytes.substr(0, bytes.size() - digest_size);
  if (sha256(content) != bytes.substr(content.size())) whole.fail("damaged");
  if (content.substr(signature.size(), key.size()) != key) whole.fail("holds tokens of other texts");
  return {content.substr(signature.size() + key.size()), source};
}

EncodedText read_text(Reader& reader, std::size_t labels, std::int64_t vocabulary) {
  const auto label = reader.number();
  EncodedText text{.ids = reader.ids(), .label = static_cast<std::int64_t>(label), .text = reader.string()};
  const bool known = std::all_of(text.ids.begin(), text.ids.end(), [&](auto id) { return id >= 0 && id < vocabulary; });
  if (label >= labels || text.ids.empty() || !known) reader.fail("holds ids that its tokenizer does not have");
  return text;
}

// A lower bound of the bytes of the packed splits.
std::uint64_t packed_size(const EncodedSplits& splits, const std::string& description, const std::string& tokenizer) {
  constexpr std::uint64_t all_else = 1024;
  auto size = all_else + description.size() + tokenizer.size();
  for (const auto& label : splits.codec.labels) size += sizeof(std::uint64_t) + label.size();
  for (const auto& texts : splits.texts)
    for (const auto& text : texts) size += numbers_of_text + text.ids.size() * sizeof(std::int32_t) + text.text.size();
  return size;
}

}  // namespace

std::string pack_encoded_splits(const EncodedSplits& splits, std::string_view key, std::uint64_t largest) {
  // Paths may be invalid UTF-8.
  const auto description = splits.description.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  const auto tokenizer = splits.codec.tokenizer->to_json().dump();
  const auto size = packed_size(splits, description, tokenizer);
  if (size > largest)
    throw Error(ExitCode::failure,
                fmt::format("they have {}, and at most {} are kept", human_bytes(size), human_bytes(largest)));
  Writer writer;
  writer.reserve(size);
  writer.add(signature);
  writer.add(key);
  writer.add_string(description);
  writer.add_string(tokenizer);
  writer.add_number(splits.codec.labels.size());
  for (const auto& label : splits.codec.labels) writer.add_string(label);
  for (const auto& digest : splits.text_digests) writer.add_string(digest);
  for (const auto split : every_split) {
    writer.add_number(splits[split].size());
    for (const auto& text : splits[split]) {
      writer.add_number(static_cast<std::uint64_t>(text.label));
      writer.add_ids(text.ids);
      writer.add_string(text.text);
    }
  }
  return writer.take();
}

EncodedSplits unpack_encoded_splits(std::string_view bytes, std::string_view key, const std::string& source) {
  auto reader = open(bytes, key, source);
  EncodedSplits splits;
  splits.description = parse_json<nlohmann::ordered_json>(reader.string());
  if (!splits.description.is_object()) reader.fail("its description is no JSON");
  splits.codec.tokenizer = load_tokenizer(reader.string(), source);
  for (auto left = reader.count(sizeof(std::uint64_t)); left > 0; --left)
    splits.codec.labels.push_back(reader.string());
  for (auto& digest : splits.text_digests) digest = reader.string();
  for (const auto split : every_split) {
    const auto count = reader.count(numbers_of_text);
    splits[split].reserve(count);
    while (splits[split].size() < count)
      splits[split].push_back(read_text(reader, splits.codec.labels.size(), splits.codec.tokenizer->vocabulary_size()));
  }
  if (!reader.at_end()) reader.fail("has more than its texts");
  return splits;
}

}  // namespace metaformer
