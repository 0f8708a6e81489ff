#include "report/run_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "data/labelled.h"
#include "data/list_dataset.h"
#include "data/text_dataset.h"
#include "data/token_folder.h"
#include "infer/answers.h"
#include "infer/sampling.h"
#include "text/special_tokens.h"

namespace metaformer {

namespace {

constexpr bool offline = true;

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

// Encodes a prompt as predict reads a text.
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

// A list from the largest number down.
std::string default_list(const ListTask& task) {
  std::string numbers;
  for (std::int64_t i = task.length - 1; i >= 0; --i)
    numbers += fmt::format("{}{}", i % task.digits + task.first_number(), i > 0 ? " " : "");
  return numbers;
}

// A source to translate; a list for a task of random symbols, which have no words.
std::string default_source(const SequenceToSequenceConfig& task) {
  if (const auto* symbols = synthetic_options(task.data.synthetic))
    return default_list({.length = symbols->length, .digits = symbols->symbols});
  if (task.data.path || task.data.source_language != "de") return "A man with a hat is standing next to a small dog.";
  return "Ein Mann mit einem Hut steht neben einem kleinen Hund.";
}

constexpr std::size_t short_text = 300;  // bytes: it fits into a page

// The first short text, else the shortest.
std::string text_of_table(const ExperimentConfig& config) {
  const auto texts = load_labelled_splits(labelled_data(config), offline)[Split::validation];
  const auto size = [](const LabelledText& text) { return std::max(text.text.size(), short_text); };
  return std::ranges::min_element(texts, {}, size)->text;
}

// The start of the validation split, as whole characters.
std::string start_of_text(const LoadedRun& run, const TextDataConfig& data) {
  constexpr std::int64_t most_tokens = 300;  // each has a byte at least, nearly always
  const auto held_out = [&] {
    if (!has_tokens(data)) return std::string(split_corpus(load_corpus(data, offline), data)[1]);
    const auto tokens = load_text(data, offline, run.codec.tokenizer).splits[1].tokens;
    return run.codec.tokenizer->decode(tokens.slice(0, std::min(most_tokens, tokens.size())));
  }();
  const std::string_view text = held_out;
  auto size = std::min(text.size(), short_text);
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return std::string(text.substr(0, size));
}

HeldOutTexts texts_of_pairs(const LoadedRun& run, const SequenceToSequenceConfig& task) {
  constexpr std::int64_t shown = 5;
  const auto dataset = load_pairs(run.experiment.config, offline, run.codec);
  const auto count = dataset->count(Split::validation), pairs = std::min(shown, count);
  HeldOutTexts texts;
  for (std::int64_t i = 0; i < pairs; ++i)  // in the middles of equal parts of the split
    texts.pairs.push_back(dataset->texts(Split::validation, (2 * i + 1) * count / (2 * pairs)));
  const bool has_words = synthetic_options(task.data.synthetic) == nullptr;
  if (has_words && pairs > 0) texts.text = texts.pairs[static_cast<std::size_t>(pairs / 2)].source;
  return texts;
}

}  // namespace

std::string prompt_for(const LoadedRun& run, const PromptOptions& options) {
  if (options.prompt) return *options.prompt;
  const auto& task = run.experiment.config.task;
  if (const auto lists = list_task(task)) return default_list(*lists);
  if (const auto* pairs = std::get_if<SequenceToSequenceConfig>(&task)) return default_source(*pairs);
  if (is<ClassificationConfig>(task)) return "This film was not as good as I had hoped, but the actors were great.";
  return default_prompt(*run.codec.tokenizer);
}

std::string written_target(const LoadedRun& run, const std::string& source) {
  return run.codec.tokenizer->decode(write_target(run, encode(run, target_answers(run, {}), source)).ids);
}

std::string answer(const LoadedRun& run, const PromptOptions& options) {
  const auto& task = run.experiment.config.task;
  const auto prompt = prompt_for(run, options);
  if (is<ClassificationConfig>(task)) return classify(run, prompt);
  if (is<SequenceToSequenceConfig>(task)) return "\n→ " + written_target(run, prompt);
  if (!continues_text(task)) fail_usage("a model of task {} cannot continue a text", kind_of(task));
  const auto ids = run.codec.tokenizer->encode(prompt);
  if (ids.empty()) fail_usage("the prompt holds no token");
  SamplingOptions sampling{.temperature = options.temperature, .seed = options.seed};
  const auto lists = list_task(task);
  if (!lists) return generate(run, ids, options.tokens, sampling);
  sampling.temperature = 0;
  return "\n→ " + generate(run, list_prompt(*lists, ids), lists->length, sampling);
}

HeldOutTexts held_out_texts(const LoadedRun& run) {
  const auto& config = run.experiment.config;
  if (is<ClassificationConfig>(config.task)) return {.text = text_of_table(config)};
  if (const auto* pairs = std::get_if<SequenceToSequenceConfig>(&config.task)) return texts_of_pairs(run, *pairs);
  if (const auto* data = text_data_of(config.task)) return {.text = start_of_text(run, *data)};
  return {};
}

}  // namespace metaformer
