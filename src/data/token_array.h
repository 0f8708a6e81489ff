#pragma once
// An array with an entry for each token of a text, in memory or in mapped files.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace metaformer {

// Consecutive entries in a file: unsigned little-endian integers of 1, 2 or 4 bytes.
class MappedEntries {
 public:
  // `offset`: of the first entry, in bytes. `width`: bytes of an entry. `most`: the largest valid entry. `checksums`:
  // CRC-32 of every block of entries (TokenFileWriter); "": none. Errors (exit code 3): the file is shorter.
  MappedEntries(std::shared_ptr<const MappedFile> file, std::size_t offset, std::int64_t count, int width,
                std::int64_t most, std::string_view checksums = "");

  std::int64_t size() const { return count_; }

  // Entries of a file without checksums.
  std::shared_ptr<const MappedEntries> part(std::int64_t first, std::int64_t count) const {
    return std::make_shared<const MappedEntries>(file_, offset_ + static_cast<std::size_t>(first * width_), count,
                                                 width_, most_);
  }

  // Writes the entries from `first` on to `out`. Errors (exit code 3) name the file: an entry above `most`, a wrong
  // checksum.
  void copy(std::int64_t first, std::int64_t count, std::int32_t* out) const;

  // Starts to read these entries from the disk, without waiting for it.
  void prefetch(std::int64_t first, std::int64_t count) const;

 private:
  void check_blocks(std::size_t first, std::size_t end) const;  // of these bytes, each once

  std::shared_ptr<const MappedFile> file_;
  std::size_t offset_;
  std::int64_t count_;
  int width_;
  std::int64_t most_;
  std::string_view checksums_;
  mutable std::vector<std::atomic<bool>> is_checked_;  // by block
};

class TokenArray {
 public:
  TokenArray() = default;
  explicit TokenArray(std::vector<std::int32_t> entries) : entries_(std::move(entries)), size_(std::ssize(entries_)) {}

  // `parts` follow one another.
  explicit TokenArray(std::vector<std::shared_ptr<const MappedEntries>> parts);

  // Appends an array that is in files, too.
  void append(const TokenArray& other);

  std::int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool is_in_memory() const { return parts_.empty(); }
  const std::vector<std::int32_t>& in_memory() const { return entries_; }

  // Must lie within the array. Errors: those of MappedEntries.
  void copy(std::int64_t first, std::int64_t count, std::int32_t* out) const;
  std::vector<std::int32_t> slice(std::int64_t first, std::int64_t count) const;
  std::vector<std::int32_t> all() const { return slice(0, size_); }

  // Starts to read these entries from the disk, without waiting for it.
  void prefetch(std::int64_t first, std::int64_t count) const;

 private:
  template <class Use>
  void for_each_part(std::int64_t first, std::int64_t count, Use use) const;

  std::vector<std::int32_t> entries_;
  std::vector<std::shared_ptr<const MappedEntries>> parts_;
  std::vector<std::int64_t> starts_;  // of the parts
  std::int64_t size_ = 0;
};

// Writes a file of entries: the entries, then the CRC-32 of every block of them, little-endian.
class TokenFileWriter {
 public:
  static constexpr std::size_t block_bytes = 1 << 12;  // a page of memory

  // Writes to a temporary name. Errors (exit code 1): a full disk.
  TokenFileWriter(std::filesystem::path path, int width);
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  ~TokenFileWriter();  // without finish() the file is removed

  // Errors (exit code 3): an entry that does not fit into the width.
  void add(const std::vector<std::int32_t>& entries);

  std::int64_t size() const { return size_; }

  // Syncs the file and renames it; returns its SHA-256.
  std::string finish();

 private:
  void write_blocks(bool is_last);

  std::filesystem::path path_, temporary_;
  int width_;
  std::int64_t size_ = 0;
  std::string bytes_, checksums_;
  struct Output;
  std::unique_ptr<Output> output_;
};

// The array in a file of TokenFileWriter. Errors (exit code 3): its size is not that of `count` entries.
std::shared_ptr<const MappedEntries> open_token_file(const std::filesystem::path& path, std::int64_t count, int width,
                                                     std::int64_t most);

}  // namespace metaformer
