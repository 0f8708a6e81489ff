#pragma once
// Pairs of texts, from the source that a config names, already split.

#include "config/parallel_data_config.h"
#include "data/parallel_splits.h"

namespace metaformer {

// Reads data.path, and data.validation_path and data.test_path if they are set: each is a table
// (data/sources/parallel_table.h), or with its target path the lines of two files (data/sources/parallel_lines.h).
// Without data.validation_path a stable hash of the source holds data.validation_fraction of the pairs out, so equal
// sources are in the same split. Without data.path reads the public corpus multi30k, which data.corpus must name, with
// its splits, after downloading it if it is missing (unless `offline`). Not for a config with data.synthetic.
//
// The description has the paths of each split that is there, their SHA-256 and the number of pairs; the number of
// malformed rows of each table, under `train` if a part of it is held out; the name of a public corpus and the
// languages.
//
// Errors: no data; paths, languages or keys of tables that mean nothing for these data; an unknown corpus or one
// without pairs (exit code 2); those of tables and lines, a missing corpus, one with another digest, too few distinct
// sources for a validation split (exit code 3).
PairSplits load_pair_splits(const ParallelDataConfig& config, bool offline);

// The texts for a tokenizer to learn from: those of both sides, each followed by a line break.
std::string joined_texts(const std::vector<TextPair>& pairs);

}  // namespace metaformer
