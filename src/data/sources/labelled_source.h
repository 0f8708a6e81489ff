#pragma once
// Texts with labels, from the source that a config names, already split. A new source is one function called by
// load_labelled_splits.

#include <filesystem>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "data/labelled_splits.h"

namespace metaformer {

// Whether the text, or another item with that key, is held out: always the same answer, true for about `fraction`
// of all keys.
bool is_held_out(const std::string& key, double fraction);

struct LabelledSource {
  std::string name;  // its key in the description of the splits
  std::filesystem::path path;
};

// The files that load_labelled_splits reads; downloads a missing public corpus (unless `offline`). Errors: those of a
// config that names no data, or data that exclude each other (exit code 2), and of downloads (exit code 3).
std::vector<LabelledSource> labelled_sources(const LabelledDataConfig& config, bool offline);

// Reads the public corpus that data.corpus names (from data.path, if that is set), with its splits. Otherwise reads
// data.path, and data.validation_path and data.test_path if they are set. Without data.validation_path a
// stable hash of the text holds data.validation_fraction of the rows out, so equal texts are in the same split. The
// texts of data.extra_path are added to the training texts. Errors: exit codes 2 and 3.
LabelledSplits load_labelled_splits(const LabelledDataConfig& config, bool offline);

// The texts for a tokenizer to learn from, each followed by a line break.
std::string joined_texts(const std::vector<LabelledText>& texts);

}  // namespace metaformer
