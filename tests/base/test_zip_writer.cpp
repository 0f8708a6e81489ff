#include <archive.h>
#include <archive_entry.h>

#include <map>

#include "base/error.h"
#include "base/zip_writer.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace metaformer {

namespace {

// What libarchive finds in a ZIP archive; it checks the checksums.
std::map<std::string, std::string> entries_of(const std::filesystem::path& path) {
  std::map<std::string, std::string> entries;
  auto* reader = archive_read_new();
  archive_read_support_format_zip_seekable(reader);
  REQUIRE(archive_read_open_filename(reader, path.c_str(), 1 << 16) == ARCHIVE_OK);
  for (archive_entry* entry = nullptr; archive_read_next_header(reader, &entry) == ARCHIVE_OK;) {
    std::string content(static_cast<std::size_t>(archive_entry_size(entry)), '\0');
    REQUIRE(archive_read_data(reader, content.data(), content.size()) == std::ssize(content));
    char end = 0;
    REQUIRE(archive_read_data(reader, &end, 1) == 0);
    entries[archive_entry_pathname(entry)] = content;
  }
  CHECK(archive_errno(reader) == 0);
  archive_read_free(reader);
  return entries;
}

}  // namespace

TEST_CASE("a ZIP archive holds what was added", "[zip_writer]") {
  const TemporaryFolder folder;
  const std::string large(1 << 20, 'x');
  ZipWriter archive(folder / "a.zip");
  archive.add("first", {"one ", "two"});
  archive.add("empty", {});
  archive.add("folder/large", {large, "y"});
  archive.finish();
  CHECK(entries_of(folder / "a.zip") ==
        std::map<std::string, std::string>{{"first", "one two"}, {"empty", ""}, {"folder/large", large + "y"}});
}

TEST_CASE("a ZIP archive may be empty", "[zip_writer]") {
  const TemporaryFolder folder;
  ZipWriter(folder / "a.zip").finish();
  CHECK(entries_of(folder / "a.zip").empty());
}

TEST_CASE("an archive that cannot be written is an error", "[zip_writer]") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(ZipWriter(folder / "nonesuch/a.zip"), Error);
  ZipWriter full("/dev/full");
  CHECK_THROWS_AS((full.add("a", {std::string(1 << 20, 'x')}), full.finish()), Error);
}

}  // namespace metaformer
