#pragma once
// Encoded splits are kept in cache_folder()/tokens, one file KEY.bin each (data/datasets/encoded_file.h), so that a
// second start need not read and tokenize the texts again. KEY is the SHA-256 of what they come from: a format version;
// name and content of every source, wherever it lies; the keys of the data section that say how it is read and
// tokenized; and the codec, where one is given. The least recently used files go once all have more than 2 GiB.

#include "data/datasets/encoded_splits.h"

namespace metaformer {

// What encode_splits gives of load_labelled_splits, with its errors; from the cache where it is there and data.cache
// allows, else kept there. A file that is damaged or not what its name says is not used: a warning, and it is made
// anew; one that cannot be written is a warning too.
EncodedSplits load_encoded_splits(const DataConfig& config, bool offline, Codec codec);

}  // namespace metaformer
