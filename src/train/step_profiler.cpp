#include "train/step_profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>

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

std::int64_t start_of(const Event& event) { return static_cast<std::int64_t>(event.startNs()); }
std::int64_t end_of(const Event& event) { return static_cast<std::int64_t>(event.endNs()); }

// The intervals of the steps on the host.
std::vector<Interval> steps_of(const std::vector<Event>& events) {
  std::vector<Interval> steps;
  for (const auto& event : events)
    if (event.deviceType() == torch::kCPU && event.name() == profiled_event)
      steps.push_back({start_of(event), end_of(event)});
  return steps;
}

// Events on the host that began during a step, without the steps themselves; sorted by thread and time, enclosing
// events first.
std::vector<const Event*> events_in_steps(const std::vector<Event>& events) {
  const auto steps = steps_of(events);
  std::vector<const Event*> inside;
  for (const auto& event : events) {
    const auto encloses = [start = start_of(event)](const Interval& step) {
      return step.begin_ns <= start && start < step.end_ns;
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

// Time in nested events counts only for the innermost one.
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

struct Kind {
  static constexpr const char *products = "matrix products", *attention = "attention", *norms = "norms and softmax",
                              *dropout = "dropout", *elementwise = "element by element, sums", *optimiser = "optimiser",
                              *copies = "copies and fills", *lookups = "embedding and loss", *other = "other";
};

struct KindPattern {
  const char *pattern, *kind;
};

// The first pattern that a kernel's name contains decides. The special ones come first: functors are named in the
// arguments of the templates that run them, and attention is built from parts of CUTLASS and cuDNN.
constexpr KindPattern kind_patterns[] = {
    {"metaformer::cuda::metric_", Kind::attention},
    {"flash", Kind::attention},
    {"fmha", Kind::attention},
    {"sdpa", Kind::attention},
    {"dot_do_o", Kind::attention},
    {"convert_dq", Kind::attention},
    {"dropout", Kind::dropout},
    {"multi_tensor_apply", Kind::optimiser},
    {"fused_adam", Kind::optimiser},
    {"::adam_", Kind::optimiser},
    {"::gradient_", Kind::optimiser},
    {"FusedAdam", Kind::optimiser},
    {"LogSoftMax", Kind::lookups},
    {"nll_loss", Kind::lookups},
    {"cross_entropy", Kind::lookups},
    {"embedding", Kind::lookups},
    {"indexSelect", Kind::lookups},
    {"indexFunc", Kind::lookups},
    {"indexing_backward", Kind::lookups},
    {"index_elementwise", Kind::lookups},
    {"index_put", Kind::lookups},
    {"gather", Kind::lookups},
    {"scatter", Kind::lookups},
    {"RadixSort", Kind::lookups},
    {"layer_norm", Kind::norms},
    {"LayerNorm", Kind::norms},
    {"GammaBeta", Kind::norms},
    {"rms_norm", Kind::norms},
    {"residual_norm", Kind::norms},
    {"RMSNorm", Kind::norms},
    {"softmax", Kind::norms},
    {"SoftMax", Kind::norms},
    {"Memcpy", Kind::copies},
    {"Memset", Kind::copies},
    {"memcpy", Kind::copies},
    {"memset", Kind::copies},
    {"CatArray", Kind::copies},
    {"copy_kernel", Kind::copies},
    {"FillFunctor", Kind::copies},
    {"gemm", Kind::products},
    {"gemv", Kind::products},
    {"cutlass", Kind::products},
    {"nvjet", Kind::products},
    {"xmma", Kind::products},
    {"splitK", Kind::products},
    {"sm80_", Kind::products},
    {"sm90_", Kind::products},
    {"elementwise_kernel", Kind::elementwise},
    {"reduce_kernel", Kind::elementwise},
    {"::activation_", Kind::elementwise},
    {"::rotary_", Kind::elementwise},
};

// Joins overlapping intervals; sorted by time.
std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
  std::vector<Interval> apart;
  for (const auto& next : intervals) {
    if (apart.empty() || next.begin_ns > apart.back().end_ns)
      apart.push_back(next);
    else
      apart.back().end_ns = std::max(apart.back().end_ns, next.end_ns);
  }
  return apart;
}

double length_ms(const std::vector<Interval>& intervals) {
  return std::accumulate(intervals.begin(), intervals.end(), 0.0, [](double sum, const Interval& interval) {
    return sum + static_cast<double>(interval.end_ns - interval.begin_ns) * 1e-6;
  });
}

void add_known(std::optional<double>& sum, const std::optional<double>& value) {
  sum = sum && value ? std::optional(*sum + *value) : std::nullopt;
}

// Sums by name, longest first.
class DeviceSums {
 public:
  void add(const std::string& name, const DeviceEvent& event) {
    auto& sum = by_name_.try_emplace(name, DeviceTime{.name = name, .operations = 0, .bytes = 0}).first->second;
    ++sum.calls;
    sum.ms += static_cast<double>(event.end_ns - event.start_ns) * 1e-6;
    add_known(sum.operations, event.operations);
    add_known(sum.bytes, event.bytes);
  }

  std::vector<DeviceTime> sorted() const {
    std::vector<DeviceTime> times;
    for (const auto& [name, time] : by_name_) times.push_back(time);
    std::stable_sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.ms > b.ms; });
    return times;
  }

 private:
  std::map<std::string, DeviceTime> by_name_;
};

