#pragma once
// Text corpora: public ones by name, any file by path.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/experiment_config.h"

namespace metaformer {

struct PublicCorpus {
  std::string name;
  std::string file;  // its name in METAFORMER_DATA and in the cache
  std::string url;
  std::string sha256;
  std::uint64_t bytes;
};

const std::vector<PublicCorpus>& public_corpora();

// Errors (exit code 2) list the known names.
const PublicCorpus& find_public_corpus(const std::string& name);

// Where the file is: in METAFORMER_DATA, then in the cache ($XDG_CACHE_HOME/metaformer or ~/.cache/metaformer).
std::optional<std::filesystem::path> locate_corpus(const PublicCorpus& corpus);

std::filesystem::path corpus_cache();

// Downloads into `folder`, checks the publisher's digest, and returns the file. Errors: exit code 3.
std::filesystem::path fetch_corpus(const PublicCorpus& corpus, const std::filesystem::path& folder);

struct Corpus {
  std::filesystem::path path;
  std::string text;
  std::string sha256;
};

// The text that a config names: data.path, else data.corpus, which is fetched when it is nowhere (unless `offline`).
// Errors (exit code 3): missing, empty, digest of a public corpus differs.
Corpus load_corpus(const DataConfig& config, bool offline);

}  // namespace metaformer
