#pragma once
// What a training does when its numbers are not finite, or when a gradient is far larger than those before.

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

struct StopConfig {
  static constexpr std::string_view kind = "stop";
  static constexpr std::string_view summary = "end with exit code 4";
};

struct RollbackConfig {
  static constexpr std::string_view kind = "rollback";
  static constexpr std::string_view summary = "go back to the last good checkpoint with a lower learning rate";
  double factor = 0.5;
  std::int64_t limit = 3;
};

using DivergenceAction = std::variant<StopConfig, RollbackConfig>;

enum class SpikeAction { warn, skip };
template <>
struct EnumNames<SpikeAction> {
  static constexpr std::array<std::string_view, 2> values = {"warn", "skip"};
};

struct SpikesConfig {
  double threshold = 0;
  SpikeAction action = SpikeAction::warn;
};

struct DivergenceConfig {
  DivergenceAction action;
  SpikesConfig spikes;
};

// What every rollback multiplies the learning rate by.
inline double rollback_factor(const DivergenceConfig& divergence) {
  const auto* rollback = std::get_if<RollbackConfig>(&divergence.action);
  return rollback == nullptr ? 1 : rollback->factor;
}

template <class Visitor>
void visit(Visitor&, StopConfig&) {}

template <class Visitor>
void visit(Visitor& field, RollbackConfig& c) {
  field("factor", c.factor, Range{.low = 0, .high = 1, .low_open = true},
        "every rollback multiplies the learning rate by it");
  field("limit", c.limit, between(1, 1000), "rollbacks before giving up with exit code 4");
}

template <class Visitor>
void visit(Visitor& field, SpikesConfig& c) {
  field("threshold", c.threshold, between(0, 1e6),
        "standard deviations above its running mean from which a log gradient norm is a spike; 0: never");
  field("action", c.action, "warn, or skip the step's update too");
}

template <class Visitor>
void visit(Visitor& field, DivergenceConfig& c) {
  field("action", c.action, "when loss, gradients or weights are not finite");
  field("spikes", c.spikes, "gradients far larger than those before");
}

}  // namespace metaformer
