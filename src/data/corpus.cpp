#include "data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ranges>
#include <utility>

#include "base/digest.h"
#include "base/download.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/experiment_config.h"
#include "data/imdb.h"
#include "data/tables.h"
#include "data/text_source.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

void check_digest(const PublicCorpus& corpus, const CorpusFile& file, const std::string& where,
                  std::string_view content) {
  const bool by_md5 = file.digest.size() == 32;
  const auto digest = by_md5 ? md5(content) : sha256(content);
  if (digest != file.digest)
    fail_data("{}: not {}: {} is {}, should be {}", where,
              corpus.is_folder() ? file.name + " of " + corpus.name : corpus.name, by_md5 ? "MD5" : "SHA-256", digest,
              file.digest);
}

// The corpus in a folder, under its name or another accepted one.
std::optional<fs::path> find_in(const fs::path& folder, const PublicCorpus& corpus) {
  std::error_code ignored;
  if (corpus.is_folder()) {
    for (const auto& place : {folder, folder / corpus.name})
      if (std::ranges::all_of(corpus.files, [&](const auto& file) { return fs::exists(place / file.name, ignored); }))
        return place;
    return std::nullopt;
  }
  if (auto path = folder / corpus.files.front().name; fs::exists(path, ignored)) return path;
  if (corpus.stem.empty()) return std::nullopt;
  std::optional<fs::path> first;  // the first by name, whatever the order in the folder
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = entry.path().filename().string();
    const bool is_other = name.starts_with(corpus.stem) && name.ends_with(".tar.gz");
    if (is_other && (!first || entry.path() < *first)) first = entry.path();
  }
  return first;
}

// Refuses keys that have no effect on these data.
void refuse_void_keys(const TextDataConfig& config, const fs::path& path, bool has_json_lines, bool is_one_text) {
  const TextDataConfig usual;
  const auto refuse_if = [&](bool is_void, const char* key, const char* why) {
    if (is_void) fail_usage("{}: means nothing for {}, {}", key, path.string(), why);
  };
  constexpr auto one_document = "which is one document; JSON lines and folders have several";
  constexpr auto no_lines =
      "which is plain text: JSON lines are files named .jsonl, .json or .ndjson, or any with data.format jsonl";
  refuse_if(!has_json_lines && config.text_field != usual.text_field, "data.text_field", no_lines);
  refuse_if(!has_json_lines && config.malformed_limit != usual.malformed_limit, "data.malformed_limit", no_lines);
  refuse_if(is_one_text && config.separate_documents, "data.separate_documents", one_document);
  refuse_if(is_one_text && packing_options(config.packing) != nullptr, "data.packing", one_document);
}

// Advice for a corpus that is not in the cache.
std::string help(const PublicCorpus& corpus) {
  const auto names = corpus.files | std::views::transform(&CorpusFile::name);
  return fmt::format("put {} into a folder and name that folder in METAFORMER_DATA", fmt::join(names, ", "));
}

}  // namespace

TextFiles read_text_files(const fs::path& path, const TextDataConfig& config) {
  TextFiles read;
  auto summary = read_texts({path}, config, [&](std::string_view piece, bool starts_document) {
    if (starts_document) read.document_starts.push_back(read.text.size());
    read.text += piece;
    if (read.text.size() > largest_text_file)
      fail_data("{}: more than {}; `metaformer data prepare` makes tokens of texts of any size", path.string(),
                human_bytes(largest_text_file));
  });
  read.description = std::move(summary.description);
  read.has_json_lines = summary.has_json_lines;
  read.is_one_text = summary.is_one_text;
  return read;
}

std::uint64_t PublicCorpus::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& file : files) sum += file.bytes;
  return sum;
}

