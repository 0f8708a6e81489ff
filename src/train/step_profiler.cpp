#include "train/step_profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "base/files.h"
#include "base/log.h"

namespace metaformer {

namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

constexpr std::int64_t first_recorded = 10;  // by then allocators and caches have settled
constexpr std::int64_t most_recorded = 20;
constexpr const char* profiled_event = "training step";

using Event = profiler::KinetoEvent;

// Events on the host that began during a step, but not the steps themselves; by thread and time, the enclosing first.
std::vector<const Event*> events_in_steps(const std::vector<Event>& events) {
  std::vector<const Event*> steps, inside;
  for (const auto& event : events)
    if (event.name() == profiled_event) steps.push_back(&event);
  for (const auto& event : events) {
    const auto encloses = [&](const Event* step) {
      return step->startNs() <= event.startNs() && event.startNs() < step->endNs();
    };
    const bool counts = event.deviceType() == torch::kCPU && event.name() != profiled_event;
    if (counts && std::any_of(steps.begin(), steps.end(), encloses)) inside.push_back(&event);
  }
  std::sort(inside.begin(), inside.end(), [](const Event* a, const Event* b) {
    return std::tuple(a->startThreadId(), a->startNs(), b->endNs()) <
           std::tuple(b->startThreadId(), b->startNs(), a->endNs());
  });
  return inside;
}

// An event's time belongs to the innermost one that encloses it.
std::vector<OperatorTime> self_times(const std::vector<Event>& events) {
  std::map<std::string, OperatorTime> by_name;
  std::vector<const Event*> open;
  for (const auto* event : events_in_steps(events)) {
    while (!open.empty() &&
           (open.back()->startThreadId() != event->startThreadId() || open.back()->endNs() <= event->startNs()))
      open.pop_back();
    const double ms = static_cast<double>(event->durationNs()) * 1e-6;
    auto& entry = by_name[event->name()];
    entry = {event->name(), entry.calls + 1, entry.self_ms + ms};
    if (!open.empty()) by_name[open.back()->name()].self_ms -= ms;
    open.push_back(event);
  }
  std::vector<OperatorTime> operators;
  for (const auto& [name, entry] : by_name) operators.push_back(entry);
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
  if (!recording_) return;
  ++steps_;
  step_.emplace(at::RecordScope::USER_SCOPE);
  if (step_->isActive()) step_->before(profiled_event);
}

void StepProfiler::after_step() { step_.reset(); }

void StepProfiler::start() {
  // Without a GPU the profiler's own log reports an error on stderr that is none.
  if (device_.is_cpu()) ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (!device_.is_cpu()) activities.insert(ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(
      config, activities, {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
  recording_ = true;
}

void StepProfiler::finish() {
  if (!recording_) {
    if (operators_.empty())
      log::warning("--profile: the run ended before step {}, where recording starts", first_recorded);
    return;
  }
  recording_ = false;
  step_.reset();
  const auto result = profiler::disableProfiler();
  operators_ = self_times(result->events());
  log_table(operators_, steps_);
  const auto temporary = temporary_name(trace_file_);  // renamed, so that a link is replaced and not followed
  std::filesystem::remove(temporary);
  result->save(temporary.string());
  std::filesystem::rename(temporary, trace_file_);
  log::info("trace for chrome://tracing or ui.perfetto.dev: {}", trace_file_.string());
}

}  // namespace metaformer
