# Imported target for liblinear, which has no package file: Liblinear::linear.
find_path(Liblinear_INCLUDE_DIR NAMES linear.h)
find_library(Liblinear_LIBRARY NAMES linear)
mark_as_advanced(Liblinear_INCLUDE_DIR Liblinear_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Liblinear
  REQUIRED_VARS Liblinear_LIBRARY Liblinear_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or install liblinear (Debian: liblinear-dev)")

if(Liblinear_FOUND AND NOT TARGET Liblinear::linear)
  add_library(Liblinear::linear UNKNOWN IMPORTED)
  set_target_properties(Liblinear::linear PROPERTIES IMPORTED_LOCATION "${Liblinear_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Liblinear_INCLUDE_DIR}")
endif()
