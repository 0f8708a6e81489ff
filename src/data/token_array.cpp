#include "data/token_array.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/text.h"

namespace metaformer {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

namespace {

std::uint32_t checksum_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

std::size_t blocks_of(std::size_t bytes) {
  return (bytes + TokenFileWriter::block_bytes - 1) / TokenFileWriter::block_bytes;
}

template <class Number>
std::uint32_t widen(const char* bytes, std::int64_t count, std::int32_t* out) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Number number;
    std::memcpy(&number, bytes + static_cast<std::size_t>(i) * sizeof number, sizeof number);
    largest = std::max<std::uint32_t>(largest, number);
    out[i] = static_cast<std::int32_t>(number);
  }
  return largest;
}

}  // namespace

MappedEntries::MappedEntries(std::shared_ptr<const MappedFile> file, std::size_t offset, std::int64_t count, int width,
                             std::int64_t most, std::string_view checksums)
    : file_(std::move(file)),
      offset_(offset),
      count_(count),
      width_(width),
      most_(most),
      checksums_(checksums),
      is_checked_(checksums.empty() ? 0 : blocks_of(static_cast<std::size_t>(count * width))) {
  const auto size = file_->bytes().size();
  if (offset > size || static_cast<std::size_t>(count) > (size - offset) / static_cast<std::size_t>(width))
    fail_data("{}: cut off: {} entries of {} bytes after byte {} do not fit into its {} bytes", file_->path().string(),
              count, width, offset, size);
}

void MappedEntries::copy(std::int64_t first, std::int64_t count, std::int32_t* out) const {
  const auto width = static_cast<std::size_t>(width_);
  const auto begin = static_cast<std::size_t>(first) * width;
  if (!is_checked_.empty()) check_blocks(begin, begin + static_cast<std::size_t>(count) * width);
  const char* bytes = file_->bytes().data() + offset_ + begin;
  const auto largest = width_ == 1   ? widen<std::uint8_t>(bytes, count, out)
                       : width_ == 2 ? widen<std::uint16_t>(bytes, count, out)
                                     : widen<std::uint32_t>(bytes, count, out);
  if (largest > static_cast<std::uint64_t>(most_))
    fail_data(
        "{}: {} among its entries {} ... {}, but the tokenizer has the ids 0 ... {}: it is damaged, or of another "
        "tokenizer",
        file_->path().string(), largest, first, first + count - 1, most_);
}

void MappedEntries::check_blocks(std::size_t first, std::size_t end) const {
  constexpr auto block_bytes = TokenFileWriter::block_bytes;
  const auto entries = file_->bytes().substr(offset_, static_cast<std::size_t>(count_ * width_));
  for (auto block = first / block_bytes; block * block_bytes < end; ++block) {
    if (is_checked_[block]) continue;
    std::uint32_t expected = 0;
    std::memcpy(&expected, checksums_.data() + block * sizeof expected, sizeof expected);
    if (checksum_of(entries.substr(block * block_bytes, block_bytes)) != expected)
      fail_data("{}: damaged: the bytes from {} on do not have their checksum; prepare the tokens again",
                file_->path().string(), offset_ + block * block_bytes);
    is_checked_[block] = true;
  }
}

void MappedEntries::prefetch(std::int64_t first, std::int64_t count) const {
  constexpr auto block_bytes = TokenFileWriter::block_bytes;
  const auto begin = static_cast<std::size_t>(first * width_) / block_bytes * block_bytes;
  const auto end = blocks_of(static_cast<std::size_t>((first + count) * width_)) * block_bytes;
  // On a thread of its own: the call itself waits when the file system has to read where these blocks lie.
  static boost::asio::thread_pool reader(1);
  boost::asio::post(reader,
                    [file = file_, begin = offset_ + begin, count = end - begin] { file->prefetch(begin, count); });
}

TokenArray::TokenArray(std::vector<std::shared_ptr<const MappedEntries>> parts) : parts_(std::move(parts)) {
  for (const auto& part : parts_) {
    starts_.push_back(size_);
    size_ += part->size();
  }
}

void TokenArray::append(const TokenArray& other) {
  for (const auto& part : other.parts_) {
    parts_.push_back(part);
    starts_.push_back(size_);
    size_ += part->size();
  }
}

