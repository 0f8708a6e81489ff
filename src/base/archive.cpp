#include "base/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"

namespace metaformer {

namespace {

constexpr std::string_view magic = "\x1f\x8b", zstandard_magic = "\x28\xb5\x2f\xfd";
constexpr std::size_t piece_size = 1 << 20;

}  // namespace

// Unpacks piece by piece, in constant memory. Uses zlib, because libarchive does not verify the checksum of a gzipped
// file.
class GzipStream {
 public:
  // `read` returns the gzipped bytes piece by piece, each valid until its next call, and "" at the end.
  GzipStream(std::function<std::string_view()> read, std::string source)
      : read_(std::move(read)), source_(std::move(source)) {
    constexpr int gzip_only = 16;
    if (inflateInit2(&stream_, MAX_WBITS + gzip_only) != Z_OK)
      throw Error(ExitCode::out_of_memory, source_ + ": no memory to unpack it");
  }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;
  ~GzipStream() { inflateEnd(&stream_); }

  // The next bytes, valid until the next call; "" at the end. Errors (exit code 3) name the source: cut off, damaged.
  // Throws Interrupted when a signal asks to stop.
  std::string_view next() {
    piece_.clear();
    while (piece_.empty()) {
      throw_if_stopped();
      if (gzipped_.empty()) gzipped_ = read_();
      if (gzipped_.empty()) {
        if (inside_member_) fail("it ends too early");
        return {};
      }
      inflate_piece();
    }
    return piece_;
  }

 private:
  void inflate_piece() {
    constexpr std::size_t most_input = 1 << 30;  // zlib counts in 32 bits
    const auto given = std::min(gzipped_.size(), most_input);
    piece_.resize(piece_size);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzipped_.data()));  // zlib does not write to it
    stream_.avail_in = static_cast<uInt>(given);
    stream_.next_out = reinterpret_cast<Bytef*>(piece_.data());
    stream_.avail_out = piece_size;
    const int outcome = inflate(&stream_, Z_NO_FLUSH);
    piece_.resize(piece_size - stream_.avail_out);
    gzipped_.remove_prefix(given - stream_.avail_in);
    if (outcome != Z_OK && outcome != Z_STREAM_END && outcome != Z_BUF_ERROR) {
      if (has_ended_member_ && stream_.total_in <= magic.size()) fail("something else follows its end");
      fail(stream_.msg != nullptr ? stream_.msg : "no valid data");
    }
    inside_member_ = outcome != Z_STREAM_END;
    if (inside_member_) return;
    has_ended_member_ = true;
    inflateReset(&stream_);
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ExitCode::data,
                fmt::format("{}: cannot be unpacked as gzip: {}; it may be cut off or damaged", source_, why));
  }

  std::function<std::string_view()> read_;
  std::string source_;
  std::string_view gzipped_;  // read, not yet unpacked
  std::string piece_;
  z_stream stream_{};
  bool inside_member_ = false, has_ended_member_ = false;
};

// The same for Zstandard's format (RFC 8878), whose library verifies the checksums that a file has.
class ZstandardStream {
 public:
  ZstandardStream(std::function<std::string_view()> read, std::string source)
      : read_(std::move(read)), source_(std::move(source)), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (!stream_) throw Error(ExitCode::out_of_memory, source_ + ": no memory to unpack it");
  }

  std::string_view next() {
    piece_.resize(piece_size);
    ZSTD_outBuffer out{piece_.data(), piece_.size(), 0};
    while (out.pos == 0) {
      throw_if_stopped();
      if (packed_.empty()) packed_ = read_();
      if (packed_.empty()) {
        if (inside_frame_) fail("it ends too early");
        return {};
      }
      ZSTD_inBuffer in{packed_.data(), packed_.size(), 0};
      const auto outcome = ZSTD_decompressStream(stream_.get(), &out, &in);
      if (ZSTD_isError(outcome) != 0) fail(ZSTD_getErrorName(outcome));
      inside_frame_ = outcome != 0;
      packed_.remove_prefix(in.pos);
    }
    return std::string_view(piece_).substr(0, out.pos);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ExitCode::data,
                fmt::format("{}: cannot be unpacked as Zstandard: {}; it may be cut off or damaged", source_, why));
  }

  std::function<std::string_view()> read_;
  std::string source_;
  std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream_;
  std::string_view packed_;  // read, not yet unpacked
  std::string piece_;
  bool inside_frame_ = false;
};

