#pragma once
// Writes ZIP archives whose entries are stored as they are, of any size (PKWARE's APPNOTE, sections 4.3 and 4.5.3).
// libarchive could, too, but its writer needs libraries for encryption, which the program does not link.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

namespace metaformer {

class ZipWriter {
 public:
  // Throws Error (exit code 1) here and below when the file cannot be written.
  explicit ZipWriter(const std::filesystem::path& path);

  // An entry whose content are the parts, one after another.
  void add(const std::string& name, std::initializer_list<std::string_view> parts);

  // Writes the list of entries; nothing can be added afterwards.
  void finish();

 private:
  void write(std::string_view bytes);

  std::filesystem::path path_;
  std::ofstream file_;
  std::uint64_t written_ = 0, entries_ = 0;
  std::string directory_;
};

}  // namespace metaformer
