#include "data/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <memory>

#include "core/error.h"
#include "core/text.h"

namespace metaformer {

namespace {

struct Close {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, Close>;

[[noreturn]] void fail(const std::filesystem::path& path, archive* reader) {
  const char* why = archive_error_string(reader);
  throw Error(ExitCode::data, fmt::format("{}: cannot be read as an archive: {}; it may be cut off or damaged",
                                          path.string(), why != nullptr ? why : "unknown reason"));
}

Reader open(const std::filesystem::path& path) {
  constexpr std::size_t block = 1 << 20;
  Reader reader(archive_read_new());
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_format_tar(reader.get());
  if (archive_read_open_filename(reader.get(), path.c_str(), block) != ARCHIVE_OK) fail(path, reader.get());
  return reader;
}

std::string read_content(const std::filesystem::path& path, archive* reader, std::string_view name, std::size_t size,
                         std::size_t largest) {
  if (size > largest)
    throw Error(ExitCode::data, fmt::format("{}: {} has {}; at most {} make sense there", path.string(), name,
                                            human_bytes(size), human_bytes(largest)));
  std::string content(size, '\0');
  std::size_t filled = 0;
  while (filled < size) {
    const auto count = archive_read_data(reader, content.data() + filled, size - filled);
    if (count < 0) fail(path, reader);
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  content.resize(filled);
  return content;
}

}  // namespace

void for_each_archive_entry(const std::filesystem::path& path, std::size_t largest, const WantsEntry& wants,
                            const UseEntry& use) {
  const auto reader = open(path);
  archive_entry* entry = nullptr;
  while (true) {
    const auto outcome = archive_read_next_header(reader.get(), &entry);
    if (outcome == ARCHIVE_EOF) return;
    if (outcome < ARCHIVE_WARN) fail(path, reader.get());
    const char* name = archive_entry_pathname(entry);
    if (name == nullptr || archive_entry_filetype(entry) != AE_IFREG || !wants(name)) continue;
    const auto size = static_cast<std::size_t>(archive_entry_size(entry));
    use(name, read_content(path, reader.get(), name, size, largest));
  }
}

}  // namespace metaformer
