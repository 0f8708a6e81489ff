#include "data/sources/imdb_films.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <tuple>
#include <unordered_set>

#include "base/error.h"
#include "base/random.h"

namespace metaformer {

namespace {

std::string name_of_list(const std::string& half, bool is_positive) {
  return fmt::format("{}/urls_{}.txt", half, is_positive ? "pos" : "neg");
}

// The list's name at the end of a path, or "".
std::string list_at_end_of(std::string_view path) {
  for (const auto* half : {"train", "test"}) {
    for (const bool is_positive : {false, true}) {
      const auto name = name_of_list(half, is_positive);
      if (path == name || path.ends_with("/" + name)) return name;
    }
  }
  return "";
}

// "tt" and a number, or "".
std::string film_in(std::string_view line) {
  const auto is_digit = [&](std::size_t at) {
    return at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0;
  };
  for (auto at = line.find("tt"); at != std::string_view::npos; at = line.find("tt", at + 1)) {
    auto end = at + 2;
    while (is_digit(end)) ++end;
    if (end > at + 2) return std::string(line.substr(at, end - at));
  }
  return "";
}

}  // namespace

bool FilmLists::is_list(std::string_view path) { return !list_at_end_of(path).empty(); }

void FilmLists::add(const std::string& path, std::string_view text) {
  List list{.path = path, .films = {}};
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    list.films.push_back(film_in(line));
  }
  lists_[list_at_end_of(path)] = std::move(list);
}

bool FilmLists::has(const std::string& half) const {
  return lists_.contains(name_of_list(half, false)) && lists_.contains(name_of_list(half, true));
}

const std::string& FilmLists::film(const std::string& half, bool is_positive, std::int64_t id) const {
  const auto& list = lists_.at(name_of_list(half, is_positive));
  const auto line = static_cast<std::size_t>(id);
  if (line >= list.films.size() || list.films[line].empty())
    throw Error(ExitCode::data, fmt::format("{}:{}: no film for review {} of {}/{}; an address with tt and a number is "
                                            "expected, such as http://www.imdb.com/title/tt0453418/usercomments",
                                            list.path, line + 1, id, half, is_positive ? "pos" : "neg"));
  return list.films[line];
}

std::vector<bool> hold_out_groups(const std::vector<std::string>& groups, double fraction) {
  std::map<std::string_view, std::int64_t> sizes;
  for (const auto& group : groups) ++sizes[group];
  std::vector<std::tuple<std::uint64_t, std::string_view, std::int64_t>> order;
  for (const auto& [name, size] : sizes) order.emplace_back(Rng::mix(hash_name(name)), name, size);
  std::sort(order.begin(), order.end());

  const auto wanted = std::llround(fraction * static_cast<double>(groups.size()));
  std::unordered_set<std::string_view> chosen;
  std::int64_t count = 0;
  for (const auto& [hash, name, size] : order) {
    if (count >= wanted) break;
    chosen.insert(name);
    count += size;
  }
  std::vector<bool> held_out;
  for (const auto& group : groups) held_out.push_back(chosen.contains(group));
  return held_out;
}

}  // namespace metaformer
