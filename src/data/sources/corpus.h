#pragma once
// Text corpora: public ones by name, others by path.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/data_config.h"

namespace metaformer {

struct CorpusFile {
  std::string name;    // in METAFORMER_DATA and in the cache
  std::string sha256;  // "" if its publisher uses another digest
  std::string md5;     // "" if the publisher uses another digest
  std::uint64_t bytes;
};

struct PublicCorpus {
  std::string name;
  std::string_view task;  // the kind of task that it is for
  std::string url;        // of its file; of several files that of their folder, which ends with a slash
  std::vector<CorpusFile> files;
  std::string stem;  // any STEM*.tar.gz is accepted as the file; "" if none is

  bool is_folder() const { return files.size() > 1; }
  std::uint64_t bytes() const;  // of all files
};

const std::vector<PublicCorpus>& public_corpora();

// Errors (exit code 2) list the known names.
const PublicCorpus& find_public_corpus(const std::string& name);

// Searches the file in METAFORMER_DATA, then in the cache ($XDG_CACHE_HOME/metaformer or ~/.cache/metaformer). Of a
// corpus of several files it is the folder that has all of them: one of these two, or the one in it with the name of
// the corpus.
std::optional<std::filesystem::path> locate_corpus(const PublicCorpus& corpus);

// The same; downloads a missing corpus into the cache. Errors (exit code 3): missing and `offline`.
std::filesystem::path obtain_corpus(const PublicCorpus& corpus, bool offline);

// Downloads into `folder`, several files into its subfolder with the name of the corpus; checks the publisher's
// digests, and returns what locate_corpus would. Errors: exit code 3.
std::filesystem::path fetch_corpus(const PublicCorpus& corpus, const std::filesystem::path& folder);

// Errors (exit code 3): a file in `folder` cannot be read, or its digest is not the publisher's.
void check_corpus_files(const PublicCorpus& corpus, const std::filesystem::path& folder);

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
