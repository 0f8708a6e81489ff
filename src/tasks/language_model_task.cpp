#include "tasks/language_model_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/datasets/text_dataset.h"
#include "tasks/batches.h"
#include "tasks/text_streams.h"
#include "tasks/token_objective.h"

namespace metaformer {

namespace {

// The data that the parts of the task share.
struct Text {
  Text(const ExperimentConfig& given, bool offline, Codec given_codec)
      : config(given),
        corpus(load_corpus(language_model(given).data, offline)),
        codec(std::move(given_codec)),
        dataset(corpus, language_model(given).data, context_of(given.model), codec.tokenizer) {
    corpus.text = {};  // tokens are what is needed from here on
    corpus.held_out.reset();
    corpus.document_starts = corpus.held_out_document_starts = {};
  }

  // Nothing where the tokenizer has no unknown token. The unknown token is easy to predict: the metrics say how
  // frequent it is.
  std::optional<double> unknown_share(Split split) const {
    const auto unknown = codec.tokenizer->unknown_id();
    if (!unknown) return std::nullopt;
    const auto& tokens = dataset.tokens(split);
    return static_cast<double>(std::count(tokens.begin(), tokens.end(), *unknown)) / static_cast<double>(tokens.size());
  }

  double unknown_character_fraction(Split split) const {
    return static_cast<double>(dataset.unknown_characters(split)) / static_cast<double>(dataset.characters(split));
  }

  ExperimentConfig config;
  Corpus corpus;
  Codec codec;
  TextDataset dataset;
};

class LanguageModelMetrics : public Metrics {
 public:
  explicit LanguageModelMetrics(std::shared_ptr<const Text> text) : text_(std::move(text)) {}

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
    if (const auto share = text_->unknown_share(split)) {
      report["unknown_share"] = *share;
      report["unknown_character_fraction"] = text_->unknown_character_fraction(split);
    }
    return report;
  }

 private:
  std::shared_ptr<const Text> text_;
};

class TextData : public TaskData {
 public:
  explicit TextData(std::shared_ptr<const Text> text) : text_(std::move(text)) {}

  const Codec& codec() const override { return text_->codec; }

  nlohmann::ordered_json description() const override {
    auto description = text_->corpus.description;
    description["train_tokens"] = count(Split::train);
    description["validation_tokens"] = count(Split::validation);
    description["vocabulary"] = codec().tokenizer->vocabulary_size();
    return description;
  }

  std::string summary() const override {
    const auto share = text_->unknown_share(Split::validation);
    return fmt::format("{} ({} + {} tokens, vocabulary of {} tokens{})", text_->corpus.path.string(),
                       count(Split::train), count(Split::validation), codec().tokenizer->vocabulary_size(),
                       share ? fmt::format("; unknown in validation: {:.2f}% of tokens, {:.2f}% of characters",
                                           100 * *share, 100 * text_->unknown_character_fraction(Split::validation))
                             : "");
  }

 private:
  std::size_t count(Split split) const { return text_->dataset.tokens(split).size(); }

  std::shared_ptr<const Text> text_;
};

}  // namespace

Task make_language_model_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto text = std::make_shared<const Text>(config, offline, std::move(codec));
  return {.data = std::make_shared<TextData>(text),
          .batches = make_text_stream(config, {text, &text->dataset}),
          .objective = std::make_shared<TokenObjective>(),
          .metrics = std::make_shared<LanguageModelMetrics>(text)};
}

}  // namespace metaformer
