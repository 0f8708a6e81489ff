#pragma once
// Texts with labels, from wherever a config says, already split. A new source is one function behind
// load_labelled_splits.

#include <filesystem>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "data/labelled_splits.h"

namespace metaformer {

// Whether the text, or whatever else goes by that key, is held out: the same answer for ever, yes for about `fraction`
// of all keys.
bool is_held_out(const std::string& key, double fraction);

struct LabelledSource {
  std::string name;  // by which the description of the splits has it
  std::filesystem::path path;
};

// What load_labelled_splits reads; a public corpus that is nowhere is fetched (unless `offline`). Errors: those of a
// config that names no data, or data that do not go together (exit code 2), and of fetching (exit code 3).
std::vector<LabelledSource> labelled_sources(const DataConfig& config, bool offline);

// The public corpus that data.corpus names (from data.path, when that is set), with the splits it brings. Else reads
// data.path, and data.validation_path and data.test_path where they are set. Without data.validation_path a
// stable hash of the text holds data.validation_fraction of the rows out, so that equal texts stay on one side. Errors:
// exit codes 2 and 3.
LabelledSplits load_labelled_splits(const DataConfig& config, bool offline);

// The texts, each ended by a line break: what a tokenizer learns from.
std::string joined_texts(const std::vector<LabelledText>& texts);

}  // namespace metaformer
