#include "report/texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/signals.h"
#include "infer/prediction.h"
#include "infer/sampling.h"
#include "infer/training_sample.h"

namespace metaformer {

namespace {

std::vector<std::int32_t> encode(const LoadedRun& run, const std::string& prompt) {
  auto ids = run.codec.tokenizer->encode(prompt);
  if (ids.empty()) throw Error(ExitCode::usage, "the prompt holds no token");
  return ids;
}

std::string generate(const LoadedRun& run, const std::vector<std::int32_t>& prompt, std::int64_t count,
                     const SamplingOptions& options) {
  TextGenerator generator(*run.model, prompt, options, run.device);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    throw_if_stopped();
    tokens.push_back(generator.next().front());
  }
  return run.codec.tokenizer->decode(tokens);
}

std::string classify(const LoadedRun& run, std::vector<std::int32_t> ids) {
  const auto context = context_of(run.experiment.config.model);
  if (static_cast<std::int64_t>(ids.size()) > context) ids.resize(static_cast<std::size_t>(context));
  const auto prediction = predict(run, {ids}).front();
  std::string text;
  for (std::size_t i = 0; i < prediction.probabilities.size(); ++i)
    text += fmt::format("\n{}{}: {:.1f}%", i == prediction.label ? "→ " : "   ", run.codec.labels[i],
                        100 * prediction.probabilities[i]);
  return text;
}

std::string default_list(const SortConfig& task) {
  std::string list;
  for (std::int64_t i = task.length - 1; i >= 0; --i)
    list += fmt::format("{}{}", list.empty() ? "" : " ", i % task.digits);
  return list;
}

}  // namespace

std::string prompt_for(const LoadedRun& run, const PromptOptions& options) {
  if (options.prompt) return *options.prompt;
  const auto& task = run.experiment.config.task;
  if (is<SortConfig>(task)) return default_list(std::get<SortConfig>(task));
  if (is<ClassificationConfig>(task)) return "This film was not as good as I had hoped, but the actors were great.";
  return default_prompt(*run.codec.tokenizer);
}

nlohmann::ordered_json answer(const LoadedRun& run, const PromptOptions& options) {
  const auto& task = run.experiment.config.task;
  const auto prompt = prompt_for(run, options);
  auto ids = encode(run, prompt);
  if (is<ClassificationConfig>(task)) return {{"prompt", prompt}, {"text", classify(run, std::move(ids))}};
  SamplingOptions sampling{.temperature = options.temperature, .seed = options.seed};
  if (!is<SortConfig>(task)) return {{"prompt", prompt}, {"text", generate(run, ids, options.tokens, sampling)}};
  const auto length = std::get<SortConfig>(task).length;
  if (static_cast<std::int64_t>(ids.size()) != length)
    throw Error(ExitCode::usage, fmt::format("the prompt has {} numbers; this run sorts {}", ids.size(), length));
  sampling.temperature = 0;
  return {{"prompt", prompt}, {"text", "\n→ " + generate(run, ids, length, sampling)}};
}

}  // namespace metaformer
