#pragma once
// The course of the learning rate.

#include <cstdint>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

// From train.learning_rate down to the floor at the last step.
struct FallingScheduleConfig {
  std::int64_t warmup_steps = 100;
  double floor = 1e-4;
};

struct CosineScheduleConfig : FallingScheduleConfig {
  static constexpr std::string_view kind = "cosine";
  static constexpr std::string_view summary = "half a cosine from train.learning_rate to floor";
};

struct LinearScheduleConfig : FallingScheduleConfig {
  static constexpr std::string_view kind = "linear";
  static constexpr std::string_view summary = "a straight line from train.learning_rate to floor";
};

struct ConstantScheduleConfig {
  static constexpr std::string_view kind = "constant";
  static constexpr std::string_view summary = "train.learning_rate throughout";
  std::int64_t warmup_steps = 100;
};

using ScheduleConfig = std::variant<CosineScheduleConfig, LinearScheduleConfig, ConstantScheduleConfig>;

inline std::int64_t warmup_steps(const ScheduleConfig& schedule) {
  return std::visit([](const auto& options) { return options.warmup_steps; }, schedule);
}

template <class Visitor>
void visit_warmup(Visitor& field, std::int64_t& steps) {
  field("warmup_steps", steps, between(0, most_steps), "steps of linear warm-up");
}

template <class Visitor>
void visit(Visitor& field, FallingScheduleConfig& c) {
  field("floor", c.floor, at_least(0), "learning rate at the last step");
  visit_warmup(field, c.warmup_steps);
}

template <class Visitor>
void visit(Visitor& field, ConstantScheduleConfig& c) {
  visit_warmup(field, c.warmup_steps);
}

}  // namespace metaformer
