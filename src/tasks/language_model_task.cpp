#include "tasks/language_model_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tasks/batches.h"
#include "tasks/text_streams.h"

namespace metaformer {

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

namespace {

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

}  // namespace

Task make_language_model_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto text = std::make_shared<const TaskText>(config, offline, std::move(codec));
  return {.data = std::make_shared<TextData>(text),
          .batches = make_text_stream(config, {text, &text->dataset}),
          .objective = std::make_shared<TokenObjective>(),
          .metrics = std::make_shared<LanguageModelMetrics>(text)};
}

}  // namespace metaformer
