#pragma once
// Scores of texts that are given: of a whole file, like a split, or of each of its lines.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "run/load_run.h"

namespace metaformer {

// The file, or for translation pairs also the file with the target of every line.
struct ScoredFile {
  std::filesystem::path path;
  std::optional<std::filesystem::path> targets = std::nullopt;
};

// The task of a run with the file in place of its data, and the split that evaluates the whole file once. A language
// model reads text or JSON lines, whose documents follow one another; a classifier a table of texts and labels;
// sequence_to_sequence a table of pairs, or the lines of two files. The format is that of the file's name; other keys
// of the data section hold. A text may be shorter than a window.
//
// Errors: exit code 2 for tasks without texts and for targets of anything but pairs; exit code 3 for files that cannot
// be read, and for texts or labels that the run does not know.
struct FileTask {
  Task task;
  Split split;
};
FileTask task_of_file(const LoadedRun& run, const ScoredFile& file);

// The score of a line, row or JSON object.
struct LineScore {
  std::int64_t line = 0;
  // Natural logarithm of the probability of the text, without its first token, which nothing predicts; of the target
  // given the source, with the mark at its end; or of the label.
  double log_probability = 0;
  std::int64_t tokens = 0;                      // that are predicted; 1 for a label
  std::optional<std::int64_t> bytes;            // that these tokens stand for; of texts only
  std::optional<std::string> label, predicted;  // of classifiers
  bool is_cut = false;                          // a target or a labelled text was longer than the model's context
};

// Scores every line of the file in order. A text longer than the context is scored in consecutive windows, each without
// the tokens before it. Errors: those of task_of_file; exit code 2 for masked language models; exit code 4 for scores
// that are not finite.
void score_lines(const LoadedRun& run, const ScoredFile& file, const std::function<void(const LineScore&)>& use);

}  // namespace metaformer
