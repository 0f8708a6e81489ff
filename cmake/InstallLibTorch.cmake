# Installs the libraries of LibTorch that the program links (460 MB) into lib/metaformer, where its RPATH finds them, so that
# an installed program needs neither the clone nor its .deps. What the system's packages bring stays with the system.
install(RUNTIME_DEPENDENCY_SET metaformer_libraries
  PRE_INCLUDE_REGEXES "^lib(torch|c10|gomp|cudart|cupti|mkl|iomp|shm)"
  PRE_EXCLUDE_REGEXES ".*"
  DIRECTORIES "${LibTorch_ROOT}/lib"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/metaformer")
if(METAFORMER_WITH_CUDA)
  install(CODE "message(STATUS \"On the CPU the installed program is complete. On a GPU it loads the CUDA libraries of \"
    \"LibTorch from ${LibTorch_ROOT}/lib: keep that folder, or set LD_LIBRARY_PATH to another LibTorch of the same version\")")
endif()