// Operations of a product, and the bytes of its operands and result.
struct ProductCost {
  double operations = 0;
  std::optional<double> bytes = {};  // if the type is known
};

std::optional<ProductCost> cost_of_product(const Event& event) {
  const auto name = event.name();
  const bool adds = name == "aten::addmm" || name == "aten::baddbmm";
  if (!adds && name != "aten::mm" && name != "aten::bmm") return std::nullopt;
  const std::size_t left = adds ? 1 : 0;
  if (!event.hasShapes() || event.shapes().size() < left + 2) return std::nullopt;
  const auto &a = event.shapes()[left], &b = event.shapes()[left + 1];
  if (a.size() < 2 || b.size() != a.size()) return std::nullopt;
  const double batch = a.size() == 3 ? static_cast<double>(a[0]) : 1;
  const auto rows = static_cast<double>(a[a.size() - 2]), depth = static_cast<double>(a.back()),
             columns = static_cast<double>(b.back());
  ProductCost cost{.operations = 2 * batch * rows * depth * columns};
  static const std::map<std::string, double> sizes = {
      {"float", 4}, {"c10::BFloat16", 2}, {"c10::Half", 2}, {"double", 8}};
  if (!event.hasTypes() || event.dtypes().size() <= left) return cost;
  if (const auto size = sizes.find(event.dtypes()[left]); size != sizes.end())
    cost.bytes = batch * (rows * depth + depth * columns + rows * columns) * size->second;
  return cost;
}

// Launches of device work on the host, by the correlation ids that connect the two.
struct Launches {
  std::unordered_map<std::uint64_t, std::int64_t> calls, operators;  // when a call of CUDA or an operator began
  std::unordered_map<std::uint64_t, ProductCost> costs;              // of operators

  explicit Launches(const std::vector<Event>& events) {
    for (const auto& event : events) {
      if (event.deviceType() != torch::kCPU || event.correlationId() == 0) continue;
      const bool is_call = event.name().starts_with("cuda") || event.name().starts_with("cuLaunch");
      (is_call ? calls : operators).emplace(event.correlationId(), start_of(event));
      if (const auto cost = cost_of_product(event)) costs.emplace(event.correlationId(), *cost);
    }
  }

  // When the event was launched; if the profiler does not say, when it began.
  std::int64_t time_of(const Event& event) const {
    if (const auto call = calls.find(event.correlationId()); call != calls.end()) return call->second;
    const auto within = operators.find(event.linkedCorrelationId());
    return within != operators.end() ? within->second : start_of(event);
  }

  // A product may start several kernels. Its whole cost counts for the first.
  void assign_cost(const Event& event, DeviceEvent& given) {
    const auto cost = costs.find(event.linkedCorrelationId());
    if (cost == costs.end() || kind_of_kernel(given.name) != Kind::products) return;
    given.operations = cost->second.operations;
    given.bytes = cost->second.bytes;
    cost->second = {.operations = 0, .bytes = given.bytes ? std::optional(0.0) : std::nullopt};
  }
};

std::vector<DeviceEvent> device_events(const std::vector<Event>& events) {
  Launches launches(events);
  std::vector<DeviceEvent> found;
  for (const auto& event : events) {
    if (event.deviceType() == torch::kCPU || event.name() == profiled_event) continue;
    found.push_back({.name = event.name(),
                     .start_ns = start_of(event),
                     .end_ns = end_of(event),
                     .launched_ns = launches.time_of(event),
                     .stream = event.deviceResourceId()});
    launches.assign_cost(event, found.back());
  }
  return found;
}

// Logs tables of times per step.
class DeviceTable {
 public:
  DeviceTable(const DeviceTimes& times, std::int64_t steps) : times_(times), steps_(static_cast<double>(steps)) {}

  void write() const {
    constexpr std::size_t most_shown = 20;
    log::info(
        "time by kernel on the device over {:.0f} steps, {:.3f} ms a step from its first kernel to its last, on {} "
        "stream{}; {:.3f} ms between steps",
        steps_, times_.span_ms / steps_, times_.streams, times_.streams == 1 ? "" : "s", times_.between_ms / steps_);
    log_header("kind");
    for (const auto& kind : times_.kinds) log_row(kind.name, kind);
    log::info("  {:<60} {:>10} {:>9.3f} {:>6.1f}%", "gaps, in which no kernel runs", "", times_.gap_ms / steps_,
              share_of(times_.gap_ms));
    log_header("longest kernels");
    for (std::size_t i = 0; i < std::min(most_shown, times_.kernels.size()); ++i)
      log_row(short_kernel_name(times_.kernels[i].name).substr(0, 60), times_.kernels[i]);
  }

