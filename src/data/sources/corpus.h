#pragma once
// Text corpora: public ones by name, others by path.

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
  std::string_view task;  // the kind of task that it is for
  std::string file;       // its name in METAFORMER_DATA and in the cache
  std::string url;
  std::string sha256;  // of the file; "" if its publisher uses another digest
  std::string md5;     // "" if the publisher uses another digest
  std::uint64_t bytes;
  std::string stem;  // any STEM*.tar.gz is accepted as the file; "" if none is
};

const std::vector<PublicCorpus>& public_corpora();

// Errors (exit code 2) list the known names.
const PublicCorpus& find_public_corpus(const std::string& name);

// Searches the file in METAFORMER_DATA, then in the cache ($XDG_CACHE_HOME/metaformer or ~/.cache/metaformer).
std::optional<std::filesystem::path> locate_corpus(const PublicCorpus& corpus);

// The same; downloads a missing file into the cache. Errors (exit code 3): missing and `offline`.
std::filesystem::path obtain_corpus(const PublicCorpus& corpus, bool offline);

// Downloads into `folder`, checks the publisher's digest, and returns the file. Errors: exit code 3.
std::filesystem::path fetch_corpus(const PublicCorpus& corpus, const std::filesystem::path& folder);

struct Corpus {
  std::filesystem::path path;
  std::string text;                          // without a held-out text its end is held out
  std::string sha256;                        // over all files of the text, before unpacking
  std::optional<std::string> held_out = {};  // the text that data.validation_path names
  nlohmann::ordered_json description = {};   // for environment.json: paths, digests, numbers of files and documents
  std::vector<std::size_t> document_starts = {}, held_out_document_starts = {};  // in bytes of the two texts
};

// The text that a config names: data.path, else data.corpus, which is downloaded if it is missing (unless `offline`);
// and data.validation_path. Errors: those of read_text_files (data/sources/text_files.h); digest of a public corpus
// differs (exit code 3); a corpus that is not a text, keys that have no effect on these files (exit code 2).
Corpus load_corpus(const TextDataConfig& config, bool offline);

}  // namespace metaformer
