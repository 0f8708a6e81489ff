#include "report/texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "config/experiment_config.h"
#include "data/labelled.h"
#include "data/list_dataset.h"
#include "data/pairs.h"
#include "data/text_dataset.h"
#include "infer/answers.h"
#include "infer/sampling.h"
#include "text/special_tokens.h"

namespace metaformer {

namespace {

std::vector<std::int32_t> encode(const LoadedRun& run, const std::string& prompt) {
  auto ids = run.codec.tokenizer->encode(prompt);
  if (ids.empty()) throw Error(ExitCode::usage, "the prompt holds no token");
  return ids;
}

std::string generate(const LoadedRun& run, const std::vector<std::int32_t>& prompt, std::int64_t count,
                     SamplingOptions options) {
  if (const auto cut = prompt_cut(*run.model, prompt.size()); !cut.empty())
    log::warning("{}: {}", run.directory.path().string(), cut);
  const auto eos = special_tokens_of(*run.codec.tokenizer).eos;
  options.never = ids_without_token(*run.codec.tokenizer);
  TextGenerator generator(*run.model, prompt, options, run.device);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    throw_if_stopped();
    const auto token = generator.next().front();
    if (std::find(eos.begin(), eos.end(), token) != eos.end()) break;
    tokens.push_back(token);
  }
  return run.codec.tokenizer->decode(tokens);
}

// As predict reads a text.
std::vector<std::int32_t> encode(const LoadedRun& run, const TextAnswers& answers, const std::string& prompt) {
  bool cut = false;
  auto ids = answers.encode(prompt, cut);
  if (cut)
    log::warning("{}: the prompt is longer than the model's context and is cut to {} tokens",
                 run.directory.path().string(), ids.size());
  return ids;
}

std::string classify(const LoadedRun& run, const std::string& prompt) {
  const auto prediction = predict(run, {encode(run, class_answers(run), prompt)}).front();
  std::string text;
  for (std::size_t i = 0; i < prediction.probabilities.size(); ++i)
    text += fmt::format("\n{}{}: {:.1f}%", i == prediction.label ? "→ " : "   ", run.codec.labels[i],
                        100 * prediction.probabilities[i]);
  return text;
}

std::string default_list(const ListTask& task) {
  std::string list;
  for (std::int64_t i = task.length - 1; i >= 0; --i)
    list += fmt::format("{}{}", list.empty() ? "" : " ", i % task.digits + task.first_number());
  return list;
}

// Random symbols have no words.
std::string default_source(const SequenceToSequenceConfig& task) {
  if (const auto* symbols = synthetic_options(task.data.synthetic))
    return default_list({.length = symbols->length, .digits = symbols->symbols});
  if (task.data.path || task.data.source_language != "de") return "A man with a hat is standing next to a small dog.";
  return "Ein Mann mit einem Hut steht neben einem kleinen Hund.";
}

constexpr std::size_t short_text = 300;  // bytes: it fits into a page

// The first short one, else the shortest.
std::string first_short(const std::vector<LabelledText>& texts) {
  const auto size = [](const LabelledText& text) { return std::max(text.text.size(), short_text); };
  return std::min_element(texts.begin(), texts.end(), [&](auto& a, auto& b) { return size(a) < size(b); })->text;
}

// Its start, which ends behind a whole character.
std::string start_of(std::string_view text) {
  auto size = std::min(text.size(), short_text);
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return std::string(text.substr(0, size));
}

}  // namespace

std::optional<std::string> validation_text(const LoadedRun& run) {
  constexpr bool offline = true;
  const auto& config = run.experiment.config;
  if (is<ClassificationConfig>(config.task))
    return first_short(load_labelled_splits(labelled_data(config), offline)[Split::validation]);
  if (const auto* task = std::get_if<SequenceToSequenceConfig>(&config.task)) {
    if (synthetic_options(task->data.synthetic) != nullptr) return std::nullopt;
    const auto pairs = load_pairs(config, offline, run.codec);
    return pairs->texts(Split::validation, pairs->count(Split::validation) / 2).source;  // of middling length
  }
  if (!is<MaskedLanguageModelConfig>(config.task)) return std::nullopt;
  const auto& data = *text_data_of(config.task);
  const auto corpus = load_corpus(data, offline);
  return start_of(split_corpus(corpus, data)[1]);
}

std::string prompt_for(const LoadedRun& run, const PromptOptions& options) {
  if (options.prompt) return *options.prompt;
  const auto& task = run.experiment.config.task;
  if (const auto lists = list_task(task)) return default_list(*lists);
  if (const auto* pairs = std::get_if<SequenceToSequenceConfig>(&task)) return default_source(*pairs);
  if (is<ClassificationConfig>(task)) return "This film was not as good as I had hoped, but the actors were great.";
  return default_prompt(*run.codec.tokenizer);
}

std::string answer(const LoadedRun& run, const PromptOptions& options) {
  const auto& task = run.experiment.config.task;
  const auto prompt = prompt_for(run, options);
  if (is<ClassificationConfig>(task)) return classify(run, prompt);
  if (is<SequenceToSequenceConfig>(task)) {
    const auto target = write_target(run, encode(run, target_answers(run, {}), prompt)).ids;
    return "\n→ " + run.codec.tokenizer->decode(target);
  }
  if (!is_causal(task))
    throw Error(ExitCode::usage, fmt::format("a model of task {} cannot continue a text", kind_of(task)));
  const auto ids = encode(run, prompt);
  SamplingOptions sampling{.temperature = options.temperature, .seed = options.seed};
  const auto lists = list_task(task);
  if (!lists) return generate(run, ids, options.tokens, sampling);
  sampling.temperature = 0;
  return "\n→ " + generate(run, list_prompt(*lists, ids), lists->length, sampling);
}

}  // namespace metaformer
