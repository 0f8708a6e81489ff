#include "tasks/language_model_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/make_model.h"
#include "tasks/batches.h"

namespace metaformer {

LanguageModelTask::LanguageModelTask(const ExperimentConfig& config, bool offline, Codec codec)
    : config_(config),
      corpus_(load_corpus(config.data, offline)),
      codec_(std::move(codec)),
      dataset_(corpus_, config.data, config.model.context, codec_.tokenizer) {
  corpus_.text = {};  // tokens are what is needed from here on
  corpus_.held_out.reset();
}

std::shared_ptr<SequenceModel> LanguageModelTask::make_model() const {
  return metaformer::make_model(config_, {.vocabulary = codec_.tokenizer->vocabulary_size()});
}

double LanguageModelTask::tokens_per_step() const {
  return static_cast<double>(config_.train.batch_size * config_.train.accumulate * config_.model.context);
}

double LanguageModelTask::epochs_per_step() const {
  return tokens_per_step() / static_cast<double>(dataset_.tokens(Split::train).size());
}

Batch LanguageModelTask::training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const {
  const auto rows = config_.train.batch_size;
  const auto starts = dataset_.random_starts(Split::train, static_cast<std::uint64_t>(config_.train.seed),
                                             RandomPurpose::batches, step, micro * rows, rows);
  return cut_windows(training_tokens(device), starts, config_.model.context);
}

const torch::Tensor& LanguageModelTask::training_tokens(torch::Device device) const {
  if (!training_tokens_.defined() || training_tokens_.device() != device) {
    const auto& tokens = dataset_.tokens(Split::train);
    training_tokens_ = torch::from_blob(const_cast<std::int32_t*>(tokens.data()),
                                        {static_cast<std::int64_t>(tokens.size())}, torch::kInt)
                           .to(device);
  }
  return training_tokens_;
}

LossSum LanguageModelTask::loss(SequenceModel& model, const Batch& batch) const {
  return {token_loss(model.forward(batch), batch.targets_bc), batch.weight};
}

std::int64_t LanguageModelTask::evaluation_batches(Split split) const {
  const auto rows = evaluation_rows(config_.model.context);
  return (dataset_.consecutive_window_count(split) + rows - 1) / rows;
}

Batch LanguageModelTask::evaluation_batch(Split split, std::int64_t index, torch::Device device) const {
  const auto rows = evaluation_rows(config_.model.context);
  return to_batch(dataset_.consecutive_windows(split, index * rows, rows), device);
}

Batch LanguageModelTask::random_batch(Split split, std::int64_t index, torch::Device device) const {
  return to_batch(dataset_.random_windows(split, static_cast<std::uint64_t>(config_.train.seed),
                                          RandomPurpose::evaluation, index, 0, config_.train.batch_size),
                  device);
}

void LanguageModelTask::score(SequenceModel& model, const Batch& batch, ScoreSums& sums) const {
  score_tokens(model.forward(batch), batch, sums);
}

nlohmann::ordered_json LanguageModelTask::metrics(const ScoreSums& sums, Split split) const {
  const double loss = sums.item("loss") / sums.weight;
  const double tokens_per_character =
      static_cast<double>(dataset_.tokens(split).size()) / static_cast<double>(dataset_.characters(split));
  nlohmann::ordered_json metrics = {{"loss", loss},
                                    {"perplexity", std::exp(loss)},
                                    {"bits_per_character", loss / std::numbers::ln2 * tokens_per_character},
                                    {"accuracy", sums.item("correct") / sums.weight},
                                    {"tokens", static_cast<std::int64_t>(sums.weight)}};
  // Unknown tokens are cheap to predict, so bits per character count what they stand for hardly at all.
  if (const auto share = unknown_share(split)) {
    metrics["unknown_share"] = *share;
    metrics["unknown_character_fraction"] = unknown_character_fraction(split);
  }
  return metrics;
}

double LanguageModelTask::unknown_character_fraction(Split split) const {
  return static_cast<double>(dataset_.unknown_characters(split)) / static_cast<double>(dataset_.characters(split));
}

std::optional<double> LanguageModelTask::unknown_share(Split split) const {
  const auto unknown = codec_.tokenizer->unknown_id();
  if (!unknown) return std::nullopt;
  const auto& tokens = dataset_.tokens(split);
  return static_cast<double>(std::count(tokens.begin(), tokens.end(), *unknown)) / static_cast<double>(tokens.size());
}

nlohmann::ordered_json LanguageModelTask::data_description() const {
  auto description = corpus_.description;
  description["train_tokens"] = dataset_.tokens(Split::train).size();
  description["validation_tokens"] = dataset_.tokens(Split::validation).size();
  description["vocabulary"] = codec_.tokenizer->vocabulary_size();
  return description;
}

std::string LanguageModelTask::data_summary() const {
  const auto share = unknown_share(Split::validation);
  return fmt::format("{} ({} + {} tokens, vocabulary of {} tokens{})", corpus_.path.string(),
                     dataset_.tokens(Split::train).size(), dataset_.tokens(Split::validation).size(),
                     codec_.tokenizer->vocabulary_size(),
                     share ? fmt::format("; unknown in validation: {:.2f}% of tokens, {:.2f}% of characters",
                                         100 * *share, 100 * unknown_character_fraction(Split::validation))
                           : "");
}

}  // namespace metaformer
