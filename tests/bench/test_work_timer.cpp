// Timing of work by replays of a recording, by events of a device, or by the clock. The graph and the device with
// events are stand-ins.

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <thread>

#include "bench/timing.h"
#include "support/graph_by_hand.h"
#include "support/torch_catch.h"

namespace metaformer::test_work_timer {

namespace {

// A device with its own clock, which the tests advance.
struct EventDevice : c10::impl::DeviceGuardImplInterface {
  static constexpr auto device_type = c10::DeviceType::PrivateUse1;
  static inline double now = 0;  // milliseconds
  static inline int alive = 0, waits = 0;

  static const c10::Device& device() {
    static const c10::Device device(device_type, 0);
    return device;
  }
  c10::DeviceType type() const override { return device_type; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, device()); }
  c10::Stream exchangeStream(c10::Stream) const override { return c10::Stream(c10::Stream::DEFAULT, device()); }
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }  // so autograd starts no thread for it

  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag flag) const override {
    TORCH_CHECK(flag == c10::EventFlag::BACKEND_DEFAULT, "an event without a time");
    if (*event == nullptr) {
      *event = new double;
      ++alive;
    }
    *static_cast<double*>(*event) = now;
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override { ++waits; }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    return *static_cast<double*>(second) - *static_cast<double*>(first);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<double*>(event);
    --alive;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, EventDevice);

}  // namespace

TEST_CASE("recorded work is timed by replays, several in each measurement", "[work_timer]") {
  GraphCounts counts;
  int calls = 0;
  WorkTimer timer(
      torch::kCPU, [&] { ++calls; }, std::make_unique<GraphByHand>(counts));
  CHECK(timer.timed_by() == TimedBy::graph);
  CHECK(timer.recording_problem().empty());
  CHECK(counts.captures == 1);
  CHECK(calls == counts.replays);  // a recording computes nothing
  CHECK(timer.calls_per_measurement() >= 2);
  const auto before = counts.replays;
  const double ms = timer.milliseconds();
  CHECK(counts.replays == before + timer.calls_per_measurement());
  CHECK((ms > 0 && ms < 30));  // time of one call
}

TEST_CASE("work without a recording is called and timed by the clock, and a failed recording's reason is kept",
          "[work_timer]") {
  GraphCounts counts;
  int calls = 0;
  const bool is_long = GENERATE(true, false);
  const auto work = [&] {
    ++calls;
    if (is_long) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  auto graph = is_long ? nullptr : std::make_unique<GraphByHand>(counts, /*fails=*/true);
  WorkTimer timer(torch::kCPU, work, std::move(graph));
  CHECK(timer.timed_by() == TimedBy::clock);
  CHECK(timer.recording_problem().empty() == is_long);
  CHECK_THAT(timer.recording_problem(), ContainsSubstring(is_long ? "" : "needs the host") && !ContainsSubstring("\n"));
  if (is_long) CHECK(timer.calls_per_measurement() == 1);
  const auto before = calls;
  CHECK((timer.milliseconds() >= 2 || !is_long));
  CHECK(calls == before + timer.calls_per_measurement());
  CHECK(counts.replays == 0);
}

TEST_CASE("times on a device are differences of its events, not of the host's clock", "[work_timer]") {
  GraphCounts counts;
  const bool records = GENERATE(false, true);
  {
    WorkTimer timer(
        EventDevice::device(), [] { EventDevice::now += 0.25; },
        records ? std::make_unique<GraphByHand>(counts) : nullptr);
    CHECK(timer.timed_by() == (records ? TimedBy::graph : TimedBy::events));
    CHECK(timer.calls_per_measurement() == 4);
    const auto waits = EventDevice::waits;
    CHECK(timer.milliseconds() == 0.25);
    CHECK(EventDevice::waits == waits + 1);
    CHECK(counts.replays == (records ? 6 : 0));
  }
  CHECK(EventDevice::alive == 0);
}

}  // namespace metaformer::test_work_timer
