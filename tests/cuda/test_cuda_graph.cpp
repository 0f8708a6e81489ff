// The source of the recording of CUDA graphs, compiled against a stand-in for CUDA: its device and stream, and the
// state after a failed recording.

#include "ops/device.h"
#include "stand_in.h"
#include "support/torch_catch.h"

extern "C" metaformer::DeviceGraph* metaformer_make_cuda_graph(int device);

namespace metaformer {

using stand_in::machine;

namespace {

std::unique_ptr<DeviceGraph> graph_on(int device) {
  machine = {};
  return std::unique_ptr<DeviceGraph>(metaformer_make_cuda_graph(device));
}

}  // namespace

TEST_CASE("work is recorded and replayed on the graph's device, whatever the current device is", "[cuda_graph]") {
  const int device = GENERATE(0, 1);
  auto graph = graph_on(device);
  graph->capture([] {
    machine.start_work();
    machine.start_work();
  });
  CHECK(machine.done.empty());
  CHECK(machine.is_as_before());
  CHECK(machine.pools.size() == 1);  // the graph's memory
  graph->replay();
  graph->replay();
  CHECK(machine.done == std::map<int, std::size_t>{{device, 4}});
  graph.reset();
  CHECK(machine.executables == 0);
  CHECK(machine.pools.empty());
}

TEST_CASE("after a failed recording everything is as before, and work can start", "[cuda_graph]") {
  const auto start_elsewhere = [] {
    const c10::cuda::CUDAGuard other(0);
    machine.start_work();
  };
  const auto need_host = [] {
    machine.start_work();
    TORCH_CHECK(false, "this needs the host");
  };
  const auto [work, message] = GENERATE_COPY(table<std::function<void()>, std::string>({
      {need_host, "this needs the host"},
      {[] { machine.stream(1)->is_invalid = true; }, "CUDA error 901"},
      {start_elsewhere, "nothing was recorded"},
      {[] { machine.start_work(); }, "CUDA error 1"},
  }));
  CAPTURE(message);
  auto graph = graph_on(1);
  machine.refuses_executables = message == "CUDA error 1";
  CHECK_THROWS_WITH(graph->capture(work), Catch::Contains(message));
  CHECK(machine.is_as_before());
  CHECK(machine.pools.empty());
  machine.device = 1;
  const auto before = machine.done[1];
  machine.start_work();
  CHECK(machine.done[1] == before + 1);
}

}  // namespace metaformer