namespace {

// The bytes of a tar archive. GzipStream unpacks a gzipped one, because libarchive ignores gzip's checksum.
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

struct UnpackedFile::Reader {
  explicit Reader(const std::filesystem::path& file_path) : path(file_path), file(file_path, std::ios::binary) {
    if (!std::filesystem::exists(path)) fail("no such file");
    if (std::filesystem::is_directory(path)) fail("is a folder");
    if (!file) fail("cannot be read: no permission");
    begin = read();
    const auto read_all = [this] { return begin.empty() ? read() : std::exchange(begin, {}); };
    if (is_gzip(begin)) gzip.emplace(read_all, path.string());
    if (begin.starts_with(zstandard_magic)) zstandard.emplace(read_all, path.string());
  }

  std::string_view next() {
    if (gzip) return gzip->next();
    if (zstandard) return zstandard->next();
    throw_if_stopped();
    return begin.empty() ? read() : std::exchange(begin, {});
  }

  std::string_view read() {
    piece.resize(piece_size);
    file.read(piece.data(), piece_size);
    if (file.bad()) fail("could not be read to its end");
    const auto bytes = std::string_view(piece).substr(0, static_cast<std::size_t>(file.gcount()));
    if (!bytes.empty()) sha256.add(bytes);
    return bytes;
  }

  [[noreturn]] void fail(const std::string& why) const { throw Error(ExitCode::data, path.string() + ": " + why); }

  std::filesystem::path path;
  std::ifstream file;
  std::string piece;
  std::string_view begin;  // read, not yet returned
  Sha256 sha256;
  std::optional<GzipStream> gzip;
  std::optional<ZstandardStream> zstandard;
  std::string digest;
};

UnpackedFile::UnpackedFile(const std::filesystem::path& path) : reader_(std::make_unique<Reader>(path)) {}
UnpackedFile::~UnpackedFile() = default;

std::string_view UnpackedFile::next() {
  const auto piece = reader_->next();
  if (piece.empty() && reader_->digest.empty()) reader_->digest = reader_->sha256.digest();
  return piece;
}

std::string UnpackedFile::sha256() const { return reader_->digest; }

bool is_gzip(std::string_view bytes) { return bytes.starts_with(magic); }
bool is_packed_file(std::string_view bytes) { return is_gzip(bytes) || bytes.starts_with(zstandard_magic); }

std::string unpack(std::string bytes, std::uintmax_t largest, const std::string& source) {
  const auto unpack_with = [&]<class Stream>() {
    std::string_view rest = bytes;
    Stream stream([&] { return std::exchange(rest, {}); }, source);
    std::string content;
    for (auto piece = stream.next(); !piece.empty(); piece = stream.next()) {
      content += piece;
      if (content.size() > largest)
        throw Error(ExitCode::data,
                    fmt::format("{}: unpacks to more than the {} allowed", source, human_bytes(largest)));
    }
    return content;
  };
  if (is_gzip(bytes)) return unpack_with.operator()<GzipStream>();
  if (bytes.starts_with(zstandard_magic)) return unpack_with.operator()<ZstandardStream>();
  return bytes;
}

void for_each_archive_entry(const std::filesystem::path& path, std::size_t largest, const WantsEntry& wants,
                            const UseEntry& use) {
  TarFile file(path);
  const std::unique_ptr<archive, decltype(&archive_read_free)> reader(archive_read_new(), archive_read_free);
  archive_read_support_format_tar(reader.get());
  if (archive_read_open(reader.get(), &file, nullptr, TarFile::give_piece, nullptr) != ARCHIVE_OK)
    file.fail(reader.get());
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