template <class Use>
void TokenArray::for_each_part(std::int64_t first, std::int64_t count, Use use) const {
  auto index = static_cast<std::size_t>(std::ranges::upper_bound(starts_, first) - starts_.begin()) - 1;
  for (; count > 0; ++index) {
    const auto place = first - starts_[index], own = std::min(count, parts_[index]->size() - place);
    if (own > 0) use(*parts_[index], place, own);
    first += own;
    count -= own;
  }
}

void TokenArray::copy(std::int64_t first, std::int64_t count, std::int32_t* out) const {
  if (is_in_memory()) return void(std::copy_n(entries_.begin() + first, count, out));
  for_each_part(first, count, [&](const MappedEntries& part, std::int64_t place, std::int64_t own) {
    part.copy(place, own, out);
    out += own;
  });
}

std::vector<std::int32_t> TokenArray::slice(std::int64_t first, std::int64_t count) const {
  std::vector<std::int32_t> entries(static_cast<std::size_t>(count));
  copy(first, count, entries.data());
  return entries;
}

void TokenArray::prefetch(std::int64_t first, std::int64_t count) const {
  if (is_in_memory() || first >= size_) return;
  for_each_part(first, std::min(count, size_ - first),
                [](const MappedEntries& part, std::int64_t place, std::int64_t own) { part.prefetch(place, own); });
}

struct TokenFileWriter::Output {
  explicit Output(const std::filesystem::path& path) : file(path, open_own_file(path, O_TRUNC)) {}

  void write(std::string_view bytes) {
    fault_point("tokens");
    if (fault_strikes("full tokens")) throw Error(ExitCode::failure, "cannot write: No space left on device");
    file.write(bytes);
    sha256.add(bytes);
  }

  OpenFile file;
  Sha256 sha256;
};

TokenFileWriter::TokenFileWriter(std::filesystem::path path, int width)
    : path_(std::move(path)),
      temporary_(path_.parent_path() / (path_.filename().string() + ".unfinished")),
      width_(width),
      output_(std::make_unique<Output>(temporary_)) {}

TokenFileWriter::~TokenFileWriter() {
  if (!output_) return;
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

void TokenFileWriter::add(const std::vector<std::int32_t>& entries) {
  const auto before = bytes_.size();
  const auto width = static_cast<std::size_t>(width_);
  bytes_.resize(before + entries.size() * width);
  const auto most = width_ == 4 ? std::int64_t{INT32_MAX} : (std::int64_t{1} << (8 * width_)) - 1;
  for (char* out = bytes_.data() + before; const auto entry : entries) {
    if (entry < 0 || entry > most)
      fail_data("{}: the entry {} does not fit into {} bytes", path_.string(), entry, width_);
    std::memcpy(out, &entry, width);
    out += width;
  }
  size_ += std::ssize(entries);
  write_blocks(/*is_last=*/false);
}

void TokenFileWriter::write_blocks(bool is_last) {
  std::string_view rest = bytes_;
  while (rest.size() >= block_bytes || (is_last && !rest.empty())) {
    const auto checksum = checksum_of(rest.substr(0, block_bytes));
    checksums_.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
    rest.remove_prefix(std::min(block_bytes, rest.size()));
  }
  output_->write(std::string_view(bytes_).substr(0, bytes_.size() - rest.size()));
  bytes_.erase(0, bytes_.size() - rest.size());
}

std::string TokenFileWriter::finish() {
  write_blocks(/*is_last=*/true);
  output_->write(checksums_);
  fault_point("sync");
  output_->file.sync();
  fault_point("rename");
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) throw Error(ExitCode::failure, fmt::format("cannot rename to {}: {}", path_.string(), error.message()));
  auto digest = output_->sha256.digest();
  output_.reset();
  sync_folder(path_.parent_path());
  return digest;
}

std::shared_ptr<const MappedEntries> open_token_file(const std::filesystem::path& path, std::int64_t count, int width,
                                                     std::int64_t most) {
  auto file = std::make_shared<const MappedFile>(path);
  const auto entries = static_cast<std::size_t>(count * width);
  const auto expected = entries + blocks_of(entries) * sizeof(std::uint32_t);
  if (file->bytes().size() != expected)
    fail_data("{}: has {} bytes; {} tokens take {}: it is cut off or damaged", path.string(), file->bytes().size(),
              count, expected);
  const auto checksums = file->bytes().substr(entries);
  return std::make_shared<const MappedEntries>(std::move(file), 0, count, width, most, checksums);
}

}  // namespace metaformer
