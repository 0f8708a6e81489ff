#pragma once
// The Large Movie Review Dataset (Maas et al. 2011): 25,000 film reviews to train on and 25,000 to test on, half of
// each positive.

#include <filesystem>

#include "data/labelled_source.h"

namespace metaformer {

// Reads aclImdb/{train,test}/{pos,neg}/ID_RATING.txt from the official archive, from one without the unlabelled half
// (which is passed over), or from an unpacked folder. Labels are "neg" and "pos".
// Line breaks, which the corpus writes as <br />, become newlines.
//
// The validation split is taken from the training half in blocks of 125 neighbouring ids, chosen by a hash of the
// block: ids are ordered by film, so that a film's reviews stay on one side, but for those at the edge of a block. A
// validation split drawn review by review shares films with the training half and reads some two points too high.
//
// The description counts texts that stand in a half twice, and texts of the test half that the training half has too. A
// review that is empty, not UTF-8, has NUL bytes, or a rating that its folder belies is malformed: left out and counted
// up to a share of data.malformed_limit, an error above. Errors: exit code 3.
LabelledSplits load_imdb(const std::filesystem::path& path, const DataConfig& config);

// A digest of all that load_imdb reads in an unpacked folder: names and contents. Errors: exit code 3.
std::string digest_imdb_folder(const std::filesystem::path& folder);

}  // namespace metaformer
