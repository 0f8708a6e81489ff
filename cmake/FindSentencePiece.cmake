# Imported targets for sentencepiece, which has no package file: SentencePiece::processor, SentencePiece::trainer.
find_path(SentencePiece_INCLUDE_DIR NAMES sentencepiece_processor.h)
find_library(SentencePiece_LIBRARY NAMES sentencepiece)
find_library(SentencePiece_TRAIN_LIBRARY NAMES sentencepiece_train)
mark_as_advanced(SentencePiece_INCLUDE_DIR SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SentencePiece
  REQUIRED_VARS SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY SentencePiece_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or install sentencepiece (Debian: libsentencepiece-dev)")

if(SentencePiece_FOUND AND NOT TARGET SentencePiece::processor)
  add_library(SentencePiece::processor UNKNOWN IMPORTED)
  set_target_properties(SentencePiece::processor PROPERTIES IMPORTED_LOCATION "${SentencePiece_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${SentencePiece_INCLUDE_DIR}")
  add_library(SentencePiece::trainer UNKNOWN IMPORTED)
  set_target_properties(SentencePiece::trainer PROPERTIES IMPORTED_LOCATION "${SentencePiece_TRAIN_LIBRARY}"
    INTERFACE_LINK_LIBRARIES SentencePiece::processor)
endif()
