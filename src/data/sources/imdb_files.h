#pragma once
// The files of the Large Movie Review Dataset by their names, and those of an unpacked folder.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace metaformer {

// What the name of a review's file says.
struct ReviewName {
  bool is_test = false, is_positive = false;
  std::int64_t id = 0, rating = 0;
};

// Of train/pos/ID_RATING.txt, whatever stands before; nothing for the other files of the corpus.
std::optional<ReviewName> parse_review_name(std::string_view path);

// Whether the path is that of a review or of a list of films.
bool is_imdb_file(std::string_view path);

constexpr std::size_t largest_imdb_file = 16 << 20;

// Whether it is a folder, also behind a link. Errors (exit code 3): it cannot be told.
bool is_folder(const std::filesystem::path& path);

// `content` is empty where there is a `defect`: what bears the name is not a regular file.
using UseImdbFile =
    std::function<void(const std::filesystem::path& path, std::string&& content, const std::string& defect)>;

// The reviews and lists of films in an unpacked folder, or in one that holds it, in no order. Links are not followed.
// Errors (exit code 3): what cannot be read.
void for_each_imdb_file(const std::filesystem::path& folder, const UseImdbFile& use);

// A digest of all that for_each_imdb_file gives: names and contents.
std::string digest_imdb_folder(const std::filesystem::path& folder);

}  // namespace metaformer
