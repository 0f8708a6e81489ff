#include "tasks/neighbouring_words_task.h"

#include <cmath>

#include "model/neighbour_model.h"
#include "tasks/text_data.h"
#include "tasks/text_streams.h"

namespace metaformer {

namespace {

// Of tokens that have a target, as in a language model: all but the last of a text.
torch::Tensor error_of(const torch::Tensor& error_bc1, const Batch& batch) {
  return error_bc1.squeeze(2).masked_fill(batch.targets_bc < 0, 0).sum();
}

class NeighbourObjective : public Objective {
 public:
  torch::Tensor loss(const torch::Tensor& error_bc1, const Batch& batch) const override {
    return error_of(error_bc1, batch);
  }
};

class NeighbourMetrics : public Metrics {
 public:
  void score(const torch::Tensor& error_bc1, const Batch& batch, ScoreSums& sums) const override {
    sums.add("loss", error_of(error_bc1, batch));
    sums.add("weight", batch.weight);
  }

  nlohmann::ordered_json report(const ScoreSums& sums, Split) const override {
    const double weight = sums.item("weight");
    return {{"loss", sums.item("loss") / weight}, {"tokens", static_cast<std::int64_t>(weight)}};
  }
};

// A frequent word says little of what it stands beside (Mikolov et al. 2013, "Distributed representations of words and
// phrases and their compositionality", section 2.3, which leaves out words with the probability that is here a weight).
class WordWeights : public ModelAdaptation {
 public:
  WordWeights(std::shared_ptr<const TaskText> text, double frequent_share)
      : text_(std::move(text)), frequent_share_(frequent_share) {}

  void before_training(SequenceModel& model) const override {
    const auto counts = text_->dataset.token_counts(Split::train);
    const auto all = static_cast<double>(text_->dataset.tokens(Split::train).size());
    std::vector<float> weights(static_cast<std::size_t>(text_->codec.tokenizer->vocabulary_size()), 1);
    for (std::size_t id = 0; id < counts.size(); ++id)
      if (const double share = static_cast<double>(counts[id]) / all; share > frequent_share_)
        weights[id] = static_cast<float>(std::sqrt(frequent_share_ / share));
    dynamic_cast<NeighbourModel&>(model).set_word_weights(torch::tensor(weights));
  }

 private:
  std::shared_ptr<const TaskText> text_;
  double frequent_share_;
};

}  // namespace

Task make_neighbouring_words_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto text = std::make_shared<const TaskText>(config, offline, std::move(codec));
  const auto frequent_share = std::get<NeighbouringWordsConfig>(config.task).frequent_share;
  return {.data = std::make_shared<TextData>(text),
          .batches = make_text_stream(config, {text, &text->dataset}),
          .objective = std::make_shared<NeighbourObjective>(),
          .metrics = std::make_shared<NeighbourMetrics>(),
          .adaptation = std::make_shared<WordWeights>(text, frequent_share)};
}

}  // namespace metaformer
