# Installs LibTorch's library for the CPU and its dependencies outside of the system's libraries (460 MB together) into
# lib/metaformer, a folder of the program's RPATH: an installed program needs neither the clone nor its .deps.
install(CODE "
  file(GET_RUNTIME_DEPENDENCIES LIBRARIES \"${LibTorch_CPU_LIBRARY}\" \"${LibTorch_C10_LIBRARY}\"
    RESOLVED_DEPENDENCIES_VAR needed UNRESOLVED_DEPENDENCIES_VAR missing POST_EXCLUDE_REGEXES \"^/lib\" \"^/usr/lib\")
  if(missing)
    message(FATAL_ERROR \"LibTorch needs libraries that are not found: \${missing}\")
  endif()
  file(INSTALL \"${LibTorch_CPU_LIBRARY}\" \"${LibTorch_C10_LIBRARY}\" \${needed} FOLLOW_SYMLINK_CHAIN
    DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/metaformer\")")
if(METAFORMER_WITH_CUDA)
  install(CODE "message(STATUS \"On the CPU the installed program is complete. On a GPU it loads the CUDA libraries of \"
    \"LibTorch from ${LibTorch_ROOT}/lib: keep that folder, or set LD_LIBRARY_PATH to another LibTorch of the same version\")")
endif()
# Licence texts, if LibTorch was installed as Python packages (THIRD_PARTY_LICENSES.md).
get_filename_component(LibTorch_PACKAGES "${LibTorch_ROOT}" DIRECTORY)
foreach(package torch nvidia_cuda_runtime nvidia_cuda_cupti)
  file(GLOB texts "${LibTorch_PACKAGES}/${package}-*.dist-info/licenses/*")
  install(FILES ${texts} DESTINATION "${CMAKE_INSTALL_DOCDIR}/licenses/${package}")
endforeach()
