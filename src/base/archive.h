#pragma once
// Compressed files and archives.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace metaformer {

// Whether `bytes` begin like a gzipped file (RFC 1952), and like one of gzip or Zstandard (RFC 8878).
bool is_gzip(std::string_view bytes);
bool is_packed_file(std::string_view bytes);

// The content of bytes that begin like gzip or Zstandard: of all members, whose checksums are verified; other bytes
// unchanged. Errors (exit code 3) name `source`: cut off, damaged, more than `largest` bytes when unpacked (memory
// holds at most one piece more than that).
std::string unpack(std::string bytes, std::uintmax_t largest, const std::string& source);

// The bytes of a file, unpacked if they begin like gzip or Zstandard, piece by piece in constant memory.
class UnpackedFile {
 public:
  // A pipe is read like a file. Errors (exit code 3): missing, a folder, no permission.
  explicit UnpackedFile(const std::filesystem::path& path);
  UnpackedFile(const UnpackedFile&) = delete;
  UnpackedFile& operator=(const UnpackedFile&) = delete;
  ~UnpackedFile();

  // The next bytes, valid until the next call; "" at the end. Errors (exit code 3) name the file: cut off, damaged (the
  // checksums are verified), unreadable. Throws Interrupted when a signal asks to stop.
  std::string_view next();

  // The digest of the file before unpacking; after the end.
  std::string sha256() const;

 private:
  struct Reader;
  std::unique_ptr<Reader> reader_;
};

using WantsEntry = std::function<bool(std::string_view name)>;
using UseEntry = std::function<void(std::string_view name, std::string&& content)>;

// Calls `use` with every regular file of a tar archive, gzipped or not, whose name `wants` accepts. Writes nothing to
// disk. Errors (exit code 3): unreadable, no archive, cut off, damaged (gzip's checksum is verified), an entry above
// `largest` bytes. An error may come after the last entry was used.
void for_each_archive_entry(const std::filesystem::path& path, std::size_t largest, const WantsEntry& wants,
                            const UseEntry& use);

}  // namespace metaformer
