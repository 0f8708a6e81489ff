#include "data/imdb.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <regex>
#include <system_error>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "base/archive.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/random.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/tables.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t largest_imdb_file = 16 << 20;
constexpr std::int64_t block_of_ids = 125;

// A file of the corpus, by its path: a review, or the list of the films that the reviews of a half and class are about.
struct ImdbFile {
  bool is_test = false, is_positive = false, is_list = false;
  std::int64_t id = 0, rating = 0;  // of a review
};

// For paths that end with train/pos/ID_RATING.txt, train/urls_pos.txt and the like; nothing for other files.
std::optional<ImdbFile> parse_path(std::string_view path) {
  static const std::regex form(R"((?:^|/)(train|test)/(?:urls_(pos|neg)|(pos|neg)/(\d{1,18})_(\d{1,18}))\.txt$)");
  std::match_results<std::string_view::const_iterator> part;
  if (!std::regex_search(path.begin(), path.end(), part, form)) return std::nullopt;
  if (part[2].matched) return ImdbFile{.is_test = part[1] == "test", .is_positive = part[2] == "pos", .is_list = true};
  return ImdbFile{.is_test = part[1] == "test",
                  .is_positive = part[3] == "pos",
                  .id = std::stoll(part[4].str()),
                  .rating = std::stoll(part[5].str())};
}

bool is_imdb_file(std::string_view path) { return parse_path(path).has_value(); }

// Addresses: line i of train/urls_pos.txt, counted from 0, is http://www.imdb.com/title/tt0453418/usercomments where
// review i of train/pos is about film tt0453418.
struct FilmList {
  std::string path;                // "" where there is no such list
  std::vector<std::string> films;  // by id of the review; "" where the line names none
};
using FilmLists = std::array<std::array<FilmList, 2>, 2>;  // by half and class

FilmList parse_film_list(std::string_view path, std::string_view text) {
  static const std::regex film("tt[0-9]{1,18}");  // bounded, because the library recurses for every digit
  FilmList list{.path = std::string(path), .films = {}};
  while (!text.empty()) {
    const auto line = take_line(text);
    std::cmatch found;
    std::regex_search(line.begin(), line.end(), found, film);
    list.films.push_back(found.str());
  }
  return list;
}

// Whether both lists of a half are there.
bool has_films(const FilmLists& lists, bool is_test) {
  return std::ranges::none_of(lists[is_test], [](const FilmList& list) { return list.path.empty(); });
}

// The film of a review in a half that has its lists. Errors (exit code 3) name the list and line: no such line, or that
// line names no film.
const std::string& film_of(const FilmLists& lists, const ImdbFile& review) {
  const auto& list = lists[review.is_test][review.is_positive];
  const auto line = static_cast<std::size_t>(review.id);
  if (line >= list.films.size() || list.films[line].empty())
    fail_data("{}:{}: no film for review {} of {}/{}; expected an address such as http://www.imdb.com/title/tt0453418",
              list.path, line + 1, review.id, review.is_test ? "test" : "train", review.is_positive ? "pos" : "neg");
  return list.films[line];
}

// Calls `use(path, content, defect)` for the reviews and lists of films in an unpacked folder, or in one that contains
// it, in no particular order. If a name is not that of a regular file, `defect` says so and `content` is empty.
template <class Use>
void for_each_imdb_file(const fs::path& folder, Use use) {
  const auto root = is_folder(folder / "aclImdb") ? folder / "aclImdb" : folder;
  for (const auto* part : {"train", "train/neg", "train/pos", "test", "test/neg", "test/pos"}) {
    if (!is_folder(root / part)) continue;
    std::error_code error;
    for (fs::directory_iterator file(root / part, error), end; !error && file != end; file.increment(error)) {
      if (!is_imdb_file(file->path().string())) continue;
      std::error_code gone;
      const bool is_file = fs::is_regular_file(file->symlink_status(gone));
      use(file->path(), is_file ? read_file(file->path(), largest_imdb_file, ExitCode::data) : "",
          is_file ? "" : "not a regular file (links are not followed)");
    }
    if (error) fail_data("{}: cannot be read: {}", (root / part).string(), error.message());
  }
}

