#include "base/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <cerrno>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/gzip.h"
#include "base/text.h"

namespace metaformer {

namespace {

struct Close {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, Close>;

// The bytes of a tar archive, unpacked if gzipped. libarchive could unpack, but ignores gzip's checksum.
class TarFile {
 public:
  explicit TarFile(const std::filesystem::path& path) : path_(path), file_(path, std::ios::binary) {
    if (!std::filesystem::is_regular_file(path) || !file_)
      throw Error(ExitCode::data, fmt::format("{}: cannot be read: not a file, or not readable", path.string()));
    const auto start = read();
    file_.clear();
    file_.seekg(0);
    if (is_gzip(start)) gzip_.emplace([this] { return read(); }, path.string());
  }

  // "" at the end, which is reached only if gzip's checksum is right.
  std::string_view next() { return gzip_ ? gzip_->next() : read(); }

  // Called by libarchive, through whose functions no exception may pass.
  static la_ssize_t give_piece(archive* reader, void* file, const void** piece) {
    auto& self = *static_cast<TarFile*>(file);
    try {
      const auto bytes = self.next();
      *piece = bytes.data();
      return static_cast<la_ssize_t>(bytes.size());
    } catch (...) {
      self.failure_ = std::current_exception();
      archive_set_error(reader, EIO, "the file could not be read");
      return -1;
    }
  }

  [[noreturn]] void fail(archive* reader) const {
    if (failure_) std::rethrow_exception(failure_);
    const char* why = archive_error_string(reader);
    throw Error(ExitCode::data, fmt::format("{}: cannot be read as an archive: {}; it may be cut off or damaged",
                                            path_.string(), why != nullptr ? why : "unknown reason"));
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::string_view read() {
    constexpr std::size_t piece_size = 1 << 20;
    piece_.resize(piece_size);
    file_.read(piece_.data(), piece_size);
    if (file_.bad()) throw Error(ExitCode::data, path_.string() + ": could not be read to its end");
    return std::string_view(piece_).substr(0, static_cast<std::size_t>(file_.gcount()));
  }

  std::filesystem::path path_;
  std::ifstream file_;
  std::string piece_;
  std::optional<GzipStream> gzip_;
  std::exception_ptr failure_;
};

Reader open(TarFile& file) {
  Reader reader(archive_read_new());
  archive_read_support_format_tar(reader.get());
  if (archive_read_open(reader.get(), &file, nullptr, TarFile::give_piece, nullptr) != ARCHIVE_OK)
    file.fail(reader.get());
  return reader;
}

std::string read_content(const TarFile& file, archive* reader, std::string_view name, std::size_t size,
                         std::size_t largest) {
  if (size > largest)
    throw Error(ExitCode::data, fmt::format("{}: {} has {}; at most {} make sense there", file.path().string(), name,
                                            human_bytes(size), human_bytes(largest)));
  std::string content(size, '\0');
  std::size_t filled = 0;
  while (filled < size) {
    const auto count = archive_read_data(reader, content.data() + filled, size - filled);
    if (count < 0) file.fail(reader);
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  content.resize(filled);
  return content;
}

}  // namespace

void for_each_archive_entry(const std::filesystem::path& path, std::size_t largest, const WantsEntry& wants,
                            const UseEntry& use) {
  TarFile file(path);
  const auto reader = open(file);
  archive_entry* entry = nullptr;
  while (true) {
    const auto outcome = archive_read_next_header(reader.get(), &entry);
    if (outcome == ARCHIVE_EOF) break;
    if (outcome < ARCHIVE_WARN) file.fail(reader.get());
    const char* name = archive_entry_pathname(entry);
    if (name == nullptr || archive_entry_filetype(entry) != AE_IFREG || !wants(name)) continue;
    const auto size = static_cast<std::size_t>(archive_entry_size(entry));
    use(name, read_content(file, reader.get(), name, size, largest));
  }
  while (!file.next().empty()) continue;  // gzip's checksum comes last
}

}  // namespace metaformer
