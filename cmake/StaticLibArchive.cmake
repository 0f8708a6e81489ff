# LibArchive::LibArchive becomes the static library if that links with zlib alone: the shared library needs libxml2 and 30 MB
# of ICU, for formats that this program does not read. LibArchive_SHARED is the shared library.
include(CheckSourceCompiles)

set(LibArchive_SHARED "${LibArchive_LIBRARY}")
find_library(LibArchive_STATIC NAMES libarchive.a)
if(LibArchive_STATIC)
  set(CMAKE_REQUIRED_INCLUDES "${LibArchive_INCLUDE_DIRS}")
  set(CMAKE_REQUIRED_LIBRARIES "${LibArchive_STATIC}" ZLIB::ZLIB)
  check_source_compiles(CXX [[
    #include <archive.h>
    #include <archive_entry.h>
    int main() {
      archive* reader = archive_read_new();
      archive_entry* entry = nullptr;
      archive_read_support_filter_gzip(reader);
      archive_read_support_format_tar(reader);
      archive_read_open_filename(reader, "", 1);
      archive_read_next_header(reader, &entry);
      return static_cast<int>(archive_read_data(reader, nullptr, 0)) + archive_read_free(reader);
    }]] LibArchive_STATIC_LINKS)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(LibArchive_STATIC_LINKS)
    set_target_properties(LibArchive::LibArchive PROPERTIES IMPORTED_LOCATION "${LibArchive_STATIC}")
  endif()
endif()
