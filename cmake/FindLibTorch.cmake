# Imported targets for LibTorch: LibTorch::torch (C++ API on the CPU) and, if present, LibTorch::c10_cuda.
#
# Unlike Torch's own package file, this one does not require a CUDA toolkit if LibTorch was built with CUDA. Searches in
# LIBTORCH (variable or environment: an unpacked archive), then in the set-up's Python environment.
set(libtorch_hints ${LIBTORCH} $ENV{LIBTORCH})
file(GLOB libtorch_venv "${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch")
find_path(LibTorch_INCLUDE_DIR NAMES torch/script.h ATen/ATen.h
  HINTS ${libtorch_hints} ${libtorch_venv} PATH_SUFFIXES include NO_DEFAULT_PATH)
get_filename_component(LibTorch_ROOT "${LibTorch_INCLUDE_DIR}" DIRECTORY)
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS "${LibTorch_ROOT}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS "${LibTorch_ROOT}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda HINTS "${LibTorch_ROOT}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_CUDA_LIBRARY torch_cuda HINTS "${LibTorch_ROOT}/lib" NO_DEFAULT_PATH)
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_C10_CUDA_LIBRARY
  LibTorch_CUDA_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or set LIBTORCH to an unpacked LibTorch")

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch)
  add_library(LibTorch::torch INTERFACE IMPORTED)
  # After the system's folders: LibTorch contains a newer fmt that would shadow the fmt of spdlog. nvcc does
  # not have the option, and the kernels include no torch.
  foreach(folder "${LibTorch_INCLUDE_DIR}" "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
    target_compile_options(LibTorch::torch INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter \"${folder}\">")
  endforeach()
  target_link_libraries(LibTorch::torch INTERFACE "${LibTorch_CPU_LIBRARY}" "${LibTorch_C10_LIBRARY}")
  # A CPU-only set-up lacks NVIDIA libraries that LibTorch's libraries link.
  target_link_options(LibTorch::torch INTERFACE -Wl,--allow-shlib-undefined)
endif()
