#include "tasks/language_model_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/datasets/text_dataset.h"
#include "tasks/batches.h"
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

// Windows of the text. Training windows are drawn at random: an epoch is as many tokens as the split has.
class WindowStream : public BatchStream {
 public:
  explicit WindowStream(std::shared_ptr<const Text> text)
      : text_(std::move(text)), config_(text_->config), dataset_(text_->dataset) {}

  double tokens_per_step() const override {
    return static_cast<double>(config_.train.batch_size * config_.train.accumulate * context_of(config_.model));
  }

  double epochs_per_step() const override {
    return tokens_per_step() / static_cast<double>(dataset_.tokens(Split::train).size());
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    const auto rows = config_.train.batch_size;
    const auto starts = dataset_.random_starts(Split::train, seed(), RandomPurpose::batches, step, micro * rows, rows);
    return cut_windows(training_tokens(device), starts, context_of(config_.model));
  }

  std::int64_t evaluation_batches(Split split) const override {
    const auto rows = evaluation_rows(context_of(config_.model));
    return (dataset_.consecutive_window_count(split) + rows - 1) / rows;
  }

  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto rows = evaluation_rows(context_of(config_.model));
    return to_batch(dataset_.consecutive_windows(split, index * rows, rows), device);
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    return to_batch(
        dataset_.random_windows(split, seed(), RandomPurpose::evaluation, index, 0, config_.train.batch_size), device);
  }

 private:
  std::uint64_t seed() const { return static_cast<std::uint64_t>(config_.train.seed); }

  const torch::Tensor& training_tokens(torch::Device device) const {
    if (!training_tokens_.defined() || training_tokens_.device() != device) {
      const auto& tokens = dataset_.tokens(Split::train);
      training_tokens_ = torch::from_blob(const_cast<std::int32_t*>(tokens.data()),
                                          {static_cast<std::int64_t>(tokens.size())}, torch::kInt)
                             .to(device);
    }
    return training_tokens_;
  }

  std::shared_ptr<const Text> text_;
  const ExperimentConfig& config_;
  const TextDataset& dataset_;
  // int, where batches were last asked for; on the CPU the dataset's own memory
  mutable torch::Tensor training_tokens_;
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
          .batches = std::make_shared<WindowStream>(text),
          .objective = std::make_shared<TokenObjective>(),
          .metrics = std::make_shared<LanguageModelMetrics>(text)};
}

}  // namespace metaformer
