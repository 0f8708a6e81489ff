#include "data/encoded_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "base/digest.h"
#include "base/download.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "config/writer.h"
#include "data/imdb.h"
#include "text/make_tokenizer.h"

namespace metaformer {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

namespace {

constexpr std::string_view signature = "metaformer tokens\n";
constexpr std::size_t digest_size = 64;
constexpr std::size_t numbers_of_text = 3 * sizeof(std::uint64_t);  // label, count of ids, count of the text's bytes

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int format_version = 5;  // raise it when the same texts and config give other tokens or another file
constexpr std::uintmax_t most_bytes = std::uintmax_t{2} << 30;  // of the folder, and so of a file

// Digests of the names and contents of sources. Names may determine the format; the folder does not matter.
Json digests_of(const LabelledSources& sources) {
  Json digests;
  for (const auto& [name, path] : sources)
    digests[name] = {{"name", sha256(path.filename().string())},
                     {"content", is_folder(path) ? digest_imdb_folder(path) : sha256_of_file(path)}};
  return digests;
}

std::string digest_of(const Tokenizer& tokenizer) { return sha256(tokenizer.to_json().dump()); }

std::string key_of(LabelledDataConfig config, const Codec& codec, const Json& digests) {
  // The key depends on the content of a pretrained tokenizer, not on its path. With a codec its file need no longer
  // exist.
  if (auto* pretrained = std::get_if<PretrainedTokenizerOptions>(&config.tokenizer))
    pretrained->path = digest_of(codec.tokenizer ? *codec.tokenizer : *read_pretrained_tokenizer(pretrained->path));
  ClassificationConfig task;
  task.data = config;
  auto data = config_to_json({.task = task}).at("data");
  for (const auto* unrelated : {"path", "validation_path", "test_path", "extra_path", "cache"}) data.erase(unrelated);
  // CBOR, not text, because values from a command line may be invalid UTF-8.
  const auto bytes = Json::to_cbor(Json({{"format", format_version}, {"sources", digests}, {"data", data}}));
  return sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string key_with_codec(const std::string& key, const Codec& codec) {
  std::string labels;
  for (const auto& label : codec.labels) labels += sha256(label);
  return sha256(key + digest_of(*codec.tokenizer) + labels);
}

// Whether `found` is the given codec. A given codec without labels takes those of the texts.
bool is_given(const Codec& found, const Codec& given) {
  return !given.tokenizer || ((given.labels.empty() || given.labels == found.labels) &&
                              given.tokenizer->to_json() == found.tokenizer->to_json());
}

// Files that other processes add or remove in the meantime are no errors.
void remove_least_recently_used(const fs::path& kept) {
  std::multimap<fs::file_time_type, std::pair<fs::path, std::uintmax_t>> files;  // by last use: path and bytes
  std::uintmax_t all = 0;
  std::error_code error;
  for (fs::directory_iterator entry(kept.parent_path(), error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    const auto size = fs::file_size(entry->path(), gone);
    const auto used = gone ? fs::file_time_type() : fs::last_write_time(entry->path(), gone);
    if (gone) continue;
    all += size;
    if (entry->path() != kept) files.emplace(used, std::pair(entry->path(), size));
  }
  for (const auto& [used, file] : files)
    if (all > most_bytes && fs::remove(file.first, error)) all -= file.second;
}

// Logs the counts that reading the source would have logged.
void report(const std::string& path, const Json& source) {
  std::vector<std::string> counts;
  for (const auto& [name, value] : source.items())
    if (value.is_number() || name == "validation_split")
      counts.push_back(fmt::format("{} {}", name, value.is_string() ? value.get<std::string>() : value.dump()));
  const auto line = fmt::format("tokens from the cache: {}: {}", path, fmt::join(counts, ", "));
  source.value("malformed", 0) > 0 ? log::write_warning(line) : log::write_info(line);
}

// Reads the first file of `keys` that can be used; warns of files that cannot.
std::optional<EncodedSplits> find(const fs::path& folder, const LabelledSources& sources,
                                  const std::vector<std::string>& keys, const Codec& codec) {
  for (const auto& key : keys) {
    const auto path = folder / (key + ".bin");
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    try {
      auto splits = read_encoded(read_file(path, most_bytes, ExitCode::data), key, path.string());
      fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // the time of its last use
      if (!is_given(splits.codec, codec)) continue;
      for (const auto& [name, source] : sources) {
        splits.description[name]["path"] = source.string();
        report(source.string(), splits.description[name]);
      }
      return splits;
    } catch (const Error& error) {
      log::warning("{}; tokenizing the texts again", error.what());
    }
  }
  return std::nullopt;
}

}  // namespace

std::string write_encoded(const EncodedSplits& splits, std::string_view key, std::uint64_t largest) {
  const auto description = json_text(splits.description);  // paths may be invalid UTF-8
  const auto tokenizer = splits.codec.tokenizer->to_json().dump();
  auto size = 1024 + description.size() + tokenizer.size();  // an estimate
  for (const auto& label : splits.codec.labels) size += sizeof(std::uint64_t) + label.size();
  for (const auto& texts : splits.texts)
    for (const auto& text : texts) size += numbers_of_text + text.ids.size() * sizeof(std::int32_t) + text.text.size();
  if (size > largest)
    throw Error(ExitCode::failure,
                fmt::format("they have {}, and at most {} are kept", human_bytes(size), human_bytes(largest)));
  std::string bytes;
  bytes.reserve(size);
  const auto add_number = [&](std::uint64_t number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const auto add_string = [&](std::string_view text) {
    add_number(text.size());
    bytes += text;
  };
  (bytes += signature) += key;
  add_string(description);
  add_string(tokenizer);
  add_number(splits.codec.labels.size());
  for (const auto& label : splits.codec.labels) add_string(label);
  for (const auto& digest : splits.text_digests) add_string(digest);
  add_number(static_cast<std::uint64_t>(splits.training_bytes));
  for (const auto& texts : splits.texts) {
    add_number(texts.size());
    for (const auto& [ids, label, text] : texts) {
      add_number(static_cast<std::uint64_t>(label));
      add_number(ids.size());
      bytes.append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]);
      add_string(text);
    }
  }
  bytes += sha256(bytes);
  return bytes;
}

EncodedSplits read_encoded(std::string_view bytes, std::string_view key, const std::string& source) {
  const auto require = [&](bool valid, const char* why) {
    if (!valid) fail_data("{}: {}", source, why);
  };
  require(bytes.starts_with(signature) && bytes.size() >= signature.size() + key.size() + digest_size,
          "cut off or no file of tokens");
  auto rest = bytes.substr(0, bytes.size() - digest_size);
  require(sha256(rest) == bytes.substr(rest.size()), "damaged");
  require(rest.substr(signature.size(), key.size()) == key, "holds tokens of other texts");
  rest.remove_prefix(signature.size() + key.size());
  const auto take = [&](std::uint64_t size) {
    require(size <= rest.size(), "cut off");
    const auto taken = rest.substr(0, size);
    rest.remove_prefix(size);
    return taken;
  };
  const auto number = [&] {
    std::uint64_t number = 0;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  };
  // A count of items that take at least `least` bytes each; compared with the bytes left before memory is allocated.
  const auto count = [&](std::size_t least) {
    const auto count = number();
    require(count <= rest.size() / least, "cut off");
    return count;
  };
  const auto string = [&] { return std::string(take(number())); };
  EncodedSplits splits;
  splits.description = parse_json<Json>(string());
  require(splits.description.is_object(), "its description is no JSON");
  splits.codec.tokenizer = load_tokenizer(string(), source);
  for (auto left = count(sizeof(std::uint64_t)); left > 0; --left) splits.codec.labels.push_back(string());
  for (auto& digest : splits.text_digests) digest = string();
  splits.training_bytes = static_cast<std::int64_t>(number());
  for (auto& texts : splits.texts) {
    texts.resize(count(numbers_of_text));
    for (auto& [ids, label, text] : texts) {
      label = static_cast<std::int64_t>(number());
      ids.resize(count(sizeof ids[0]));
      if (const auto raw = take(ids.size() * sizeof ids[0]); !raw.empty())
        std::memcpy(ids.data(), raw.data(), raw.size());
      text = string();
      const auto vocabulary = splits.codec.tokenizer->vocabulary_size();
      const bool known = std::ranges::all_of(ids, [&](auto id) { return id >= 0 && id < vocabulary; });
      require(label >= 0 && label < std::ssize(splits.codec.labels) && !ids.empty() && known,
              "holds ids that its tokenizer does not have");
    }
  }
  require(rest.empty(), "has more than its texts");
  return splits;
}

EncodedSplits load_encoded_splits(const LabelledDataConfig& config, bool offline, Codec codec) {
  const auto cache = config.cache ? cache_folder() : std::nullopt;
  if (!cache) return encode_splits(load_labelled_splits(config, offline), config, std::move(codec));
  const auto folder = *cache / "tokens";
  const auto sources = labelled_sources(config, offline);
  const auto digests = digests_of(sources);
  // The key without a codec comes first: a given codec usually is the one that training made from the same texts.
  std::vector<std::string> keys = {key_of(config, codec, digests)};
  if (codec.tokenizer) keys.push_back(key_with_codec(keys.front(), codec));
  if (auto splits = find(folder, sources, keys, codec)) return std::move(*splits);
  auto splits = encode_splits(load_labelled_splits(config, offline), config, std::move(codec));
  if (digests_of(sources) != digests) return splits;  // they changed while they were read
  std::error_code ignored;                            // the write reports the error
  std::filesystem::create_directories(folder, ignored);
  try {
    const auto path = folder / (keys.back() + ".bin");
    write_file_atomically(path, write_encoded(splits, keys.back(), most_bytes));
    remove_least_recently_used(path);
  } catch (const Error& error) {
    log::warning("the tokens are not kept for the next run: {}", error.what());
  }
  return splits;
}

}  // namespace metaformer
