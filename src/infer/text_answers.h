#pragma once
// What a run says of texts: their classes, or the texts that it writes from them.

#include "infer/beam_search.h"
#include "infer/load_run.h"
#include "infer/shared_answers.h"

namespace metaformer {

class TextAnswers {
 public:
  virtual ~TextAnswers() = default;

  // Token ids of a text as the model takes them, cut to its context if need be. Errors (exit code 3): not UTF-8, NUL
  // bytes, blank.
  virtual std::vector<std::int32_t> encode(const std::string& text, bool& cut) const = 0;

  // An object for each text. Errors (exit code 4): the model's numbers are not finite.
  virtual Answers answer(const TextBatch& texts) const = 0;

  // Such an object in a line for people and scripts; of no answer, for a text that could not be read.
  virtual std::string line(const nlohmann::ordered_json& answer) const = 0;
  virtual std::string line_without_answer() const = 0;
};

// Label and probability of the likeliest class; of every class in the object. `run` must outlive it.
std::unique_ptr<TextAnswers> class_answers(const LoadedRun& run);

// The best hypothesis of a beam search; all n_best in the object. `run` must outlive it.
std::unique_ptr<TextAnswers> target_answers(const LoadedRun& run, const BeamOptions& options);

}  // namespace metaformer
