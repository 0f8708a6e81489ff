#include "bench/work_timer.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>

#include "base/signals.h"
#include "bench/timing.h"

namespace metaformer {

// From the start of `work` on the device to its end there; what the device did before is done.
static double milliseconds_between_events(torch::Device device, const std::function<void()>& work) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  c10::Event start(device.type(), c10::EventFlag::BACKEND_DEFAULT), end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  start.record(guard.getStream(device));
  work();
  end.record(guard.getStream(device));
  end.synchronize();
  return start.elapsedTime(end);
}

WorkTimer::WorkTimer(torch::Device device, std::function<void()> work, std::unique_ptr<DeviceGraph> graph)
    : device_(device), work_(std::move(work)) {
  if (graph != nullptr) record(std::move(graph));
  constexpr double measurement_ms = 1, most_calls = 1000;
  milliseconds_of_calls(1);  // the first call of a graph takes longer
  const double once = milliseconds_of_calls(1);
  calls_ = once > 0 ? static_cast<std::int64_t>(std::clamp(std::ceil(measurement_ms / once), 1.0, most_calls))
                    : static_cast<std::int64_t>(most_calls);
}

void WorkTimer::record(std::unique_ptr<DeviceGraph> graph) {
  try {
    graph->capture(work_);
    graph_ = std::move(graph);
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    problem_ = message.substr(0, message.find('\n'));
  }
}

double WorkTimer::milliseconds() { return milliseconds_of_calls(calls_); }

TimedBy WorkTimer::timed_by() const {
  if (graph_ != nullptr) return TimedBy::graph;
  return device_.is_cpu() ? TimedBy::clock : TimedBy::events;
}

double WorkTimer::milliseconds_of_calls(std::int64_t calls) {
  throw_if_stopped();
  const auto all = [&] {
    for (std::int64_t i = 0; i < calls; ++i) graph_ != nullptr ? graph_->replay() : work_();
  };
  const double ms = device_.is_cpu() ? milliseconds_of(device_, all) : milliseconds_between_events(device_, all);
  return ms / static_cast<double>(calls);
}

}  // namespace metaformer
