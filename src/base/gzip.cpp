#include "base/gzip.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"

namespace metaformer {

namespace {

constexpr std::string_view magic = "\x1f\x8b";
constexpr std::size_t piece_size = 1 << 20;

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.starts_with(magic); }

// zlib and not libarchive, which does not check the checksum of a gzipped file.
GzipStream::GzipStream(std::function<std::string_view()> read, std::string source)
    : read_(std::move(read)), source_(std::move(source)) {
  constexpr int gzip_only = 16;
  if (inflateInit2(&stream_, MAX_WBITS + gzip_only) != Z_OK)
    throw Error(ExitCode::out_of_memory, source_ + ": no memory to unpack it");
}

std::string_view GzipStream::next() {
  piece_.clear();
  while (piece_.empty()) {
    throw_if_stopped();
    if (packed_.empty()) packed_ = read_();
    if (packed_.empty()) {
      if (inside_member_) fail("it ends too early");
      return {};
    }
    inflate_piece();
  }
  return piece_;
}

void GzipStream::inflate_piece() {
  constexpr std::size_t most_input = 1 << 30;  // zlib counts in 32 bits
  const auto given = std::min(packed_.size(), most_input);
  piece_.resize(piece_size);
  stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed_.data()));  // zlib does not write to it
  stream_.avail_in = static_cast<uInt>(given);
  stream_.next_out = reinterpret_cast<Bytef*>(piece_.data());
  stream_.avail_out = piece_size;
  const int outcome = inflate(&stream_, Z_NO_FLUSH);
  piece_.resize(piece_size - stream_.avail_out);
  packed_.remove_prefix(given - stream_.avail_in);
  if (outcome != Z_OK && outcome != Z_STREAM_END && outcome != Z_BUF_ERROR) fail_at_bad_data();
  inside_member_ = outcome != Z_STREAM_END;
  if (inside_member_) return;
  has_ended_member_ = true;
  inflateReset(&stream_);
}

void GzipStream::fail_at_bad_data() const {
  if (has_ended_member_ && stream_.total_in <= magic.size()) fail("something else follows its end");
  fail(stream_.msg != nullptr ? stream_.msg : "no valid data");
}

void GzipStream::fail(const std::string& why) const {
  throw Error(ExitCode::data,
              fmt::format("{}: cannot be unpacked as gzip: {}; it may be cut off or damaged", source_, why));
}

std::string unpack_gzip(std::string_view bytes, std::uintmax_t largest, const std::string& source) {
  GzipStream stream([&] { return std::exchange(bytes, {}); }, source);
  std::string content;
  for (auto piece = stream.next(); !piece.empty(); piece = stream.next()) {
    content += piece;
    if (content.size() > largest)
      throw Error(ExitCode::data, fmt::format("{}: unpacks to more than the {} allowed", source, human_bytes(largest)));
  }
  return content;
}

}  // namespace metaformer
