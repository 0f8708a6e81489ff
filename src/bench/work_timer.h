#pragma once
// How long work takes on a device: on a GPU between two events, as replays of a recorded graph where it can be
// recorded, so that the host's time to start it is not measured.

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>

#include "config/schema.h"
#include "ops/device_graph.h"

namespace metaformer {

enum class TimedBy { clock, events, graph };
template <>
struct EnumNames<TimedBy> {
  static constexpr std::array<std::string_view, 3> values = {"clock", "events", "graph"};
};

class WorkTimer {
 public:
  // Records `work`, which must have run before, in `graph`; a nullptr, or a recording that fails, leaves events, on the
  // CPU the clock. Then runs it to see how many calls take a millisecond. Tensors that work makes may lie in the memory
  // of the graph.
  WorkTimer(torch::Device device, std::function<void()> work, std::unique_ptr<DeviceGraph> graph = nullptr);

  // Of one call, as the mean of calls_per_measurement(). Throws Interrupted.
  double milliseconds();

  TimedBy timed_by() const;
  std::int64_t calls_per_measurement() const { return calls_; }
  const std::string& recording_problem() const { return problem_; }  // "": there is none

 private:
  void record(std::unique_ptr<DeviceGraph> graph);
  double milliseconds_of_calls(std::int64_t calls);

  torch::Device device_;
  std::function<void()> work_;
  std::unique_ptr<DeviceGraph> graph_;
  std::string problem_;
  std::int64_t calls_ = 1;
};

}  // namespace metaformer
