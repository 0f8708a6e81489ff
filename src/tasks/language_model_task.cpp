#include "tasks/language_model_task.h"

#include <cmath>
#include <numbers>

#include "tasks/batches.h"
#include "tasks/text_data.h"
#include "tasks/text_streams.h"
#include "tasks/token_objective.h"

namespace metaformer {

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
    if (const auto share = text_->unknown_share(split)) {
      report["unknown_share"] = *share;
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
