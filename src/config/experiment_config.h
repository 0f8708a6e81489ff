#pragma once
// The whole experiment as plain data. Names, defaults, ranges and help of every config key are here, in the headers of
// its sections and nowhere else.

#include "config/data_config.h"
#include "config/model_config.h"
#include "config/train_config.h"

namespace metaformer {

enum class TaskKind { language_model, classification, sort };
template <>
struct EnumNames<TaskKind> {
  static constexpr std::array<std::string_view, 3> values = {"language_model", "classification", "sort"};
};

struct ExperimentConfig {
  TaskKind task = TaskKind::language_model;
  DataConfig data;
  ModelConfig model;
  TrainConfig train;
};

template <class Visitor>
void visit(Visitor& field, ExperimentConfig& c) {
  field("task", c.task, "what is learned");
  field("data", c.data, "what it is learned from");
  field("model", c.model, "the network");
  field("train", c.train, "how it is trained");
}

}  // namespace metaformer