const std::vector<PublicCorpus>& public_corpora() {
  static const std::vector<PublicCorpus> corpora = {
      {.name = "tinyshakespeare",
       .task = LanguageModelConfig::kind,
       .url = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
       .files = {{"tinyshakespeare.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
                  1'115'394}}},
      {.name = "imdb",
       .task = ClassificationConfig::kind,
       .url = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
       .files = {{"aclImdb_v1.tar.gz", "7c2ac02c03563afcf9b574c7e56c153a", 84'125'825}},
       .stem = "aclImdb_v1"},
      {.name = "multi30k",
       .task = SequenceToSequenceConfig::kind,
       .url = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/",
       .files = {{"train.de.gz", "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6", 637'044},
                 {"train.en.gz", "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f", 568'929},
                 {"val.de.gz", "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a", 24'681},
                 {"val.en.gz", "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28", 21'650},
                 {"test_2016_flickr.de.gz", "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8", 22'890},
                 {"test_2016_flickr.en.gz", "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
                  21'077}}},
  };
  return corpora;
}

const PublicCorpus& find_public_corpus(const std::string& name) {
  const auto found = std::ranges::find(public_corpora(), name, &PublicCorpus::name);
  if (found != public_corpora().end()) return *found;
  fail_usage("unknown corpus {}; known: {}{}; for a file of your own set data.path", in_quotes(name),
             fmt::join(corpus_names, ", "), did_you_mean(name, {corpus_names.begin(), corpus_names.end()}));
}

std::optional<fs::path> locate_corpus(const PublicCorpus& corpus) {
  std::error_code ignored;
  if (const char* folder = std::getenv("METAFORMER_DATA"); folder && *folder) {
    if (!fs::is_directory(folder, ignored)) fail_data("METAFORMER_DATA={}: no such folder", folder);
    if (auto path = find_in(folder, corpus)) return path;
  }
  const auto cache = cache_folder();
  return cache ? find_in(*cache, corpus) : std::nullopt;
}

fs::path obtain_corpus(const PublicCorpus& corpus, bool offline) {
  if (const auto found = locate_corpus(corpus)) return *found;
  const auto cache = cache_folder();
  if (!cache)
    fail_data("corpus {}: not in METAFORMER_DATA, and there is no cache to fetch it into; set HOME, or {}", corpus.name,
              help(corpus));
  if (offline)
    fail_data(
        "corpus {} is neither in METAFORMER_DATA nor in {}, and --offline forbids fetching it; without a network, {}",
        corpus.name, cache->string(), help(corpus));
  return fetch_corpus(corpus, *cache);
}

fs::path fetch_corpus(const PublicCorpus& corpus, const fs::path& folder) {
  const auto target = folder / (corpus.is_folder() ? corpus.name : corpus.files.front().name);
  for (const auto& file : corpus.files) {
    const auto url = corpus.is_folder() ? corpus.url + file.name : corpus.url;
    log::info("fetching {} ({}) from {}", corpus.is_folder() ? file.name : corpus.name, human_bytes(file.bytes), url);
    std::string content;
    try {
      content = download(url, file.bytes + (1 << 20));
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}; without a network, {}", error.what(), help(corpus)));
    }
    check_digest(corpus, file, url, content);
    const auto path = corpus.is_folder() ? target / file.name : target;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error)
      throw Error(ExitCode::failure, fmt::format("cannot make {}: {}", path.parent_path().string(), error.message()));
    write_file_atomically(path, content);
  }
  log::info("saved {}", target.string());
  return target;
}

void check_corpus_files(const PublicCorpus& corpus, const fs::path& folder) {
  for (const auto& file : corpus.files)
    check_digest(corpus, file, (folder / file.name).string(),
                 read_file(folder / file.name, largest_text_file, ExitCode::data));
}

Corpus load_corpus(const TextDataConfig& config, bool offline) {
  const auto* known = config.path ? nullptr : &find_public_corpus(config.corpus);
  if (known != nullptr && known->task != LanguageModelConfig::kind)
    fail_usage("data.corpus: {} is for task {}, not a text to predict", known->name, known->task);
  Corpus corpus{.path = known ? obtain_corpus(*known, offline) : fs::path(*config.path), .text = {}, .sha256 = {}};
  auto training = read_text_files(corpus.path, config);
  corpus.text = std::move(training.text);
  corpus.document_starts = std::move(training.document_starts);
  corpus.description = std::move(training.description);
  corpus.sha256 = corpus.description.at("sha256");
  if (known) check_digest(*known, known->files.front(), corpus.path.string(), corpus.text);
  bool has_json_lines = training.has_json_lines, is_one_text = training.is_one_text;
  if (config.validation_path) {
    auto held_out = read_text_files(*config.validation_path, config);
    corpus.held_out = std::move(held_out.text);
    corpus.held_out_document_starts = std::move(held_out.document_starts);
    corpus.description["validation"] = std::move(held_out.description);
    has_json_lines |= held_out.has_json_lines;
    is_one_text &= held_out.is_one_text;
  }
  refuse_void_keys(config, corpus.path, has_json_lines, is_one_text);
  if (const auto warning = describe_table_as_text(corpus.path, corpus.path.string()); !warning.empty())
    log::warning("{}", warning);
  return corpus;
}

}  // namespace metaformer
