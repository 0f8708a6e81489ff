#include "train/language_model_task.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/gpt.h"

namespace metaformer {

namespace {

torch::Tensor to_tensor(std::vector<std::int64_t>& values, std::int64_t rows, torch::Device device) {
  const auto columns = static_cast<std::int64_t>(values.size()) / rows;
  return torch::from_blob(values.data(), {rows, columns}, torch::kLong).clone().to(device);
}

Batch to_batch(TokenRows rows, torch::Device device) {
  Batch batch;
  batch.ids_bc = to_tensor(rows.ids, rows.rows, device);
  batch.targets_bc = to_tensor(rows.targets, rows.rows, device);
  batch.weight = static_cast<double>(rows.target_count);
  return batch;
}

// Cross-entropy is computed in float32 at least.
torch::Tensor widened(const torch::Tensor& logits) {
  const bool narrow = logits.scalar_type() == torch::kBFloat16 || logits.scalar_type() == torch::kHalf;
  return narrow ? logits.to(torch::kFloat) : logits;
}

torch::Tensor summed_cross_entropy(const torch::Tensor& logits_bcv, const torch::Tensor& targets_bc) {
  return at::cross_entropy_loss(widened(logits_bcv).flatten(0, 1), targets_bc.flatten(), {}, at::Reduction::Sum,
                                /*ignore_index=*/-1);
}

}  // namespace

LanguageModelTask::LanguageModelTask(const ExperimentConfig& config, bool offline, std::unique_ptr<Tokenizer> tokenizer)
    : config_(config),
      corpus_(load_corpus(config.data, offline)),
      dataset_(corpus_, config.data, config.model.context, std::move(tokenizer)) {
  corpus_.text = {};  // tokens are what is needed from here on
}

std::shared_ptr<SequenceModel> LanguageModelTask::make_model() const {
  return std::make_shared<Gpt>(config_.model, tokenizer().vocabulary_size());
}

std::int64_t LanguageModelTask::tokens_per_step() const {
  return config_.train.batch_size * config_.train.accumulate * config_.model.context;
}

Batch LanguageModelTask::training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const {
  const auto rows = config_.train.batch_size;
  return to_batch(dataset_.random_windows(Split::train, static_cast<std::uint64_t>(config_.train.seed),
                                          RandomPurpose::batches, step, micro * rows, rows),
                  device);
}

LossSum LanguageModelTask::loss(SequenceModel& model, const Batch& batch) const {
  return {summed_cross_entropy(model.forward(batch), batch.targets_bc), batch.weight};
}

// As many rows as make about 8,192 tokens: large enough to be efficient, small enough for any memory.
std::int64_t LanguageModelTask::evaluation_rows() const {
  constexpr std::int64_t tokens = 8192;
  return std::max<std::int64_t>(1, tokens / config_.model.context);
}

std::int64_t LanguageModelTask::evaluation_batches(Split split) const {
  return (dataset_.consecutive_window_count(split) + evaluation_rows() - 1) / evaluation_rows();
}

Batch LanguageModelTask::evaluation_batch(Split split, std::int64_t index, torch::Device device) const {
  return to_batch(dataset_.consecutive_windows(split, index * evaluation_rows(), evaluation_rows()), device);
}

Batch LanguageModelTask::random_batch(Split split, std::int64_t index, torch::Device device) const {
  return to_batch(dataset_.random_windows(split, static_cast<std::uint64_t>(config_.train.seed),
                                          RandomPurpose::evaluation, index, 0, config_.train.batch_size),
                  device);
}

void LanguageModelTask::score(SequenceModel& model, const Batch& batch, ScoreSums& sums) const {
  const auto logits_bcv = model.forward(batch);
  const auto loss = summed_cross_entropy(logits_bcv, batch.targets_bc).to(torch::kDouble);
  const auto correct = (logits_bcv.argmax(2) == batch.targets_bc).sum().to(torch::kDouble);
  sums.loss = sums.loss.defined() ? sums.loss + loss : loss;
  sums.correct = sums.correct.defined() ? sums.correct + correct : correct;
  sums.weight += batch.weight;
}

nlohmann::ordered_json LanguageModelTask::metrics(const ScoreSums& sums, Split split) const {
  const double loss = sums.loss.item<double>() / sums.weight;
  const double tokens_per_character =
      static_cast<double>(dataset_.tokens(split).size()) / static_cast<double>(dataset_.characters(split));
  return {{"loss", loss},
          {"perplexity", std::exp(loss)},
          {"bits_per_character", loss / std::numbers::ln2 * tokens_per_character},
          {"accuracy", sums.correct.item<double>() / sums.weight},
          {"tokens", static_cast<std::int64_t>(sums.weight)}};
}

nlohmann::ordered_json LanguageModelTask::data_description() const {
  return {{"path", corpus_.path.string()},
          {"sha256", corpus_.sha256},
          {"train_tokens", dataset_.tokens(Split::train).size()},
          {"validation_tokens", dataset_.tokens(Split::validation).size()},
          {"vocabulary", tokenizer().vocabulary_size()}};
}

}  // namespace metaformer
