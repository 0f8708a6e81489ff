#pragma once
// Texts for language models.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/data_config.h"

namespace metaformer {

// Texts for language models: a file, or a folder of files, each gzipped or not, plain text or JSON lines.
struct TextFiles {
  std::string text;                    // all documents, with line breaks between them
  nlohmann::ordered_json description;  // path and a SHA-256 over all files; for several documents also their counts
  std::vector<std::size_t> document_starts;  // in bytes of the text
  bool has_json_lines = false;
  bool is_one_text = false;  // one file of plain text, which is one document
};

// The text that read_texts (data/text_source.h) reads, in memory. Errors (exit code 3): its own; more than 16 GiB.
TextFiles read_text_files(const std::filesystem::path& path, const TextDataConfig& config);

struct CorpusFile {
  std::string name;    // in METAFORMER_DATA and in the cache
  std::string digest;  // its publisher's: SHA-256, or an MD5 of 32 digits
  std::uint64_t bytes;
};

struct PublicCorpus {
  std::string name;
  std::string_view task;  // the kind of task that it is for
  std::string url;        // of its file or, if there are several, of their folder, with a slash at the end
  std::vector<CorpusFile> files;
  std::string stem = {};  // any STEM*.tar.gz is accepted as the file; "": no other name is

  bool is_folder() const { return files.size() > 1; }
  std::uint64_t bytes() const;  // of all files
};

const std::vector<PublicCorpus>& public_corpora();

// Errors (exit code 2) list the known names.
const PublicCorpus& find_public_corpus(const std::string& name);

// Searches METAFORMER_DATA, then the cache ($XDG_CACHE_HOME/metaformer or ~/.cache/metaformer). Returns the file or,
// for a corpus of several files, the folder that has all of them: one of these two, or its subfolder with the name of
// the corpus.
std::optional<std::filesystem::path> locate_corpus(const PublicCorpus& corpus);

// The same; downloads a missing corpus into the cache. Errors (exit code 3): missing and `offline`.
std::filesystem::path obtain_corpus(const PublicCorpus& corpus, bool offline);

// Downloads the corpus into `folder`, several files into its subfolder with the name of the corpus. Checks the
// publisher's digests, and returns the path that locate_corpus would return. Errors: exit code 3.
std::filesystem::path fetch_corpus(const PublicCorpus& corpus, const std::filesystem::path& folder);

// Errors (exit code 3): a file in `folder` cannot be read, or its digest is not the publisher's.
void check_corpus_files(const PublicCorpus& corpus, const std::filesystem::path& folder);

struct Corpus {
  std::filesystem::path path;
  std::string text;                          // if there is no `held_out`, its end is held out
  std::string sha256;                        // over all files of the text, before unpacking
  std::optional<std::string> held_out = {};  // the text that data.validation_path names
  nlohmann::ordered_json description = {};   // for environment.json: paths, digests, numbers of files and documents
  std::vector<std::size_t> document_starts = {}, held_out_document_starts = {};  // in bytes of the two texts
};

// The text that a config names: data.path, else data.corpus, which is downloaded if it is missing (unless `offline`);
// and data.validation_path. Errors: those of read_text_files; another digest of a public corpus (exit code 3); a corpus
// that is not a text, keys that have no effect on these files (exit code 2).
Corpus load_corpus(const TextDataConfig& config, bool offline);

}  // namespace metaformer
