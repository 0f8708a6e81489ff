#include "tasks/masked_language_model_task.h"

#include <array>
#include <cmath>

#include "tasks/batches.h"
#include "tasks/masked_streams.h"
#include "tasks/text_data.h"
#include "tasks/token_objective.h"

namespace metaformer {

namespace {

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
    if (const auto share = text_->unknown_share(split)) report["unknown_share"] = *share;
    return report;
  }

  std::vector<std::string> headline() const override { return {"accuracy"}; }

 private:
  std::shared_ptr<const TaskText> text_;
  std::array<double, 2> unigram_entropy_;  // by Split
};

}  // namespace

Task make_masked_language_model_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto text = std::make_shared<const TaskText>(config, offline, std::move(codec));
  return {.data = std::make_shared<TextData>(text),
          .batches = make_masked_stream(config, {text, &text->dataset}, *text->codec.tokenizer),
          .objective = std::make_shared<TokenObjective>(),
          .metrics = std::make_shared<MaskedLanguageModelMetrics>(text)};
}

}  // namespace metaformer
