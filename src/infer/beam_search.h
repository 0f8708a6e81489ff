#pragma once
// Generates targets with an encoder-decoder by beam search (greedily with a beam of 1), and scores them against the
// targets of a split.

#include <vector>

#include "config/experiment_config.h"
#include "data/pairs.h"
#include "distributed/process_group.h"
#include "infer/step_graphs.h"
#include "model/sequence_model.h"
#include "run/load_run.h"

namespace metaformer {

// Texts of one forward pass, as token ids.
using TextBatch = std::vector<std::vector<std::int32_t>>;

struct BeamOptions {
  std::int64_t beam = 1;             // hypotheses that are kept for each target
  std::int64_t n_best = 1;           // hypotheses that are returned for each target, at most the beam
  double alpha = 0.6;                // of the length penalty
  std::int64_t further_tokens = 50;  // most tokens beyond those of the source (Vaswani et al. 2017, section 6.1)
  bool graphs = true;                // false: the host starts every operation, on a GPU too
};

struct Hypothesis {
  std::vector<std::int32_t> ids;  // without the mark at its end
  double log_probability = 0;     // including the mark
  double score = 0;               // log_probability / length_penalty
  bool is_cut = false;            // ended at the maximum length, where another token was likelier than the mark
};

// ((5 + |Y|) / 6)^alpha, where |Y| counts the mark (GNMT, Wu et al. 2016, equation 14).
double length_penalty(std::int64_t tokens, double alpha);

// The host learns only after a chunk that a search has ended.
inline const DeviceGenerationPlan short_chunks = {.steps_to_warm_up = 1, .first_chunk = 8, .longest_chunk = 8};

// Finds the best hypotheses for each source (token ids without a mark, none empty), by falling score, at most n_best.
// All of them end with the mark. With it they are at most as long as the source with its mark plus `further_tokens`,
// and as the model's context; in the last place only the mark is allowed. Of the best `beam` continuations of a step,
// those by the mark are finished and the others stay live. The search ends when none is live, or when none can become
// better than the n_best finished ones. It does not end after a fixed number of finished ones, because after label
// smoothing poor ones finish early. Of equally likely continuations the first are those of the likelier hypothesis, and
// of one hypothesis the lowest id. `mark`: the id that begins and ends targets. `never`: ids that are not written, such
// as the unknown token. `plan`: of graphs, which compute the same if the model has recordable steps.
std::vector<std::vector<Hypothesis>> beam_search(SequenceModel& model, const TextBatch& sources, std::int32_t mark,
                                                 const std::vector<std::int32_t>& never, const BeamOptions& options,
                                                 torch::Device device, DeviceGenerationPlan plan = short_chunks);

// The hypotheses of a beam search for every source (token ids without a mark), at least one for each. None contains the
// tokenizer's unknown token. Errors (exit code 4): the model's numbers are not finite.
std::vector<std::vector<Hypothesis>> write_targets(SequenceModel& model, const ExperimentConfig& config,
                                                   torch::Device device, const Tokenizer& tokenizer,
                                                   const TextBatch& sources, const BeamOptions& options);
std::vector<std::vector<Hypothesis>> write_targets(const LoadedRun& run, const TextBatch& sources,
                                                   const BeamOptions& options);

// The best hypothesis for one source.
Hypothesis write_target(const LoadedRun& run, const std::vector<std::int32_t>& source, const BeamOptions& options = {});

// Generates the targets of a split and scores them: BLEU, also of lower-cased texts, and chrF in percent, with their
// signatures; ROUGE's F1 as fractions; and the fraction of targets with every token right. The baselines are the scores
// of two texts that need no model: the source, and its first sentence. The processes share the batches, and all of them
// get the scores.
WrittenScores score_written_targets(SequenceModel& model, const ExperimentConfig& config, torch::Device device,
                                    const PairDataset& pairs, Split split, const BeamOptions& options,
                                    ProcessGroup& group);

// Up to the first full stop, question or exclamation mark before white space; all of it if there is none.
std::string first_sentence(const std::string& text);

}  // namespace metaformer
