# Imported target for libcsv, which has no package file: Libcsv::csv.
find_path(Libcsv_INCLUDE_DIR NAMES csv.h)
find_library(Libcsv_LIBRARY NAMES csv)
mark_as_advanced(Libcsv_INCLUDE_DIR Libcsv_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libcsv
  REQUIRED_VARS Libcsv_LIBRARY Libcsv_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or install libcsv (Debian: libcsv-dev)")

if(Libcsv_FOUND AND NOT TARGET Libcsv::csv)
  add_library(Libcsv::csv UNKNOWN IMPORTED)
  set_target_properties(Libcsv::csv PROPERTIES IMPORTED_LOCATION "${Libcsv_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Libcsv_INCLUDE_DIR}")
endif()
