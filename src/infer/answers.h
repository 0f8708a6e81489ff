#pragma once
// Answers of a run to texts: classes, or texts that it writes.

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "infer/beam_search.h"
#include "run/load_run.h"
#include "tasks/classification_task.h"

namespace metaformer {

// Answers to texts, an object for each text of a batch. Several processes share the batches.
using Answers = std::vector<nlohmann::ordered_json>;
using AnswerBatch = std::function<Answers(const TextBatch&)>;

// On the first process: the answers to `batches`, at most one for each process, which only this process has read. The
// others must be in help_answer.
std::vector<Answers> answer_together(ProcessGroup& group, const AnswerBatch& answer,
                                     const std::vector<TextBatch>& batches);

// On the other processes: answers their batches until the first process calls end_answers.
void help_answer(ProcessGroup& group, const AnswerBatch& answer);
void end_answers(ProcessGroup& group);

// Classes of texts from a classifier.
struct Prediction {
  std::size_t label = 0;              // the likeliest class
  std::vector<double> probabilities;  // by class
};

// One prediction per text, in order, in the precision of the run; the last digits of a network's probabilities depend
// on the other texts. `texts`: token ids, none empty, none longer than model.context. The temperature divides the
// logits (tasks/calibration.h), and changes no label. Errors (exit code 4): a probability is not finite.
std::vector<Prediction> predict(const LoadedRun& run, const std::vector<std::vector<std::int32_t>>& texts,
                                double temperature = 1);

// How classes are chosen from probabilities.
struct ClassChoice {
  bool calibrated = true;  // with the temperature of the checkpoint, if it has one
  // Of two classes: the probability of the second one from which it is chosen, instead of the likelier class. Of more:
  // the lowest probability with which the likeliest class is chosen.
  std::optional<double> threshold = std::nullopt;
};

// The class of a prediction; nothing if the likeliest of more than two classes is below the threshold.
std::optional<std::size_t> chosen_class(const Prediction& prediction, const std::optional<double>& threshold);

// The place of a class in lines of text, if no class is chosen.
constexpr const char* unsure = "unsure";

// Several classifiers as one: the mean of their probabilities (Dietterich 2000, "Ensemble methods in machine
// learning").
class Ensemble {
 public:
  // Adds the probabilities of a classifier on a split, with its temperature. Errors (exit code 2), which name the
  // member `name`: its classes, texts or labels are not those of the first member.
  void add(const std::string& name, const ClassificationMeasures& measures, const ScoreSums& sums, Split split,
           double temperature = 1);

  // Mean over the members, texts in the order of the source.
  ClassProbabilities mean() const;

 private:
  std::vector<std::string> classes_;
  std::string text_digest_;
  ClassProbabilities sum_;
  double members_ = 0;
};

// Replaces the characters that separate fields and lines of the output by spaces.
std::string on_one_line(std::string text);

// Answers of a run to texts: their classes, or the texts that it writes.
struct TextAnswers {
  // Token ids of a text as the model takes them, cut to its context if need be. Errors (exit code 3): not UTF-8, NUL
  // bytes, blank.
  std::function<std::vector<std::int32_t>(const std::string& text, bool& cut)> encode;

  // An object for each text. Errors (exit code 4): the model's numbers are not finite.
  AnswerBatch answer;

  // The line of an answer, for people and scripts; the line of a text that could not be read.
  std::function<std::string(const nlohmann::ordered_json& answer)> line;
  std::string line_without_answer = "";
};

// The line has the label and probability of the chosen class, or `unsure` and the probability of the likeliest; the
// object, where the label is then null, also has the probabilities of all classes. `run` must outlive it.
TextAnswers class_answers(const LoadedRun& run, const ClassChoice& choice = {});

// The line has the best hypothesis of a beam search; the object has all n_best. `run` must outlive it.
TextAnswers target_answers(const LoadedRun& run, const BeamOptions& options);

}  // namespace metaformer
