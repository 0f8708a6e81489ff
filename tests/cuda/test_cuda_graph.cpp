// The recording of CUDA graphs, its own source compiled against a stand-in for CUDA: which device and stream it uses,
// and what it leaves behind when a recording fails.

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

TEST_CASE("work is recorded and replayed on the graph's device, whatever the current one is", "[cuda_graph]") {
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

TEST_CASE("after a recording that failed the work can go on without it", "[cuda_graph]") {
  auto graph = graph_on(1);
  std::function<void()> work;
  std::string message;
  const std::string fault = GENERATE("needs the host", "is refused by CUDA", "ran elsewhere", "is not executable");
  CAPTURE(fault);
  if (fault == "needs the host") {
    work = [] {
      machine.start_work();
      TORCH_CHECK(false, "this needs the host");
    };
    message = "this needs the host";
  }
  if (fault == "is refused by CUDA") {
    work = [] { machine.stream(1)->is_invalid = true; };
    message = "CUDA error 901";
  }
  if (fault == "ran elsewhere") {
    work = [] {
      const c10::cuda::CUDAGuard other(0);
      machine.start_work();
    };
    message = "nothing was recorded";
  }
  if (fault == "is not executable") {
    work = [] { machine.start_work(); };
    machine.refuses_executables = true;
    message = "CUDA error 1";
  }
  CHECK_THROWS_WITH(graph->capture(work), Catch::Contains(message));
  CHECK(machine.is_as_before());
  CHECK(machine.pools.empty());
  machine.device = 1;
  const auto before = machine.done[1];
  machine.start_work();
  CHECK(machine.done[1] == before + 1);
}

}  // namespace metaformer
