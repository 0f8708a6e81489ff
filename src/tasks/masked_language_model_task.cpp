#include "tasks/masked_language_model_task.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/masking.h"
#include "tasks/batches.h"
#include "tasks/language_model_task.h"
#include "tasks/text_streams.h"

namespace metaformer {

namespace {

const MaskedLanguageModelConfig& task_of(const ExperimentConfig& config) {
  return std::get<MaskedLanguageModelConfig>(config.task);
}

// Rows become batches of which some tokens are hidden.
class MaskedBatches {
 public:
  MaskedBatches(const ExperimentConfig& config, const Tokenizer& tokenizer)
      : seed_(static_cast<std::uint64_t>(config.train.seed)), masking_(task_of(config), tokenizer) {}

  Batch training(TokenRows rows, const std::vector<TextPack>& packs, std::int64_t step, std::int64_t first_row,
                 torch::Device device) const {
    masking_.mask_for_training(rows, packs, seed_, step, first_row);
    if (device.is_cuda()) masking_.pad_places(rows);  // a step of another shape is not replayed as a graph
    return to_batch(rows, device);
  }

  Batch evaluation(TokenRows rows, const std::vector<TextPack>& packs, Split split, torch::Device device) const {
    masking_.mask_for_evaluation(rows, packs, split);
    return to_batch(rows, device);
  }

 private:
  std::uint64_t seed_;
  Masking masking_;
};

class MaskedWindows : public TextStream {
 public:
  MaskedWindows(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset, const Tokenizer& tokenizer)
      : TextStream(config, std::move(dataset)), masked_(config, tokenizer) {}

  double epochs_per_step() const override {
    return tokens_per_step() / static_cast<double>(dataset().tokens(Split::train).size());
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    const auto first_row = micro * rows();
    const auto windows = random_windows(Split::train, RandomPurpose::batches, step, first_row);
    return masked_.training(rows_of(Split::train, windows), windows, step, first_row, device);
  }

  std::int64_t evaluation_batches(Split split) const override {
    const auto of_batch = evaluation_rows(context()) * context();
    return (size(split) + of_batch - 1) / of_batch;
  }

  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto first = index * evaluation_rows(context()) * context();
    const auto last = std::min(first + evaluation_rows(context()) * context(), size(split));
    std::vector<TextPack> windows;
    for (auto start = first; start < last; start += context())
      windows.push_back({{.start = start, .length = std::min(context(), last - start)}});
    return masked_.evaluation(rows_of(split, windows), windows, split, device);
  }

  std::int64_t evaluation_tokens(Split split, std::int64_t index) const override {
    const auto of_batch = evaluation_rows(context()) * context();
    return std::min(of_batch, size(split) - index * of_batch);
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    const auto windows = random_windows(split, RandomPurpose::evaluation, index, 0);
    return masked_.evaluation(rows_of(split, windows), windows, split, device);
  }

 private:
  std::int64_t size(Split split) const { return std::ssize(dataset().tokens(split)); }

  std::vector<TextPack> random_windows(Split split, RandomPurpose purpose, std::int64_t step,
                                       std::int64_t first) const {
    std::vector<TextPack> windows;
    for (const auto start : dataset().random_starts(split, seed(), purpose, step, first, rows()))
      windows.push_back({{.start = start, .length = context()}});
    return windows;
  }

  // Segments are documents, if these are separate, and what they leave empty is padding.
  TokenRows rows_of(Split split, const std::vector<TextPack>& windows) const {
    auto rows = dataset().rows_of(split, windows, /*separate=*/false);
    const auto& documents = dataset().documents(split);
    for (std::size_t row = 0; row < windows.size() && !documents.empty(); ++row) {
      const auto& window = windows[row].front();
      const auto first = documents.begin() + window.start;
      std::copy(first, first + window.length, rows.segments.begin() + static_cast<std::int64_t>(row) * rows.length);
    }
    const bool all_one =
        std::all_of(rows.segments.begin(), rows.segments.end(), [](auto segment) { return segment == 0; });
    if (documents.empty() && all_one) rows.segments.clear();
    return rows;
  }

  MaskedBatches masked_;
};

class MaskedDocuments : public DocumentStream {
 public:
  MaskedDocuments(const ExperimentConfig& config, const std::shared_ptr<const TextDataset>& dataset,
                  const Tokenizer& tokenizer)
      : DocumentStream(config, dataset,
                       {dataset->pieces(Split::train, context_of(config.model)),
                        dataset->pieces(Split::validation, context_of(config.model))}),
        masked_(config, tokenizer) {}

 private:
  Batch training(const std::vector<TextPack>& packs, std::int64_t step, std::int64_t first_row,
                 torch::Device device) const override {
    return masked_.training(dataset().rows_of(Split::train, packs, options().separate), packs, step, first_row, device);
  }

  Batch evaluation(const std::vector<TextPack>& packs, Split split, torch::Device device) const override {
    return masked_.evaluation(dataset().rows_of(split, packs, /*separate=*/true), packs, split, device);
  }

  MaskedBatches masked_;
};

}  // namespace

std::shared_ptr<const BatchStream> make_masked_stream(const ExperimentConfig& config,
                                                      std::shared_ptr<const TextDataset> dataset,
                                                      const Tokenizer& tokenizer) {
  if (packing_options(task_of(config).data.packing) != nullptr)
    return std::make_shared<MaskedDocuments>(config, std::move(dataset), tokenizer);
  return std::make_shared<MaskedWindows>(config, std::move(dataset), tokenizer);
}

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
    if (const auto fraction = text_->unknown_token_fraction(split)) report["unknown_share"] = *fraction;
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
