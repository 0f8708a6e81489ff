#pragma once
// The Large Movie Review Dataset.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_rows.h"

namespace metaformer {

// The files of the Large Movie Review Dataset, by their names and in an unpacked folder.

// The information in the name of a review's file.
struct ReviewName {
  bool is_test = false, is_positive = false;
  std::int64_t id = 0, rating = 0;
};

// For paths that end with train/pos/ID_RATING.txt and the like; nothing for other files of the corpus.
std::optional<ReviewName> parse_review_name(std::string_view path);

// Whether the path is that of a review or of a list of films.
bool is_imdb_file(std::string_view path);

constexpr std::size_t largest_imdb_file = 16 << 20;

// Whether it is a folder, or a link to one. Errors (exit code 3): it cannot be read.
bool is_folder(const std::filesystem::path& path);

// `content` is empty if there is a `defect`: the name is not that of a regular file.
using UseImdbFile =
    std::function<void(const std::filesystem::path& path, std::string&& content, const std::string& defect)>;

// The reviews and lists of films in an unpacked folder, or in one that contains it, in no order. Ignores links.
// Errors (exit code 3): a file that cannot be read.
void for_each_imdb_file(const std::filesystem::path& folder, const UseImdbFile& use);

// A digest of all names and contents that for_each_imdb_file passes on.
std::string digest_imdb_folder(const std::filesystem::path& folder);

// The films of IMDb's reviews. The archive contains them as lists of addresses: line i of train/urls_pos.txt,
// counted from 0, is http://www.imdb.com/title/tt0453418/usercomments where review i of train/pos is about film
// tt0453418.
class FilmLists {
 public:
  // Whether a path ends with {train,test}/urls_{pos,neg}.txt.
  static bool is_list(std::string_view path);

  void add(const std::string& path, std::string_view text);

  // Whether both lists of a half ("train" or "test") were added.
  bool has(const std::string& half) const;

  // A film, such as "tt0453418". The half has its lists. Errors (exit code 3) name the list and line: no such
  // line, or that line names no film.
  const std::string& film(const std::string& half, bool is_positive, std::int64_t id) const;

 private:
  struct List {
    std::string path;
    std::vector<std::string> films;
  };
  std::map<std::string, List> lists_;  // by name, such as train/urls_pos.txt
};

// Which items are held out, given the name of each item's group. The groups are ordered by a stable hash of their names
// and held out one after the other until they have `fraction` of the items. The count is exact to the last group, and a
// larger fraction holds out the same groups and more.
std::vector<bool> hold_out_groups(const std::vector<std::string>& groups, double fraction);

// The Large Movie Review Dataset (Maas et al. 2011): 25,000 film reviews to train on and 25,000 to test on, half of
// each positive.

// Reads aclImdb/{train,test}/{pos,neg}/ID_RATING.txt from the official archive, from one without the unlabelled half
// (which is skipped), or from an unpacked folder. Labels are "neg" and "pos".
// Line breaks, which the corpus writes as <br />, become newlines.
//
// The validation split is data.validation_fraction of the training half. It has all reviews of some films, which a
// stable hash selects, exact to one film. A validation split of single reviews would have films of the training half
// and score some two points too high. Films are those of train/urls_pos.txt and train/urls_neg.txt
// (data/imdb.h). Without these two lists blocks of 125 neighbouring ids are held out, exact to one
// block: ids are ordered by film within a class, so most reviews of a film and a class stay in one split. The log
// says which of the two was used.
//
// The description counts texts that occur twice in a half, and texts of the test half that the training half has too. A
// review that is empty, not UTF-8, not a regular file, has NUL bytes, or a rating that its folder contradicts is
// malformed: left out and counted up to the data.malformed_limit, an error above. Without data.path the corpus must be
// whole, 12,500 reviews of each class and half; with it a part is a warning. Errors: exit code 3.
LabelledSplits load_imdb(const std::filesystem::path& path, const LabelledDataConfig& config);

}  // namespace metaformer
