#include "data/datasets/encoded_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/cache_folder.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "config/writer.h"
#include "data/datasets/encoded_file.h"
#include "data/sources/imdb_files.h"
#include "text/pretrained_tokenizer.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Sources = std::vector<LabelledSource>;

namespace {

constexpr int format_version = 4;  // raise it when the same texts and config give other tokens or another file
constexpr std::uintmax_t most_bytes = std::uintmax_t{2} << 30;  // of the folder, and so of a file

fs::path path_of(const fs::path& cache, const std::string& key) { return cache / "tokens" / (key + ".bin"); }

// The folder of a source does not matter; its name may determine the format.
Json digests_of(const Sources& sources) {
  Json digests;
  for (const auto& [name, path] : sources)
    digests[name] = {{"name", sha256(path.filename().string())},
                     {"content", is_folder(path) ? digest_imdb_folder(path) : sha256_of_file(path)}};
  return digests;
}

std::string digest_of(const Tokenizer& tokenizer) { return sha256(tokenizer.to_json().dump()); }

// A pretrained tokenizer by its content, not by its path. With a codec it need no longer be where it was.
LabelledDataConfig with_tokenizer_digest(LabelledDataConfig config, const Codec& codec) {
  if (auto* pretrained = std::get_if<PretrainedTokenizerOptions>(&config.tokenizer))
    pretrained->path = digest_of(codec.tokenizer ? *codec.tokenizer : *read_pretrained_tokenizer(pretrained->path));
  return config;
}

std::string key_of(const LabelledDataConfig& config, const Json& digests) {
  ClassificationConfig task;
  task.data = config;
  auto data = config_to_json({.task = task}).at("data");
  for (const auto* unrelated : {"path", "validation_path", "test_path", "extra_path", "cache"}) data.erase(unrelated);
  // Not as text: values from a command line may be invalid UTF-8.
  const auto bytes = Json::to_cbor(Json({{"format", format_version}, {"sources", digests}, {"data", data}}));
  return sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string key_of(const LabelledDataConfig& config, const Json& digests, const Codec& codec) {
  std::string labels;
  for (const auto& label : codec.labels) labels += sha256(label);
  return sha256(key_of(config, digests) + digest_of(*codec.tokenizer) + labels);
}

// A given codec without labels takes those of the texts.
bool is_given(const Codec& found, const Codec& given) {
  return (given.labels.empty() || given.labels == found.labels) &&
         given.tokenizer->to_json() == found.tokenizer->to_json();
}

// Returns nothing, after a warning, if the file exists but cannot be used.
std::optional<EncodedSplits> read(const fs::path& path, const std::string& key) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  try {
    auto splits = unpack_encoded_splits(read_file(path, most_bytes, ExitCode::data), key, path.string());
    fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // used last
    return splits;
  } catch (const Error& error) {
    log::warning("{}; tokenizing the texts again", error.what());
    return std::nullopt;
  }
}

// Files that other processes add or remove in the meantime are no errors.
void remove_least_recently_used(const fs::path& kept) {
  struct File {
    fs::file_time_type used;
    std::uintmax_t size;
    fs::path path;
  };
  std::vector<File> files;
  std::uintmax_t all = 0;
  std::error_code error;
  for (fs::directory_iterator entry(kept.parent_path(), error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    const auto size = fs::file_size(entry->path(), gone);
    const auto used = gone ? fs::file_time_type() : fs::last_write_time(entry->path(), gone);
    if (gone) continue;
    all += size;
    if (entry->path() != kept) files.push_back({used, size, entry->path()});
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  for (const auto& file : files) {
    if (all <= most_bytes) return;
    if (fs::remove(file.path, error)) all -= file.size;
  }
}

void write(const EncodedSplits& splits, const fs::path& path, const std::string& key) {
  std::error_code ignored;  // the failing write is reported
  fs::create_directories(path.parent_path(), ignored);
  try {
    write_file_atomically(path, pack_encoded_splits(splits, key, most_bytes));
    remove_least_recently_used(path);
  } catch (const Error& error) {
    log::warning("the tokens are not kept for the next run: {}", error.what());
  }
}

// The log of a hit has the counts that reading the source would have logged.
void report(const std::string& path, const Json& source) {
  std::vector<std::string> counts;
  for (const auto& [name, value] : source.items())
    if (value.is_number() || name == "validation_split")
      counts.push_back(fmt::format("{} {}", name, value.is_string() ? value.get<std::string>() : value.dump()));
  const auto line = fmt::format("tokens from the cache: {}: {}", path, fmt::join(counts, ", "));
  source.value("malformed", 0) > 0 ? log::write_warning(line) : log::write_info(line);
}

std::optional<EncodedSplits> find(const fs::path& cache, const Sources& sources, const std::vector<std::string>& keys,
                                  const Codec& codec) {
  for (const auto& key : keys) {
    auto splits = read(path_of(cache, key), key);
    if (!splits || (codec.tokenizer && !is_given(splits->codec, codec))) continue;
    for (const auto& [name, path] : sources) {
      splits->description[name]["path"] = path.string();
      report(path.string(), splits->description[name]);
    }
    return splits;
  }
  return std::nullopt;
}

}  // namespace

EncodedSplits load_encoded_splits(const LabelledDataConfig& config, bool offline, Codec codec) {
  const auto cache = config.cache ? cache_folder() : std::nullopt;
  if (!cache) return encode_splits(load_labelled_splits(config, offline), config, std::move(codec));
  const auto sources = labelled_sources(config, offline);
  const auto digests = digests_of(sources);
  const auto keyed = with_tokenizer_digest(config, codec);
  // A given codec usually is the one that training made from the same texts.
  std::vector<std::string> keys = {key_of(keyed, digests)};
  if (codec.tokenizer) keys.push_back(key_of(keyed, digests, codec));
  if (auto splits = find(*cache, sources, keys, codec)) return std::move(*splits);
  auto splits = encode_splits(load_labelled_splits(config, offline), config, std::move(codec));
  const bool unchanged = digests_of(sources) == digests;  // while they were read
  if (unchanged) write(splits, path_of(*cache, keys.back()), keys.back());
  return splits;
}

}  // namespace metaformer
