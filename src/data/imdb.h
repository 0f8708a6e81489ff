#pragma once
// The Large Movie Review Dataset (Maas et al. 2011): 25,000 film reviews to train on and 25,000 to test on, half of
// each positive.

#include <filesystem>
#include <string>

#include "data/token_rows.h"

namespace metaformer {

// A digest of names and contents of all reviews and lists of films in an unpacked folder. Errors (exit code 3): a file
// that cannot be read.
std::string digest_imdb_folder(const std::filesystem::path& folder);

// Reads aclImdb/{train,test}/{pos,neg}/ID_RATING.txt from the official archive, from one without the unlabelled half
// (which is skipped), or from an unpacked folder or one that contains it. Labels are "neg" and "pos". Line breaks,
// which the corpus writes as <br />, become newlines. Links are ignored.
//
// The validation split is data.validation_fraction of the training half: all reviews of some films, which a stable hash
// selects. Single reviews would be about films of the training split, too, and score some two points too high. A larger
// fraction holds out the same films and more. Films are those of train/urls_pos.txt and train/urls_neg.txt; without
// these lists blocks of 125 neighbouring ids are held out, because ids are ordered by film. The log says which was
// used.
//
// The description counts texts that occur twice in a half, and texts of the test half that the training half has too. A
// review that is empty, not UTF-8, not a regular file, has NUL bytes, or a rating that its folder contradicts is
// malformed (data.malformed_limit). Without data.path the corpus must be whole, 12,500 reviews of each class and half;
// with it a part only causes a warning. Errors: exit code 3.
LabelledSplits load_imdb(const std::filesystem::path& path, const LabelledDataConfig& config);

}  // namespace metaformer
