#include "infer/write_targets.h"

#include <algorithm>

#include "infer/finite_answers.h"
#include "ops/autocast.h"
#include "text/special_tokens.h"

namespace metaformer {

std::vector<std::vector<Hypothesis>> write_targets(SequenceModel& model, const ExperimentConfig& config,
                                                   torch::Device device, const Tokenizer& tokenizer,
                                                   const TextBatch& sources, const BeamOptions& options) {
  const AutocastScope autocast(config.train.precision, device);
  const auto mark = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  auto never = ids_without_token(tokenizer);
  if (const auto unknown = tokenizer.unknown_id()) never.push_back(*unknown);
  auto written = beam_search(model, sources, mark, never, options, device);
  const auto is_empty = [](const auto& hypotheses) { return hypotheses.empty(); };
  require_finite_answers(std::count_if(written.begin(), written.end(), is_empty), std::ssize(written));
  return written;
}

std::vector<std::vector<Hypothesis>> write_targets(const LoadedRun& run, const TextBatch& sources,
                                                   const BeamOptions& options) {
  return write_targets(*run.model, run.experiment.config, run.device, *run.codec.tokenizer, sources, options);
}

Hypothesis write_target(const LoadedRun& run, const std::vector<std::int32_t>& source, const BeamOptions& options) {
  return write_targets(run, {source}, options).front().front();
}

}  // namespace metaformer
