# Imported target Gloo::headers. The library itself is a part of LibTorch; only the includes of c10d's headers are needed.
find_path(Gloo_INCLUDE_DIR NAMES gloo/transport/device.h)
mark_as_advanced(Gloo_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Gloo
  REQUIRED_VARS Gloo_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or install Gloo's headers (Debian: libgloo-dev)")

if(Gloo_FOUND AND NOT TARGET Gloo::headers)
  add_library(Gloo::headers INTERFACE IMPORTED)
  target_include_directories(Gloo::headers INTERFACE "${Gloo_INCLUDE_DIR}")
endif()