// The names of the groups that are held out, given the name of each item's group. The groups are ordered by a stable
// hash of their names and held out one after the other until they have `fraction` of the items.
std::unordered_set<std::string_view> held_out_groups(const std::vector<std::string>& groups, double fraction) {
  std::map<std::string_view, std::int64_t> sizes;
  for (const auto& group : groups) ++sizes[group];
  std::vector<std::pair<std::uint64_t, std::string_view>> order;
  for (const auto& [name, size] : sizes) order.emplace_back(Rng::mix(hash_name(name)), name);
  std::sort(order.begin(), order.end());
  auto wanted = std::llround(fraction * static_cast<double>(groups.size()));
  std::unordered_set<std::string_view> chosen;
  for (std::size_t i = 0; i < order.size() && wanted > 0; ++i) {
    chosen.insert(order[i].second);
    wanted -= sizes[order[i].second];
  }
  return chosen;
}

struct Review {
  ImdbFile name;
  LabelledText text;
};

// Why the review cannot be used, or "".
std::string defect_of(const ImdbFile& name, const std::string& text) {
  if (text.find('\0') != std::string::npos) return "the review has NUL bytes";
  if (auto defect = utf8_defect(text); !defect.empty()) return "the review is " + defect;
  if (is_blank(text)) return "the review is empty";
  const auto lowest = name.is_positive ? 7 : 1, highest = name.is_positive ? 10 : 4;
  if (name.rating < lowest || name.rating > highest)
    return fmt::format("a rating of {} is not {} ({} to {})", name.rating, name.is_positive ? "positive" : "negative",
                       lowest, highest);
  return "";
}

struct Imdb {
  std::vector<Review> reviews;  // the training half first
  FilmLists films;
  std::array<std::array<std::size_t, 2>, 2> counts{};  // by half and class, malformed reviews included
  std::size_t malformed = 0;
  std::string first_defect;
};

void add_file(Imdb& imdb, std::string_view path, std::string&& text, std::string defect) {
  throw_if_stopped();
  drop_byte_order_mark(text);
  const auto name = *parse_path(path);
  if (name.is_list) {
    if (!defect.empty()) fail_data("{}: {}", path, defect);
    imdb.films[name.is_test][name.is_positive] = parse_film_list(path, text);
    return;
  }
  ++imdb.counts[name.is_test][name.is_positive];
  text = replaced(text, "<br />", "\n");  // as words these would be 6% of the tokens
  if (defect.empty()) defect = defect_of(name, text);
  if (defect.empty())
    imdb.reviews.push_back({name, {std::move(text), name.is_positive ? "pos" : "neg", std::string(path)}});
  else if (imdb.malformed++ == 0)
    imdb.first_defect = fmt::format("{}: {}", path, defect);
}

Imdb read_imdb(const fs::path& path, double malformed_limit) {
  Imdb imdb;
  if (is_folder(path))
    for_each_imdb_file(path, [&](const fs::path& file, std::string&& text, const std::string& defect) {
      add_file(imdb, file.string(), std::move(text), defect);
    });
  else
    for_each_archive_entry(path, largest_imdb_file, is_imdb_file, [&](std::string_view name, std::string&& text) {
      add_file(imdb, name, std::move(text), "");
    });
  report_malformed(path.string(), imdb.malformed, imdb.malformed + imdb.reviews.size(), imdb.first_defect, "reviews",
                   malformed_limit);
  if (imdb.reviews.empty())
    fail_data("{}: holds no reviews; files train/pos/ID_RATING.txt are expected, as in aclImdb_v1.tar.gz",
              path.string());
  std::ranges::sort(imdb.reviews, {}, [](const Review& review) {
    return std::tuple(review.name.is_test, review.name.is_positive, review.name.id,
                      std::string_view(review.text.place));
  });
  return imdb;
}

// The groups that the validation split keeps together, one for each training review: its film, else its block of
// neighbouring ids.
std::vector<std::string> groups_of(const Imdb& imdb) {
  std::vector<std::string> groups;
  for (const auto& [name, text] : imdb.reviews)
    if (!name.is_test)
      groups.push_back(has_films(imdb.films, false) ? film_of(imdb.films, name)
                                                    : fmt::format("imdb block {}", name.id / block_of_ids));
  return groups;
}

