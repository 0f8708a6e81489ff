#pragma once
// Answers of a run to texts: classes, or texts that it writes.

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "distributed/process_group.h"
#include "infer/beam_search.h"
#include "run/load_run.h"
#include "tasks/classification_task.h"

namespace metaformer {

// Answers to texts that several processes take turns in: what one says of each text of a batch.
using Answers = std::vector<nlohmann::ordered_json>;
using AnswerBatch = std::function<Answers(const TextBatch&)>;

// On the first process: the answers to at most as many batches as there are processes, which only this one has read.
// The others must be in help_answer.
std::vector<Answers> answer_together(ProcessGroup& group, const AnswerBatch& answer,
                                     const std::vector<TextBatch>& batches);

// On the others: answers their share until the first calls end_answers.
void help_answer(ProcessGroup& group, const AnswerBatch& answer);
void end_answers(ProcessGroup& group);

// Classes of texts from a classifier.
struct Prediction {
  std::size_t label = 0;              // the likeliest class
  std::vector<double> probabilities;  // by class
};

// One prediction per text, in order, in the precision of the run; the last digits of a network's depend on the texts
// beside it. `texts`: token ids, none empty, none longer than model.context. Errors (exit code 4): a probability is not
// finite.
std::vector<Prediction> predict(const LoadedRun& run, const std::vector<std::vector<std::int32_t>>& texts);

// Several classifiers as one: the mean of their probabilities (Dietterich 2000, "Ensemble methods in machine
// learning").
class Ensemble {
 public:
  // Adds what the measures gathered of a classifier on a split. Errors (exit code 2), naming the member as `name`: its
  // classes, or its texts and their labels, are not those of the first member.
  void add(const std::string& name, const ClassificationMeasures& measures, const ScoreSums& sums, Split split);

  // Mean over the members, texts in the order of the source.
  ClassProbabilities mean() const;

 private:
  std::vector<std::string> classes_;
  std::string text_digest_;
  ClassProbabilities sum_;
  double members_ = 0;
};

// Answers of a run to texts: their classes, or the texts that it writes.
struct TextAnswers {
  // Token ids of a text as the model takes them, cut to its context if need be. Errors (exit code 3): not UTF-8, NUL
  // bytes, blank.
  std::function<std::vector<std::int32_t>(const std::string& text, bool& cut)> encode;

  // An object for each text. Errors (exit code 4): the model's numbers are not finite.
  AnswerBatch answer;

  // Such an object in a line for people and scripts; that of a text that could not be read.
  std::function<std::string(const nlohmann::ordered_json& answer)> line;
  std::string line_without_answer = "";
};

// Label and probability of the likeliest class; of every class in the object. `run` must outlive it.
TextAnswers class_answers(const LoadedRun& run);

// The best hypothesis of a beam search; all n_best in the object. `run` must outlive it.
TextAnswers target_answers(const LoadedRun& run, const BeamOptions& options);

}  // namespace metaformer
