// The tasks over a text: predicting its next token, and predicting hidden tokens from those on both sides of them.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>

#include "data/text_dataset.h"
#include "tasks/batches.h"
#include "tasks/make_task.h"
#include "tasks/text_streams.h"

namespace metaformer {

namespace {

// What the parts of a task over a text share.
struct TaskText {
  // Errors: those of load_corpus and TextDataset. An empty codec is made from the text.
  TaskText(const ExperimentConfig& config, bool offline, Codec given_codec)
      : corpus(load_corpus(*text_data_of(config.task), offline)),
        codec(std::move(given_codec)),
        dataset(corpus, *text_data_of(config.task), context_of(config.model), codec.tokenizer) {
    corpus.text = {};  // tokens are what is needed from here on
    corpus.held_out.reset();
    corpus.document_starts = corpus.held_out_document_starts = {};
  }

  // Nothing where the tokenizer has no unknown token. The unknown token is easy to predict: the measures say how
  // frequent it is.
  std::optional<double> unknown_token_fraction(Split split) const {
    const auto unknown = codec.tokenizer->unknown_id();
    if (!unknown) return std::nullopt;
    const auto& tokens = dataset.tokens(split);
    return static_cast<double>(std::count(tokens.begin(), tokens.end(), *unknown)) / static_cast<double>(tokens.size());
  }

  // Nor where white space is dropped.
  std::optional<double> unknown_character_fraction(Split split) const {
    const auto unknown = dataset.unknown_characters(split);
    if (!unknown || !codec.tokenizer->unknown_id()) return std::nullopt;
    return static_cast<double>(*unknown) / static_cast<double>(dataset.characters(split));
  }

  Corpus corpus;  // without its text
  Codec codec;
  TextDataset dataset;
};

// Without batches and measures.
Task task_over(const std::shared_ptr<const TaskText>& text) {
  const auto vocabulary = text->codec.tokenizer->vocabulary_size();
  const auto train_tokens = text->dataset.tokens(Split::train).size(),
             validation_tokens = text->dataset.tokens(Split::validation).size();
  auto description = text->corpus.description;
  description["train_tokens"] = train_tokens;
  description["validation_tokens"] = validation_tokens;
  description["vocabulary"] = vocabulary;
  const auto tokens = text->unknown_token_fraction(Split::validation);
  const auto characters = text->unknown_character_fraction(Split::validation);
  return {.codec = {text, &text->codec},
          .description = std::move(description),
          .summary = fmt::format("{} ({} + {} tokens, vocabulary of {} tokens{}{})", text->corpus.path.string(),
                                 train_tokens, validation_tokens, vocabulary,
                                 tokens ? fmt::format("; unknown in validation: {:.2f}% of tokens", 100 * *tokens) : "",
                                 characters ? fmt::format(", {:.2f}% of characters", 100 * *characters) : ""),
          .batches = nullptr,
          .objective = token_objective(),
          .measures = nullptr};
}

}  // namespace

Task make_language_model_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto text = std::make_shared<const TaskText>(config, offline, std::move(codec));
  auto task = task_over(text);
  task.batches = make_text_stream(config, {text, &text->dataset});
  const auto report = [text](const TokenScores& scores, Split split) {
    const auto& dataset = text->dataset;
    const double tokens_per_character =
        static_cast<double>(dataset.tokens(split).size()) / static_cast<double>(dataset.characters(split));
    Scores report = {{"loss", scores.loss},
                     {"perplexity", std::exp(scores.loss)},
                     {"bits_per_character", scores.loss / std::numbers::ln2 * tokens_per_character},
                     {"accuracy", scores.accuracy},
                     {"tokens", scores.targets}};
    // Unknown tokens are cheap to predict, so bits per character count what they stand for hardly at all.
    if (const auto fraction = text->unknown_token_fraction(split)) {
      report.emplace_back("unknown_share", *fraction);
      report.emplace_back("unknown_character_fraction", *text->unknown_character_fraction(split));
    }
    return report;
  };
  task.measures = std::make_shared<TokenMeasures>(report, std::vector<std::string>{}, /*by_row=*/false);
  return task;
}

Task make_masked_language_model_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto text = std::make_shared<const TaskText>(config, offline, std::move(codec));
  auto task = task_over(text);
  task.batches = make_masked_stream(config, {text, &text->dataset}, *text->codec.tokenizer);
  const std::array<double, 2> unigram_entropy = {text->dataset.unigram_entropy(Split::train),
                                                 text->dataset.unigram_entropy(Split::validation)};
  const auto report = [text, unigram_entropy](const TokenScores& scores, Split split) {
    Scores report = {{"loss", scores.loss},
                     {"perplexity", std::exp(scores.loss)},
                     {"accuracy", scores.accuracy},
                     {"targets", scores.targets},
                     {"unigram_entropy", unigram_entropy.at(static_cast<std::size_t>(split))}};
    if (const auto share = text->unknown_token_fraction(split)) report.emplace_back("unknown_share", *share);
    return report;
  };
  task.measures = std::make_shared<TokenMeasures>(report, std::vector<std::string>{"accuracy"}, /*by_row=*/false);
  return task;
}

}  // namespace metaformer
