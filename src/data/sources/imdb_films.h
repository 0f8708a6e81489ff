#pragma once
// The films of IMDb's reviews. The archive contains them as lists of addresses: line i of train/urls_pos.txt,
// counted from 0, is http://www.imdb.com/title/tt0453418/usercomments where review i of train/pos is about film
// tt0453418.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

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

}  // namespace metaformer
