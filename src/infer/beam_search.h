#pragma once
// Writes targets with an encoder and decoder, by beam search; with a beam of 1 greedily. Scores them against those of a
// split.

#include <vector>

#include "config/experiment_config.h"
#include "data/pairs.h"
#include "distributed/process_group.h"
#include "model/sequence_model.h"
#include "run/load_run.h"

namespace metaformer {

// Texts of one forward pass, as token ids.
using TextBatch = std::vector<std::vector<std::int32_t>>;

struct BeamOptions {
  std::int64_t beam = 1;             // hypotheses that are kept of every target
  std::int64_t n_best = 1;           // that are wanted, at most the beam
  double alpha = 0.6;                // of the length penalty
  std::int64_t further_tokens = 50;  // that a target may have more than its source (Vaswani et al. 2017, section 6.1)
};

struct Hypothesis {
  std::vector<std::int32_t> ids;  // without the mark at its end
  double log_probability = 0;     // with that of the mark
  double score = 0;               // log_probability / length_penalty
  bool is_cut = false;            // it was ended in the last place, where another token was likelier than the mark
};

// ((5 + |Y|) / 6)^alpha, where |Y| counts the mark (GNMT, Wu et al. 2016, equation 14).
double length_penalty(std::int64_t tokens, double alpha);

// Finds the best hypotheses of every source (token ids without a mark, none empty), by falling score, at most n_best.
// All of them end with the mark, which is the only token in the last place that a target may have: one for each token
// of the source with its mark and `further_tokens`, but at most the model's context. Of the best `beam` continuations
// of a step, those by the mark are finished and the others live on. The search ends when none lives, or when none can
// become better than the n_best finished ones. It does not end after some number of them: after label smoothing, poor
// ones finish early. `mark`: the id that begins and ends targets. `never`: ids that are not written, such as the
// unknown token.
std::vector<std::vector<Hypothesis>> beam_search(SequenceModel& model, const TextBatch& sources, std::int32_t mark,
                                                 const std::vector<std::int32_t>& never, const BeamOptions& options,
                                                 torch::Device device);

// The hypotheses of a beam search for every source (token ids without a mark), at least one for each. None has the
// tokenizer's unknown token. Errors (exit code 4): the model's numbers are not finite.
std::vector<std::vector<Hypothesis>> write_targets(SequenceModel& model, const ExperimentConfig& config,
                                                   torch::Device device, const Tokenizer& tokenizer,
                                                   const TextBatch& sources, const BeamOptions& options);
std::vector<std::vector<Hypothesis>> write_targets(const LoadedRun& run, const TextBatch& sources,
                                                   const BeamOptions& options);

// The best one for one source.
Hypothesis write_target(const LoadedRun& run, const std::vector<std::int32_t>& source, const BeamOptions& options = {});

// BLEU, also of lower-cased texts, and chrF in percent, with their signatures; ROUGE's F1 as fractions; and the
// fraction of targets of which every token is written. Beside them the scores of two texts that need no model: the
// source, and its first sentence. Processes take turns in batches; all of them get the scores.
WrittenScores score_written_targets(SequenceModel& model, const ExperimentConfig& config, torch::Device device,
                                    const PairDataset& pairs, Split split, const BeamOptions& options,
                                    ProcessGroup& group);

// Up to the first full stop, question or exclamation mark before white space; all of it if there is none.
std::string first_sentence(const std::string& text);

}  // namespace metaformer
