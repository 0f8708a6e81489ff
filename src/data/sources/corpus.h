#pragma once
// Text corpora: public ones by name, any files by path.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment_config.h"

namespace metaformer {

struct PublicCorpus {
  std::string name;
  TaskKind task;
  std::string file;  // its name in METAFORMER_DATA and in the cache
  std::string url;
  std::string sha256;  // of the file; "" where its publisher names another digest
  std::string md5;     // "" where that is not it
  std::uint64_t bytes;
  std::string stem;  // any STEM*.tar.gz counts as the file; "" where none does
};

const std::vector<PublicCorpus>& public_corpora();

// Errors (exit code 2) list the known names.
const PublicCorpus& find_public_corpus(const std::string& name);

// Where the file is: in METAFORMER_DATA, then in the cache ($XDG_CACHE_HOME/metaformer or ~/.cache/metaformer).
std::optional<std::filesystem::path> locate_corpus(const PublicCorpus& corpus);

// The same; fetched into the cache when it is nowhere. Errors (exit code 3): nowhere and `offline`.
std::filesystem::path obtain_corpus(const PublicCorpus& corpus, bool offline);

// Downloads into `folder`, checks the publisher's digest, and returns the file. Errors: exit code 3.
std::filesystem::path fetch_corpus(const PublicCorpus& corpus, const std::filesystem::path& folder);

struct Corpus {
  std::filesystem::path path;
  std::string text;                          // without a held-out text its end is for validation
  std::string sha256;                        // over all files of the text, as they lie there
  std::optional<std::string> held_out = {};  // what data.validation_path names
  nlohmann::ordered_json description = {};   // for environment.json: paths, digests, numbers of files and documents
};

// The text that a config names: data.path, else data.corpus, which is fetched when it is nowhere (unless `offline`);
// and data.validation_path. Errors: those of read_text_files (data/sources/text_files.h); digest of a public corpus
// differs (exit code 3); a corpus that is no text, keys that mean nothing for these files (exit code 2).
Corpus load_corpus(const DataConfig& config, bool offline);

}  // namespace metaformer
