#include "data/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "core/error.h"
#include "core/signals.h"
#include "core/text.h"

namespace metaformer {

namespace {

constexpr std::string_view magic = "\x1f\x8b";

// zlib rather than libarchive, which leaves the checksum of a gzipped file unread.
class Inflater {
 public:
  Inflater(std::string_view bytes, std::uintmax_t largest, const std::string& source)
      : rest_(bytes), largest_(largest), source_(source) {
    constexpr int gzip_alone = 16;
    if (inflateInit2(&stream_, MAX_WBITS + gzip_alone) != Z_OK)
      throw Error(ExitCode::out_of_memory, source_ + ": no memory to unpack it");
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  std::string unpack() {
    while (!rest_.empty()) {
      unpack_member();
      if (!rest_.empty() && !is_gzip(rest_)) fail("something else follows its end");
      inflateReset(&stream_);
    }
    return std::move(content_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ExitCode::data,
                fmt::format("{}: cannot be unpacked as gzip: {}; it may be cut off or damaged", source_, why));
  }

  void unpack_member() {
    for (int outcome = Z_OK; outcome != Z_STREAM_END;) {
      throw_if_stopped();
      outcome = unpack_piece();
      if (outcome != Z_OK && outcome != Z_STREAM_END && outcome != Z_BUF_ERROR)
        fail(stream_.msg != nullptr ? stream_.msg : "no valid data");
      if (outcome != Z_STREAM_END && rest_.empty() && stream_.avail_out > 0) fail("it ends too early");
      if (content_.size() > largest_)
        throw Error(ExitCode::data,
                    fmt::format("{}: unpacks to more than the {} allowed", source_, human_bytes(largest_)));
    }
  }

  int unpack_piece() {
    constexpr std::size_t piece = 1 << 22, most_input = 1 << 30;  // zlib counts in 32 bits
    const auto filled = content_.size(), given = std::min(rest_.size(), most_input);
    content_.resize(filled + piece);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest_.data()));  // zlib does not write to it
    stream_.avail_in = static_cast<uInt>(given);
    stream_.next_out = reinterpret_cast<Bytef*>(content_.data() + filled);
    stream_.avail_out = piece;
    const int outcome = inflate(&stream_, Z_NO_FLUSH);
    content_.resize(filled + piece - stream_.avail_out);
    rest_.remove_prefix(given - stream_.avail_in);
    return outcome;
  }

  std::string_view rest_;
  std::uintmax_t largest_;
  const std::string& source_;
  z_stream stream_{};
  std::string content_;
};

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.starts_with(magic); }

std::string unpack_gzip(std::string_view bytes, std::uintmax_t largest, const std::string& source) {
  return Inflater(bytes, largest, source).unpack();
}

}  // namespace metaformer
