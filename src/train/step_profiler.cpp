#include "train/step_profiler.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "core/log.h"

namespace metaformer {

namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

constexpr std::int64_t first_recorded = 10;  // by then allocators and caches have settled
constexpr std::int64_t most_recorded = 20;

std::set<ActivityType> activities(torch::Device device) {
  return device.is_cpu() ? std::set{ActivityType::CPU} : std::set{ActivityType::CPU, ActivityType::CUDA};
}

// Self time on the host: an event's time belongs to the innermost one that encloses it.
std::vector<OperatorTime> self_times(const std::vector<profiler::KinetoEvent>& events) {
  std::vector<const profiler::KinetoEvent*> order;
  for (const auto& event : events)
    if (event.deviceType() == torch::kCPU) order.push_back(&event);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::tuple(a->startThreadId(), a->startNs(), b->endNs()) <
           std::tuple(b->startThreadId(), b->startNs(), a->endNs());
  });
  std::map<std::string, OperatorTime> by_name;
  std::vector<const profiler::KinetoEvent*> open;
  const auto milliseconds = [](const profiler::KinetoEvent& event) {
    return static_cast<double>(event.durationNs()) * 1e-6;
  };
  for (const auto* event : order) {
    while (!open.empty() &&
           (open.back()->startThreadId() != event->startThreadId() || open.back()->endNs() <= event->startNs()))
      open.pop_back();
    auto& entry = by_name[event->name()];
    entry.name = event->name();
    ++entry.calls;
    entry.self_ms += milliseconds(*event);
    if (!open.empty()) by_name[open.back()->name()].self_ms -= milliseconds(*event);
    open.push_back(event);
  }
  std::vector<OperatorTime> operators;
  for (auto& [name, entry] : by_name) operators.push_back(std::move(entry));
  std::sort(operators.begin(), operators.end(), [](const auto& a, const auto& b) { return a.self_ms > b.self_ms; });
  return operators;
}

void log_table(const std::vector<OperatorTime>& operators, std::int64_t steps) {
  constexpr std::size_t most_shown = 25;
  double total = 0;
  for (const auto& entry : operators) total += entry.self_ms;
  const auto per_step = [&](double value) { return value / static_cast<double>(steps); };
  log::info("time by operator on the host over {} steps, {:.2f} ms a step while recording", steps, per_step(total));
  log::info("  {:<52} {:>10} {:>10} {:>7}", "operator", "calls/step", "ms/step", "share");
  for (std::size_t i = 0; i < std::min(most_shown, operators.size()); ++i)
    log::info("  {:<52} {:>10.1f} {:>10.3f} {:>6.1f}%", operators[i].name.substr(0, 52),
              per_step(static_cast<double>(operators[i].calls)), per_step(operators[i].self_ms),
              100 * operators[i].self_ms / total);
}

}  // namespace

StepProfiler::StepProfiler(std::filesystem::path trace_file, torch::Device device)
    : trace_file_(std::move(trace_file)), device_(device) {}

StepProfiler::~StepProfiler() {
  if (recording_) profiler::disableProfiler();
}

void StepProfiler::before_step(std::int64_t index) {
  if (index == first_recorded) start();
  if (index == first_recorded + most_recorded) finish();
  steps_ += recording_;
}

void StepProfiler::start() {
  // Without a GPU the profiler's own log reports an error on stderr that is none.
  if (device_.is_cpu()) ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities(device_));
  profiler::enableProfiler(config, activities(device_),
                           {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION});
  recording_ = true;
}

void StepProfiler::finish() {
  if (!recording_) {
    if (operators_.empty())
      log::warning("--profile: the run ended before step {}, where recording starts", first_recorded);
    return;
  }
  recording_ = false;
  const auto result = profiler::disableProfiler();
  operators_ = self_times(result->events());
  log_table(operators_, steps_);
  result->save(trace_file_.string());
  log::info("trace for chrome://tracing or ui.perfetto.dev: {}", trace_file_.string());
}

}  // namespace metaformer