 private:
  double share_of(double ms) const { return times_.span_ms > 0 ? 100 * ms / times_.span_ms : 0; }

  static void log_header(const char* what) {
    log::info("  {:<60} {:>10} {:>9} {:>7} {:>11} {:>9}", what, "calls/step", "ms/step", "share", "GFLOP/step",
              "MB/step");
  }

  void log_row(const std::string& name, const DeviceTime& time) const {
    const auto known = [&](const std::optional<double>& value, double unit) {
      return value ? fmt::format("{:.2f}", *value / unit / steps_) : "";
    };
    log::info("  {:<60} {:>10.1f} {:>9.3f} {:>6.1f}% {:>11} {:>9}", name, static_cast<double>(time.calls) / steps_,
              time.ms / steps_, share_of(time.ms), known(time.operations, 1e9), known(time.bytes, 1e6));
  }

  const DeviceTimes& times_;
  double steps_;
};

void log_device_table(const std::vector<Event>& events) {
  const auto steps = steps_of(events);
  const auto times = device_times(device_events(events), steps);
  if (times.kernels.empty())
    log::warning("--profile: the profiler recorded no kernel of the GPU (it needs CUPTI)");
  else
    DeviceTable(times, std::ssize(steps)).write();
}

}  // namespace

std::string kind_of_kernel(const std::string& name) {
  for (const auto& [pattern, kind] : kind_patterns)
    if (name.find(pattern) != std::string::npos) return kind;
  return Kind::other;
}

DeviceTimes device_times(const std::vector<DeviceEvent>& events, const std::vector<Interval>& steps) {
  std::vector<Interval> spans(steps.size(), {std::numeric_limits<std::int64_t>::max(), 0}), busy;
  DeviceSums kinds, kernels;
  std::set<std::int64_t> streams;
  for (const auto& event : events) {
    const auto step = std::find_if(steps.begin(), steps.end(), [&](const Interval& s) {
      return s.begin_ns <= event.launched_ns && event.launched_ns < s.end_ns;
    });
    if (step == steps.end()) continue;
    auto& span = spans[static_cast<std::size_t>(step - steps.begin())];
    span = {std::min(span.begin_ns, event.start_ns), std::max(span.end_ns, event.end_ns)};
    busy.push_back({event.start_ns, event.end_ns});
    streams.insert(event.stream);
    kinds.add(kind_of_kernel(event.name), event);
    kernels.add(event.name, event);
  }
  std::erase_if(spans, [](const Interval& span) { return span.begin_ns > span.end_ns; });  // steps without an event
  const auto apart = merged(spans);
  DeviceTimes times{.kinds = kinds.sorted(),
                    .kernels = kernels.sorted(),
                    .streams = std::ssize(streams),
                    .span_ms = length_ms(apart)};
  times.gap_ms = times.span_ms - length_ms(merged(busy));
  if (!apart.empty()) times.between_ms = length_ms({{apart.front().begin_ns, apart.back().end_ns}}) - times.span_ms;
  return times;
}

std::string short_kernel_name(std::string name) {
  for (const std::string part : {"void ", "metaformer::cuda::", "at::native::", "at::", "c10::",
                                 "(anonymous namespace)::", "cutlass::", "std::"})
    for (auto at = name.find(part); at != std::string::npos; at = name.find(part, at)) name.erase(at, part.size());
  return name;
}

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
  // Without a GPU, the profiler's own log would report a false error on stderr.
  const bool on_host = device_.is_cpu();
  if (on_host) ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                     /*report_input_shapes=*/!on_host);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (!on_host) {
    activities.insert(ActivityType::CUDA);
    torch::cuda::synchronize(device_.index());  // no kernel of an earlier step is recorded
  }
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
  if (!device_.is_cpu()) torch::cuda::synchronize(device_.index());  // wait for kernels of the last step
  const auto result = profiler::disableProfiler();
  operators_ = self_times(result->events());
  log_table(operators_, steps_);
  if (!device_.is_cpu()) log_device_table(result->events());
  const auto temporary = temporary_name(trace_file_);  // renamed, so that a link is replaced and not followed
  std::filesystem::remove(temporary);
  result->save(temporary.string());
  std::filesystem::rename(temporary, trace_file_);
  log::info("trace for chrome://tracing or ui.perfetto.dev: {}", trace_file_.string());
}

}  // namespace metaformer
