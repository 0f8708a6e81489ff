#include "config/derived_defaults.h"

#include <algorithm>

namespace metaformer {

namespace {

void lower_floor(ScheduleConfig& schedule, double learning_rate) {
  const auto lower = [&](auto& options) {
    if constexpr (requires { options.floor; })
      if (options.floor > learning_rate) options.floor = learning_rate / 10;
  };
  std::visit(lower, schedule);
}

void keep_whitespace(TokenizerOptions& tokenizer) {
  const auto keep = [](auto& options) {
    if constexpr (requires { options.whitespace; }) options.whitespace = Whitespace::kept;
  };
  std::visit(keep, tokenizer);
}

// Tables with a row for each word or n-gram, of which a batch reads few.
bool has_large_tables(const ExperimentConfig& config) {
  const auto* model = blocks_of(config.model);
  if (model != nullptr && (has_regions(model->embedding) || model->embedding.ngrams.order > 1)) return true;
  const auto* classifier = std::get_if<ClassificationConfig>(&config.task);
  return classifier != nullptr && bag_options(classifier->head) != nullptr;
}

// Whether rows are texts of different lengths, of which a batch has a fixed number.
bool is_padded(const TaskConfig& task) {
  return is<ClassificationConfig>(task) || (is<SequenceToSequenceConfig>(task) && !batches_by_tokens(task));
}

}  // namespace

EmbeddingScale default_embedding_scale(const ModelConfig& model) {
  const auto* blocks = blocks_of(model);
  const bool adds_sinusoids = blocks != nullptr && is<SinusoidalPositionsConfig>(blocks->positions);
  return adds_sinusoids && !has_regions(blocks->embedding) ? EmbeddingScale::sqrt_width : EmbeddingScale::none;
}

void set_embedding_scale(ModelConfig& model, EmbeddingScale scale) {
  const auto set = [&](auto& options) {
    if constexpr (requires { options.positions; }) options.embedding.scale = scale;
  };
  std::visit(set, model);
}

std::int64_t default_slices(const ExperimentConfig& config) {
  constexpr std::int64_t features = 384 * 128, most = 8, widest = 384;
  const auto width = width_of(config.model);
  if (is<LinearConfig>(config.model) || width > widest || has_large_tables(config)) return 1;
  const auto tokens = most_batch_tokens(config) / (is_padded(config.task) ? 4 : 1);
  return std::clamp<std::int64_t>(tokens * width / features, 1, most);
}

void derive_defaults(ExperimentConfig& config, const Provenance& provenance) {
  if (!provenance.contains("train.schedule.floor")) lower_floor(config.train.schedule, config.train.learning_rate);
  auto* next_token = std::get_if<LanguageModelConfig>(&config.task);
  if (next_token != nullptr && !provenance.contains("data.tokenizer.whitespace"))
    keep_whitespace(next_token->data.tokenizer);
  if (!provenance.contains("model.embedding.scale"))
    set_embedding_scale(config.model, default_embedding_scale(config.model));
  if (!provenance.contains("train.cpu_slices")) config.train.cpu_slices = default_slices(config);
}

}  // namespace metaformer
