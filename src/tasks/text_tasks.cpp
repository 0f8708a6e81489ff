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
  TaskText(const ExperimentConfig& given, bool offline, Codec given_codec);

  // Nothing where the tokenizer has no unknown token. The unknown token is easy to predict: the metrics say how
  // frequent it is.
  std::optional<double> unknown_token_fraction(Split split) const;
  // Nor where white space is dropped.
  std::optional<double> unknown_character_fraction(Split split) const;

  ExperimentConfig config;
  Corpus corpus;  // without its text
  Codec codec;
  TextDataset dataset;
};

class TextData : public TaskData {
 public:
  explicit TextData(std::shared_ptr<const TaskText> text) : text_(std::move(text)) {}

  const Codec& codec() const override { return text_->codec; }
  nlohmann::ordered_json description() const override;
  std::string summary() const override;

 private:
  std::size_t count(Split split) const { return text_->dataset.tokens(split).size(); }

  std::shared_ptr<const TaskText> text_;
};

TaskText::TaskText(const ExperimentConfig& given, bool offline, Codec given_codec)
    : config(given),
      corpus(load_corpus(*text_data_of(given.task), offline)),
      codec(std::move(given_codec)),
      dataset(corpus, *text_data_of(given.task), context_of(given.model), codec.tokenizer) {
  corpus.text = {};  // tokens are what is needed from here on
  corpus.held_out.reset();
  corpus.document_starts = corpus.held_out_document_starts = {};
}

std::optional<double> TaskText::unknown_token_fraction(Split split) const {
  const auto unknown = codec.tokenizer->unknown_id();
  if (!unknown) return std::nullopt;
  const auto& tokens = dataset.tokens(split);
  return static_cast<double>(std::count(tokens.begin(), tokens.end(), *unknown)) / static_cast<double>(tokens.size());
}

std::optional<double> TaskText::unknown_character_fraction(Split split) const {
  const auto unknown = dataset.unknown_characters(split);
  if (!unknown || !codec.tokenizer->unknown_id()) return std::nullopt;
  return static_cast<double>(*unknown) / static_cast<double>(dataset.characters(split));
}

nlohmann::ordered_json TextData::description() const {
  auto description = text_->corpus.description;
  description["train_tokens"] = count(Split::train);
  description["validation_tokens"] = count(Split::validation);
  description["vocabulary"] = codec().tokenizer->vocabulary_size();
  return description;
}

std::string TextData::summary() const {
  const auto tokens = text_->unknown_token_fraction(Split::validation);
  const auto characters = text_->unknown_character_fraction(Split::validation);
  return fmt::format("{} ({} + {} tokens, vocabulary of {} tokens{}{})", text_->corpus.path.string(),
                     count(Split::train), count(Split::validation), codec().tokenizer->vocabulary_size(),
                     tokens ? fmt::format("; unknown in validation: {:.2f}% of tokens", 100 * *tokens) : "",
                     characters ? fmt::format(", {:.2f}% of characters", 100 * *characters) : "");
}

class LanguageModelMetrics : public Metrics {
 public:
  explicit LanguageModelMetrics(std::shared_ptr<const TaskText> text) : text_(std::move(text)) {}

  void score(const torch::Tensor& logits_bcv, const Batch& batch, ScoreSums& sums) const override {
    score_tokens(logits_bcv, batch, sums);
  }

  nlohmann::ordered_json report(const ScoreSums& sums, Split split) const override {
    const double weight = sums.item("weight"), loss = sums.item("loss") / weight;
    const auto& dataset = text_->dataset;
    const double tokens_per_character =
        static_cast<double>(dataset.tokens(split).size()) / static_cast<double>(dataset.characters(split));
    nlohmann::ordered_json report = {{"loss", loss},
                                     {"perplexity", std::exp(loss)},
                                     {"bits_per_character", loss / std::numbers::ln2 * tokens_per_character},
                                     {"accuracy", sums.item("correct") / weight},
                                     {"tokens", static_cast<std::int64_t>(weight)}};
    // Unknown tokens are cheap to predict, so bits per character count what they stand for hardly at all.
    if (const auto fraction = text_->unknown_token_fraction(split)) {
      report["unknown_share"] = *fraction;
      report["unknown_character_fraction"] = *text_->unknown_character_fraction(split);
    }
    return report;
  }

 private:
  std::shared_ptr<const TaskText> text_;
};

class MaskedLanguageModelMetrics : public Metrics {
 public:
  explicit MaskedLanguageModelMetrics(std::shared_ptr<const TaskText> text)
      : text_(std::move(text)),
        unigram_entropy_(
            {text_->dataset.unigram_entropy(Split::train), text_->dataset.unigram_entropy(Split::validation)}) {}

  void score(const torch::Tensor& logits_tv, const Batch& batch, ScoreSums& sums) const override {
    score_tokens(logits_tv, batch, sums);
  }

  nlohmann::ordered_json report(const ScoreSums& sums, Split split) const override {
    const double targets = sums.item("weight"), loss = sums.item("loss") / targets;
    nlohmann::ordered_json report = {{"loss", loss},
                                     {"perplexity", std::exp(loss)},
                                     {"accuracy", sums.item("correct") / targets},
                                     {"targets", static_cast<std::int64_t>(targets)},
                                     {"unigram_entropy", unigram_entropy_.at(static_cast<std::size_t>(split))}};
    if (const auto share = text_->unknown_token_fraction(split)) report["unknown_share"] = *share;
    return report;
  }

  std::vector<std::string> headline() const override { return {"accuracy"}; }

 private:
  std::shared_ptr<const TaskText> text_;
  std::array<double, 2> unigram_entropy_;  // by Split
};

}  // namespace

Task make_language_model_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto text = std::make_shared<const TaskText>(config, offline, std::move(codec));
  return {.data = std::make_shared<TextData>(text),
          .batches = make_text_stream(config, {text, &text->dataset}),
          .objective = std::make_shared<TokenObjective>(),
          .metrics = std::make_shared<LanguageModelMetrics>(text)};
}

Task make_masked_language_model_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto text = std::make_shared<const TaskText>(config, offline, std::move(codec));
  return {.data = std::make_shared<TextData>(text),
          .batches = make_masked_stream(config, {text, &text->dataset}, *text->codec.tokenizer),
          .objective = std::make_shared<TokenObjective>(),
          .metrics = std::make_shared<MaskedLanguageModelMetrics>(text)};
}

}  // namespace metaformer
