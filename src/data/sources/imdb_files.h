#pragma once
// The files of the Large Movie Review Dataset, by their names and in an unpacked folder.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace metaformer {

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

}  // namespace metaformer
