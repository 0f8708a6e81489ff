# Imported target for the library of Zstandard, which has no package file in Debian: Zstandard::zstd.
find_path(Zstandard_INCLUDE_DIR NAMES zstd.h)
find_library(Zstandard_LIBRARY NAMES zstd)
mark_as_advanced(Zstandard_INCLUDE_DIR Zstandard_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Zstandard
  REQUIRED_VARS Zstandard_LIBRARY Zstandard_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or install Zstandard (Debian: libzstd-dev)")

if(Zstandard_FOUND AND NOT TARGET Zstandard::zstd)
  add_library(Zstandard::zstd UNKNOWN IMPORTED)
  set_target_properties(Zstandard::zstd PROPERTIES IMPORTED_LOCATION "${Zstandard_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Zstandard_INCLUDE_DIR}")
endif()