// Counts texts that occur more than once, and texts of the test half that the training half has.
nlohmann::ordered_json count_copies(const std::vector<Review>& reviews) {
  std::array<std::unordered_set<std::string_view>, 2> seen;  // by half
  std::array<std::int64_t, 2> copies{};
  std::int64_t test_texts_in_train = 0;
  for (const auto& [name, text] : reviews) {  // the training half comes first
    copies[name.is_test] += !seen[name.is_test].insert(text.text).second;
    test_texts_in_train += name.is_test && seen[0].contains(text.text);
  }
  return {{"copies_in_train", copies[0]}, {"copies_in_test", copies[1]}, {"test_texts_in_train", test_texts_in_train}};
}

// A corpus that is given by its name must be whole; data.path may name a part of it.
void require_whole(const Imdb& imdb, const fs::path& path, bool is_by_name) {
  constexpr std::size_t whole = 12'500;
  const auto& [train, test] = imdb.counts;
  if (train[0] == whole && train[1] == whole && test == train) return;
  const auto counts =
      fmt::format("train/neg has {} reviews, train/pos {}, test/neg {}, test/pos {}; the whole corpus has {} each",
                  train[0], train[1], test[0], test[1], whole);
  if (!is_by_name) return log::warning("{}: a part of the corpus: {}", path.string(), counts);
  fail_data("{}: {}; replace it by the whole archive (metaformer data list), or name a part by data.path",
            path.string(), counts);
}

nlohmann::ordered_json describe(const fs::path& path, const Imdb& imdb) {
  nlohmann::ordered_json description = {{"path", path.string()},
                                        {"sha256", is_folder(path) ? digest_imdb_folder(path) : sha256_of_file(path)},
                                        {"rows", imdb.reviews.size()},
                                        {"malformed", imdb.malformed}};
  description.update(count_copies(imdb.reviews));
  description["validation_split"] = has_films(imdb.films, false) ? "films" : "blocks of ids";
  if (!has_films(imdb.films, false) || !has_films(imdb.films, true)) return description;
  std::array<std::unordered_set<std::string_view>, 2> films;  // by half
  for (const auto& [name, text] : imdb.reviews) films[name.is_test].insert(film_of(imdb.films, name));
  description["test_films_in_train"] =
      std::ranges::count_if(films[1], [&](const auto& film) { return films[0].contains(film); });
  return description;
}

}  // namespace

std::string digest_imdb_folder(const fs::path& folder) {
  std::vector<std::string> files;
  for_each_imdb_file(folder, [&](const fs::path& file, std::string&& text, const std::string& defect) {
    throw_if_stopped();
    files.push_back(file.lexically_relative(folder).string() + '\0' + sha256(text) + defect);
  });
  std::sort(files.begin(), files.end());
  return sha256(fmt::format("{}", fmt::join(files, "\n")));
}

LabelledSplits load_imdb(const fs::path& path, const LabelledDataConfig& config) {
  auto imdb = read_imdb(path, config.malformed_limit);
  require_whole(imdb, path, !config.path);
  LabelledSplits splits;
  splits.description["train"] = describe(path, imdb);
  const auto groups = groups_of(imdb);
  const auto held_out = held_out_groups(groups, config.validation_fraction);
  for (std::size_t i = 0; i < imdb.reviews.size(); ++i) {  // the training half comes first
    auto& [name, text] = imdb.reviews[i];
    splits[name.is_test                   ? Split::test
           : held_out.contains(groups[i]) ? Split::validation
                                          : Split::train]
        .push_back(std::move(text));
  }
  if (splits[Split::train].empty() || splits[Split::validation].empty())
    fail_data("{}: too few reviews for data.validation_fraction {} to leave some on either side", path.string(),
              config.validation_fraction);
  const auto& facts = splits.description.at("train");
  const auto count = [&](const char* name) { return facts.at(name).get<std::int64_t>(); };
  const bool by_films = facts.at("validation_split") == "films";
  log::info(
      "IMDb: {} reviews to train on, {} for validation, {} to test on; {} and {} copies within the halves, {} test "
      "reviews in the training half; validation by {}",
      splits[Split::train].size(), splits[Split::validation].size(), splits[Split::test].size(),
      count("copies_in_train"), count("copies_in_test"), count("test_texts_in_train"),
      by_films ? "whole films"
               : "blocks of ids, since train/urls_pos.txt and train/urls_neg.txt are missing: a film can have reviews "
                 "on both sides");
  return splits;
}

}  // namespace metaformer
