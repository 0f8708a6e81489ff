#pragma once
// The Large Movie Review Dataset (Maas et al. 2011): 25,000 film reviews to train on and 25,000 to test on, half of
// each positive.

#include <filesystem>

#include "data/labelled_splits.h"

namespace metaformer {

// Reads aclImdb/{train,test}/{pos,neg}/ID_RATING.txt from the official archive, from one without the unlabelled half
// (which is passed over), or from an unpacked folder. Labels are "neg" and "pos".
// Line breaks, which the corpus writes as <br />, become newlines.
//
// The validation split is data.validation_fraction of the training half. It has all reviews of some films, which a
// stable hash chooses, exact to one film: a validation split drawn review by review shares films with the training half
// and reads some two points too high. Films are those of train/urls_pos.txt and train/urls_neg.txt
// (data/sources/imdb_films.h). Without these two lists blocks of 125 neighbouring ids take their place, exact to one
// block: ids are ordered by film within a class, so that most reviews of a film and a class stay on one side. The log
// says which of the two it is.
//
// The description counts texts that stand in a half twice, and texts of the test half that the training half has too. A
// review that is empty, not UTF-8, not a regular file, has NUL bytes, or a rating that its folder belies is malformed:
// left out and counted up to data.malformed_limit of all, an error above. Without data.path the corpus must be whole,
// 12,500 reviews of each class and half; with it a part is a warning. Errors: exit code 3.
LabelledSplits load_imdb(const std::filesystem::path& path, const DataConfig& config);

}  // namespace metaformer
