#pragma once
// Compressed files and archives.

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace metaformer {

// Gzipped files (RFC 1952), recognised by their first bytes. Checksums are verified.
bool is_gzip(std::string_view bytes);

// The concatenated content of all members. Errors (exit code 3) name `source`: cut off, damaged, more than
// `largest` bytes when unpacked (memory holds at most one piece more than that).
std::string unpack_gzip(std::string_view bytes, std::uintmax_t largest, const std::string& source);

// Unpacks piece by piece, in constant memory.
class GzipStream {
 public:
  // `read` returns the packed bytes piece by piece, each valid until its next call, and "" at the end.
  GzipStream(std::function<std::string_view()> read, std::string source);
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;
  ~GzipStream() { inflateEnd(&stream_); }

  // The next bytes, valid until the next call; "" at the end. Errors (exit code 3) name the source: cut off, damaged.
  // Throws Interrupted when a signal asks to stop.
  std::string_view next();

 private:
  [[noreturn]] void fail(const std::string& why) const;
  [[noreturn]] void fail_at_bad_data() const;
  void inflate_piece();

  std::function<std::string_view()> read_;
  std::string source_;
  std::string_view packed_;  // read, not yet unpacked
  std::string piece_;
  z_stream stream_{};
  bool inside_member_ = false;
  bool has_ended_member_ = false;
};

// Reads the files of a tar archive, gzipped or not, one after the other, without unpacking it.
using WantsEntry = std::function<bool(std::string_view name)>;
using UseEntry = std::function<void(std::string_view name, std::string&& content)>;

// Reads the regular files whose names are wanted. Errors (exit code 3): unreadable, no archive, cut off, damaged
// (gzip's checksum is verified), an entry above `largest` bytes. An error may come after the last entry was used.
void for_each_archive_entry(const std::filesystem::path& path, std::size_t largest, const WantsEntry& wants,
                            const UseEntry& use);

}  // namespace metaformer
