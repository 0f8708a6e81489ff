#pragma once
// The course of the learning rate.

#include <cstdint>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

// From train.learning_rate down to a floor.
struct FallingScheduleConfig {
  std::int64_t warmup_steps = 100;
  double floor = 1e-4;
};

struct CosineScheduleConfig : FallingScheduleConfig {
  static constexpr std::string_view kind = "cosine";
  static constexpr std::string_view summary =
      "half a cosine from train.learning_rate to floor, which the step behind the last would have";
};

struct LinearScheduleConfig : FallingScheduleConfig {
  static constexpr std::string_view kind = "linear";
  static constexpr std::string_view summary =
      "a straight line from train.learning_rate to floor, which the step behind the last would have";
};

struct ConstantScheduleConfig {
  static constexpr std::string_view kind = "constant";
  static constexpr std::string_view summary = "train.learning_rate throughout";
  std::int64_t warmup_steps = 100;
};

struct InverseSqrtScheduleConfig {
  static constexpr std::string_view kind = "inverse_sqrt";
  static constexpr std::string_view summary = "train.learning_rate x sqrt(warmup_steps / step), steps from 0";
  std::int64_t warmup_steps = 100;
};

struct NoamScheduleConfig {
  static constexpr std::string_view kind = "noam";
  static constexpr std::string_view summary =
      "train.learning_rate / sqrt(model.width) x min(1 / sqrt(step), step / warmup_steps^1.5), steps from 1 (Vaswani "
      "et al. 2017)";
  std::int64_t warmup_steps = 100;
};

struct TrapezoidScheduleConfig : FallingScheduleConfig {
  static constexpr std::string_view kind = "trapezoid";
  static constexpr std::string_view summary =
      "train.learning_rate, then a straight line over the last decay_steps, of which the last has floor";
  std::int64_t decay_steps = 400;
};

using ScheduleConfig = std::variant<CosineScheduleConfig, LinearScheduleConfig, ConstantScheduleConfig,
                                    InverseSqrtScheduleConfig, NoamScheduleConfig, TrapezoidScheduleConfig>;

inline std::int64_t warmup_steps(const ScheduleConfig& schedule) {
  return std::visit([](const auto& options) { return options.warmup_steps; }, schedule);
}

template <class Visitor>
void visit_warmup(Visitor& field, std::int64_t& steps, std::int64_t fewest = 0) {
  field("warmup_steps", steps, between(static_cast<double>(fewest), most_steps), "steps of linear warm-up");
}

template <class Visitor>
void visit(Visitor& field, FallingScheduleConfig& c) {
  field("floor", c.floor, at_least(0),
        "learning rate at the end: of the last step (trapezoid) or the one behind it; default: 1e-4, or a tenth of a "
        "train.learning_rate below that");
  visit_warmup(field, c.warmup_steps);
}

template <class Visitor>
void visit(Visitor& field, ConstantScheduleConfig& c) {
  visit_warmup(field, c.warmup_steps);
}

template <class Visitor>
void visit(Visitor& field, InverseSqrtScheduleConfig& c) {
  visit_warmup(field, c.warmup_steps, 1);
}

template <class Visitor>
void visit(Visitor& field, NoamScheduleConfig& c) {
  visit_warmup(field, c.warmup_steps, 1);
}

template <class Visitor>
void visit(Visitor& field, TrapezoidScheduleConfig& c) {
  field("decay_steps", c.decay_steps, between(1, most_steps),
        "steps from train.learning_rate to floor; the last step of the training has it");
  visit(field, static_cast<FallingScheduleConfig&>(c));
}

}  // namespace metaformer
