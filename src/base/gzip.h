#pragma once
// Gzipped files (RFC 1952), recognised by their first bytes. Checksums are verified.

#include <zlib.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace metaformer {

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

}  // namespace metaformer
