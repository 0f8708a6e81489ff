#include "data/sources/corpus.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/cache_folder.h"
#include "base/digest.h"
#include "base/download.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "data/sources/text_files.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

void check_digest(const PublicCorpus& corpus, const std::string& where, std::string_view content) {
  const bool by_md5 = corpus.sha256.empty();
  const auto digest = by_md5 ? md5(content) : sha256(content);
  const auto& expected = by_md5 ? corpus.md5 : corpus.sha256;
  if (digest != expected)
    throw Error(ExitCode::data, fmt::format("{}: not {}: {} is {}, should be {}", where, corpus.name,
                                            by_md5 ? "MD5" : "SHA-256", digest, expected));
}

// The corpus in a folder, under its name or another accepted one.
std::optional<fs::path> find_in(const fs::path& folder, const PublicCorpus& corpus) {
  std::error_code ignored;
  if (auto path = folder / corpus.file; fs::exists(path, ignored)) return path;
  if (corpus.stem.empty()) return std::nullopt;
  std::optional<fs::path> first;  // the first by name, whatever the order in the folder
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with(corpus.stem) && name.ends_with(".tar.gz") && (!first || entry.path() < *first))
      first = entry.path();
  }
  return first;
}

// Keys that have no effect on these data.
void refuse_void_keys(const TextDataConfig& config, const fs::path& path, bool has_json_lines, bool is_one_text) {
  const TextDataConfig usual;
  const auto refuse_if = [&](bool is_void, const char* key, const char* why) {
    if (is_void) throw Error(ExitCode::usage, fmt::format("{}: means nothing for {}, {}", key, path.string(), why));
  };
  constexpr auto no_lines =
      "which is plain text; files named .jsonl, .json or .ndjson, and with data.format jsonl all, are "
      "JSON lines";
  refuse_if(!has_json_lines && config.text_field != usual.text_field, "data.text_field", no_lines);
  refuse_if(!has_json_lines && config.malformed_limit != usual.malformed_limit, "data.malformed_limit", no_lines);
  refuse_if(is_one_text && config.document_separator != usual.document_separator, "data.document_separator",
            "which is one document; JSON lines and folders have several");
  refuse_if(is_one_text && config.separate_documents, "data.separate_documents",
            "which is one document; JSON lines and folders have several");
  refuse_if(is_one_text && packing_options(config.packing) != nullptr, "data.packing",
            "which is one document; JSON lines and folders have several");
}

std::string help_without_network(const PublicCorpus& corpus) {
  return fmt::format("without a network, put {} into a folder and name that folder in METAFORMER_DATA", corpus.file);
}

}  // namespace

const std::vector<PublicCorpus>& public_corpora() {
  static const std::vector<PublicCorpus> corpora = {
      {.name = "tinyshakespeare",
       .task = LanguageModelConfig::kind,
       .file = "tinyshakespeare.txt",
       .url = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
       .sha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
       .md5 = "",
       .bytes = 1'115'394,
       .stem = ""},
      {.name = "imdb",
       .task = ClassificationConfig::kind,
       .file = "aclImdb_v1.tar.gz",
       .url = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
       .sha256 = "",
       .md5 = "7c2ac02c03563afcf9b574c7e56c153a",
       .bytes = 84'125'825,
       .stem = "aclImdb_v1"},
  };
  return corpora;
}

const PublicCorpus& find_public_corpus(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& corpus : public_corpora()) {
    if (corpus.name == name) return corpus;
    names.push_back(corpus.name);
  }
  throw Error(ExitCode::usage, fmt::format("unknown corpus {}; known: {}{}; for a file of your own set data.path",
                                           in_quotes(name), fmt::join(names, ", "), did_you_mean(name, names)));
}

std::optional<fs::path> locate_corpus(const PublicCorpus& corpus) {
  std::error_code ignored;
  if (const char* folder = std::getenv("METAFORMER_DATA"); folder && *folder) {
    if (!fs::is_directory(folder, ignored))
      throw Error(ExitCode::data, fmt::format("METAFORMER_DATA={}: no such folder", folder));
    if (auto path = find_in(folder, corpus)) return path;
  }
  const auto cache = cache_folder();
  return cache ? find_in(*cache, corpus) : std::nullopt;
}

fs::path obtain_corpus(const PublicCorpus& corpus, bool offline) {
  if (const auto found = locate_corpus(corpus)) return *found;
  const auto cache = cache_folder();
  if (!cache)
    throw Error(ExitCode::data,
                fmt::format("corpus {} is not in METAFORMER_DATA, and there is no cache to fetch it into; "
                            "set HOME, or put {} into a folder and name that folder in METAFORMER_DATA",
                            corpus.name, corpus.file));
  if (offline)
    throw Error(ExitCode::data, fmt::format("corpus {} is neither in METAFORMER_DATA nor in {}, and --offline forbids "
                                            "fetching it; {}",
                                            corpus.name, cache->string(), help_without_network(corpus)));
  return fetch_corpus(corpus, *cache);
}

fs::path fetch_corpus(const PublicCorpus& corpus, const fs::path& folder) {
  const auto target = folder / corpus.file;
  log::info("fetching {} ({}) from {}", corpus.name, human_bytes(corpus.bytes), corpus.url);
  std::string content;
  try {
    content = download(corpus.url, corpus.bytes + (1 << 20));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}; {}", error.what(), help_without_network(corpus)));
  }
  check_digest(corpus, corpus.url, content);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(ExitCode::failure, fmt::format("cannot make {}: {}", folder.string(), error.message()));
  write_file_atomically(target, content);
  log::info("saved {}", target.string());
  return target;
}

Corpus load_corpus(const TextDataConfig& config, bool offline) {
  const auto* known = config.path ? nullptr : &find_public_corpus(config.corpus);
  if (known != nullptr && known->task != LanguageModelConfig::kind)
    throw Error(ExitCode::usage,
                fmt::format("data.corpus: {} is for task {}, not a text to predict", known->name, known->task));
  Corpus corpus{.path = known ? obtain_corpus(*known, offline) : fs::path(*config.path), .text = {}, .sha256 = {}};
  auto training = read_text_files(corpus.path, config);
  corpus.text = std::move(training.text);
  corpus.document_starts = std::move(training.document_starts);
  corpus.description = std::move(training.description);
  corpus.sha256 = corpus.description.at("sha256");
  if (known) check_digest(*known, corpus.path.string(), corpus.text);
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
  return corpus;
}

}  // namespace metaformer
