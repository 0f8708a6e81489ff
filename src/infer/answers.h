#pragma once
// Answers of a run to texts.

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "distributed/process_group.h"
#include "infer/beam_search.h"
#include "infer/load_run.h"

namespace metaformer {

// Answers to texts that several processes take turns in.

// Texts of one forward pass, as token ids.
using TextBatch = std::vector<std::vector<std::int32_t>>;

// What a process says of each text of a batch.
using Answers = std::vector<nlohmann::ordered_json>;
using AnswerBatch = std::function<Answers(const TextBatch&)>;

// On the first process: the answers to at most as many batches as there are processes, which only this one has read.
// The others must be in help_answer.
std::vector<Answers> answer_together(ProcessGroup& group, const AnswerBatch& answer,
                                     const std::vector<TextBatch>& batches);

// On the others: answers their share until the first calls end_answers.
void help_answer(ProcessGroup& group, const AnswerBatch& answer);
void end_answers(ProcessGroup& group);

// What a run says of texts: their classes, or the texts that it writes from them.
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

// The targets that an encoder and decoder writes, in the precision of its run.

// The hypotheses of a beam search for every source (token ids without a mark), at least one for each. None has the
// tokenizer's unknown token. Errors (exit code 4): the model's numbers are not finite.
std::vector<std::vector<Hypothesis>> write_targets(SequenceModel& model, const ExperimentConfig& config,
                                                   torch::Device device, const Tokenizer& tokenizer,
                                                   const TextBatch& sources, const BeamOptions& options);
std::vector<std::vector<Hypothesis>> write_targets(const LoadedRun& run, const TextBatch& sources,
                                                   const BeamOptions& options);

// The best one for one source.
Hypothesis write_target(const LoadedRun& run, const std::vector<std::int32_t>& source, const BeamOptions& options = {});

}  // namespace metaformer
