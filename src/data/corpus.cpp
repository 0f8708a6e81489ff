#include "data/corpus.h"

#include <fmt/format.h>

#include <cstdlib>

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/text.h"
#include "data/digest.h"
#include "data/download.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t largest_corpus = std::uintmax_t{16} << 30;

void check_digest(const PublicCorpus& corpus, const std::string& where, const std::string& digest) {
  if (digest != corpus.sha256)
    throw Error(ExitCode::data,
                fmt::format("{}: not {}: SHA-256 is {}, should be {}", where, corpus.name, digest, corpus.sha256));
}

std::string help_without_network(const PublicCorpus& corpus) {
  return fmt::format("without a network, put {} into a folder and name that folder in METAFORMER_DATA", corpus.file);
}

fs::path obtain(const PublicCorpus& corpus, bool offline) {
  if (const auto found = locate_corpus(corpus)) return *found;
  if (offline)
    throw Error(ExitCode::data, fmt::format("corpus {} is neither in METAFORMER_DATA nor in {}, and --offline forbids "
                                            "fetching it; {}",
                                            corpus.name, corpus_cache().string(), help_without_network(corpus)));
  return fetch_corpus(corpus, corpus_cache());
}

}  // namespace

const std::vector<PublicCorpus>& public_corpora() {
  static const std::vector<PublicCorpus> corpora = {
      {"tinyshakespeare", "tinyshakespeare.txt",
       "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
       "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed", 1'115'394},
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

fs::path corpus_cache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return fs::path(cache) / "metaformer";
  const char* home = std::getenv("HOME");
  return fs::path(home && *home ? home : "/tmp") / ".cache" / "metaformer";
}

std::optional<fs::path> locate_corpus(const PublicCorpus& corpus) {
  std::error_code ignored;
  if (const char* folder = std::getenv("METAFORMER_DATA"); folder && *folder) {
    if (!fs::is_directory(folder, ignored))
      throw Error(ExitCode::data, fmt::format("METAFORMER_DATA={}: no such folder", folder));
    if (auto path = fs::path(folder) / corpus.file; fs::exists(path, ignored)) return path;
  }
  if (auto path = corpus_cache() / corpus.file; fs::exists(path, ignored)) return path;
  return std::nullopt;
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
  check_digest(corpus, corpus.url, sha256(content));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(ExitCode::failure, fmt::format("cannot make {}: {}", folder.string(), error.message()));
  write_file_atomically(target, content);
  log::info("saved {}", target.string());
  return target;
}

Corpus load_corpus(const DataConfig& config, bool offline) {
  const auto* known = config.path ? nullptr : &find_public_corpus(config.corpus);
  Corpus corpus;
  corpus.path = known ? obtain(*known, offline) : fs::path(*config.path);
  corpus.text = read_file(corpus.path, largest_corpus, ExitCode::data);
  corpus.sha256 = sha256(corpus.text);
  if (corpus.text.empty()) throw Error(ExitCode::data, corpus.path.string() + ": the corpus is empty");
  if (known) check_digest(*known, corpus.path.string(), corpus.sha256);
  return corpus;
}

}  // namespace metaformer
