# Run as a script at build time, whenever HEAD or a source file changes: writes OUTPUT with the commit, and whether
# the sources differ from that commit. An unchanged OUTPUT keeps its time.
execute_process(COMMAND git -C "${SOURCE_DIR}" rev-parse HEAD OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET)
set(DIRTY false)
if(COMMIT)
  execute_process(COMMAND git -C "${SOURCE_DIR}" --no-optional-locks status --porcelain --untracked-files=all
      -- src cmake scripts/lib/messages.sh experiments/lib/sweep.sh CMakeLists.txt CMakePresets.json
    OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    set(DIRTY true)
  endif()
else()
  set(COMMIT unknown)
endif()
configure_file("${TEMPLATE}" "${OUTPUT}" @ONLY)
