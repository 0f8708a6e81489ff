# Imported target for PCRE2 with 8-bit units, which has no package file in Debian: Pcre2::pcre2.
find_path(Pcre2_INCLUDE_DIR NAMES pcre2.h)
find_library(Pcre2_LIBRARY NAMES pcre2-8)
mark_as_advanced(Pcre2_INCLUDE_DIR Pcre2_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Pcre2
  REQUIRED_VARS Pcre2_LIBRARY Pcre2_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or install PCRE2 (Debian: libpcre2-dev)")

if(Pcre2_FOUND AND NOT TARGET Pcre2::pcre2)
  add_library(Pcre2::pcre2 UNKNOWN IMPORTED)
  set_target_properties(Pcre2::pcre2 PROPERTIES IMPORTED_LOCATION "${Pcre2_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Pcre2_INCLUDE_DIR}")
endif()
