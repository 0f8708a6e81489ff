#pragma once
// The whole experiment as plain data. Names, defaults, ranges and help of every config key are here, in the headers of
// its sections and nowhere else.

#include "config/model_config.h"
#include "config/task_config.h"
#include "config/train_config.h"

namespace metaformer {

struct ExperimentConfig {
  TaskConfig task;
  ModelConfig model;
  TrainConfig train;
};

// The section `data` of a task that has one.
struct DataSection {
  template <class Task>
  auto operator()(Task& task) const -> decltype((task.data)) {
    return task.data;
  }
};

// The section `train` that goes with a model.
struct TrainSection {
  TrainConfig& train;
  template <class Network>
  TrainConfig& operator()(Network&) const {
    return train;
  }
  LinearTrainConfig& operator()(LinearConfig&) const { return train; }
};

template <class Visitor>
void visit(Visitor& field, ExperimentConfig& c) {
  field("task", c.task, "what is learned");
  field.section_of("data", "task", c.task, DataSection{});
  field("model", c.model, "what learns it");
  field.section_of("train", "model", c.model, TrainSection{c.train});
}

// Shorter than std::get, which throws std::bad_variant_access for another kind.
inline const TransformerConfig& transformer(const ExperimentConfig& config) {
  return std::get<TransformerConfig>(config.model);
}
inline TransformerConfig& transformer(ExperimentConfig& config) { return std::get<TransformerConfig>(config.model); }
inline const ClassificationConfig& classification(const ExperimentConfig& config) {
  return std::get<ClassificationConfig>(config.task);
}
inline ClassificationConfig& classification(ExperimentConfig& config) {
  return std::get<ClassificationConfig>(config.task);
}
inline const LanguageModelConfig& language_model(const ExperimentConfig& config) {
  return std::get<LanguageModelConfig>(config.task);
}
inline LanguageModelConfig& language_model(ExperimentConfig& config) {
  return std::get<LanguageModelConfig>(config.task);
}

// Whether train.batch_size counts tokens.
inline bool batches_by_tokens(const TaskConfig& task) {
  const auto* pairs = std::get_if<SequenceToSequenceConfig>(&task);
  return pairs != nullptr && pairs->batch_unit == BatchUnit::token;
}

// Tokens of a training batch, at most.
inline std::int64_t most_batch_tokens(const ExperimentConfig& config) {
  return batches_by_tokens(config.task) ? config.train.batch_size : config.train.batch_size * context_of(config.model);
}

// What the task's data have in common with those of other tasks; nullptr for a task without texts.
inline DataConfig* data_of(ExperimentConfig& config) {
  return std::visit(
      [](auto& task) -> DataConfig* {
        if constexpr (requires { task.data; }) return &task.data;
        return nullptr;
      },
      config.task);
}
inline const DataConfig* data_of(const ExperimentConfig& config) {
  return std::visit(
      [](const auto& task) -> const DataConfig* {
        if constexpr (requires { task.data; }) return &task.data;
        return nullptr;
      },
      config.task);
}

}  // namespace metaformer
