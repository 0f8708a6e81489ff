#pragma once
// Keeps encoded splits in cache_folder()/tokens, one file KEY.bin each (data/datasets/encoded_file.h), so that a
// second start need not read and tokenize the texts again. KEY is the SHA-256 of all they depend on: a format version;
// name and content of every source, wherever it lies; the keys of the data section that say how it is read and
// tokenized; and the codec, if one is given. If all files exceed 2 GiB, the least recently used ones are removed.

#include "data/datasets/encoded_splits.h"

namespace metaformer {

// The result of encode_splits for load_labelled_splits, with its errors: from the cache if data.cache allows it,
// otherwise added to it. Ignores a damaged entry with a warning and rebuilds it; an entry that cannot be written is
// a warning too.
EncodedSplits load_encoded_splits(const LabelledDataConfig& config, bool offline, Codec codec);

}  // namespace metaformer
