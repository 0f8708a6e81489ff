#include "data/sources/imdb_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/signals.h"
#include "data/sources/imdb_films.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

bool take_number(std::string_view& text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number >= 0;
}

[[noreturn]] void fail_to_read(const fs::path& path, const std::error_code& error) {
  throw Error(ExitCode::data, fmt::format("{}: cannot be read: {}", path.string(), error.message()));
}

void use_files_in(const fs::path& folder, const UseImdbFile& use) {
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    if (!is_imdb_file(file->path().string())) continue;
    std::error_code gone;
    const bool is_file = fs::is_regular_file(file->symlink_status(gone));
    use(file->path(), is_file ? read_file(file->path(), largest_imdb_file, ExitCode::data) : "",
        is_file ? "" : "not a regular file (links are not followed)");
  }
  if (error) fail_to_read(folder, error);
}

}  // namespace

std::optional<ReviewName> parse_review_name(std::string_view path) {
  ReviewName name;
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto folder = path.substr(0, slash);
  auto file = path.substr(slash + 1);
  const auto is_in = [&](std::string_view end) {
    return folder.ends_with(end) && (folder.size() == end.size() || folder[folder.size() - end.size() - 1] == '/');
  };
  name.is_test = is_in("test/pos") || is_in("test/neg");
  name.is_positive = is_in("test/pos") || is_in("train/pos");
  if (!name.is_test && !is_in("train/pos") && !is_in("train/neg")) return std::nullopt;
  if (!take_number(file, name.id) || !file.starts_with('_')) return std::nullopt;
  file.remove_prefix(1);
  if (!take_number(file, name.rating) || file != ".txt") return std::nullopt;
  return name;
}

bool is_imdb_file(std::string_view path) { return parse_review_name(path).has_value() || FilmLists::is_list(path); }

bool is_folder(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (error && status.type() != fs::file_type::not_found) fail_to_read(path, error);
  return fs::is_directory(status);
}

void for_each_imdb_file(const fs::path& folder, const UseImdbFile& use) {
  const auto root = is_folder(folder / "aclImdb") ? folder / "aclImdb" : folder;
  for (const auto* half : {"train", "test"})
    for (const auto& part : {root / half, root / half / "neg", root / half / "pos"})
      if (is_folder(part)) use_files_in(part, use);
}

std::string digest_imdb_folder(const fs::path& folder) {
  std::vector<std::string> files;
  for_each_imdb_file(folder, [&](const fs::path& file, std::string&& text, const std::string& defect) {
    throw_if_stopped();
    files.push_back(file.lexically_relative(folder).string() + '\0' + sha256(text) + defect);
  });
  std::sort(files.begin(), files.end());
  return sha256(fmt::format("{}", fmt::join(files, "\n")));
}

}  // namespace metaformer
