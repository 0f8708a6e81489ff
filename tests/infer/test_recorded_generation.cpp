// What is recorded of generation does not need the host. It runs here on the device meta, whose tensors have sizes and
// no values: whatever reads a value, or has a size that depends on one, throws.

#include <ATen/record_function.h>
#include <torch/library.h>

#include "config/mixer_config.h"
#include "infer/generated_text.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"

// What LibTorch lacks on this device, by operators of the same sizes and types.
TORCH_LIBRARY_IMPL(aten, Meta, library) {
  using torch::Tensor;
  library.impl("abs", [](const Tensor& x) { return -x; });
  library.impl("logical_not", [](const Tensor& x) { return x == x; });
  library.impl("logical_and", [](const Tensor& x, const Tensor& y) { return x == y; });
  library.impl("where.self_out", [](const Tensor& which, const Tensor& x, const Tensor& y, Tensor& out) -> Tensor& {
    out.resize_((which * x * y).sizes());
    return out;
  });
  library.impl("where.self", [](const Tensor& which, const Tensor& x, const Tensor& y) { return which * x * y; });
  library.impl("index_select", [](const Tensor& x, std::int64_t dimension, const Tensor& index) {
    auto sizes = x.sizes().vec();
    sizes.at(static_cast<std::size_t>(at::maybe_wrap_dim(dimension, x.dim()))) = index.numel();
    return x.new_empty(sizes);
  });
  library.impl("native_layer_norm",
               [](const Tensor& x, c10::SymIntArrayRef, const std::optional<Tensor>&, const std::optional<Tensor>&,
                  double) { return std::make_tuple(-x, -x.narrow(-1, 0, 1), -x.narrow(-1, 0, 1)); });
}

namespace metaformer {

namespace {

bool lies_on_host(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_cpu();
}

// Counts the operators that copy tensors of the host while this lives.
class HostCopies {
 public:
  HostCopies() : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(note).needsInputs(true))) { count = 0; }
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;
  ~HostCopies() { at::removeCallback(handle_); }
  static inline int count;

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    const std::string name = function.name();
    const bool copies = name == "aten::copy_" || name == "aten::_to_copy";
    const auto inputs = function.inputs();
    count += copies && std::any_of(inputs.begin(), inputs.end(), lies_on_host);
    return nullptr;
  }

  at::CallbackHandle handle_;
};

// Runs its work in place of recording it; what it needs of the host is an error, as on a GPU.
class GraphWithoutHost : public DeviceGraph {
 public:
  explicit GraphWithoutHost(int& captures) : captures_(captures) {}
  void capture(const std::function<void()>& work) override {
    const HostCopies copies;
    work();
    TORCH_CHECK(HostCopies::count == 0, "copies from the host");
    ++captures_;
  }
  void replay() override {}

 private:
  int& captures_;
};

// Module::to refuses this device.
void move_to_meta(torch::nn::Module& model) {
  const auto move = [](torch::Tensor& x) {
    x.unsafeGetTensorImpl()->shallow_copy_from(torch::empty_like(x, torch::kMeta).getIntrusivePtr());
  };
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) move(parameter);
  for (auto& buffer : model.buffers()) move(buffer);
}

// The number of graphs, of two, that a chunk of text needs and that can be recorded.
int recorded_graphs(const TransformerConfig& config, const SamplingOptions& options) {
  Gpt model(config, small_vocabulary);
  move_to_meta(model);
  const torch::InferenceMode inference;
  int captures = 0;
  const auto make = [&](torch::Device, std::string&) { return std::make_unique<GraphWithoutHost>(captures); };
  DeviceGenerator generator(model, {1, 2}, 2, options, torch::kMeta, make,
                            {.smallest_bucket = 4, .steps_to_warm_up = 0, .first_chunk = 12});
  // When all was started, the host reads the tokens, which have no values here.
  CHECK_THROWS_WITH(generator.next(), Catch::Contains("copy out of meta tensor"));
  return captures;
}

}  // namespace

TEST_CASE("what is recorded needs nothing of the host, with every mixer", "[sampling]") {
  auto config = small_config(8);
  config.mixer = any_mixer();
  CHECK(recorded_graphs(config, {.temperature = 1}) == 2);
}

TEST_CASE("what is recorded needs nothing of the host, with every kind of positions and way to pick", "[sampling]") {
  auto config = small_config(8);
  config.positions = any_positions();
  CHECK(recorded_graphs(config, {.temperature = GENERATE(0.0, 1.0), .top_p = GENERATE(0.5, 1.0)}) == 2);
}

TEST_CASE("work that needs the host is found by the two tests above", "[sampling]") {
  const auto x = torch::ones({3}, torch::kMeta);
  int captures = 0;
  GraphWithoutHost graph(captures);
  CHECK_THROWS(graph.capture([&] { x[0].item<float>(); }));
  CHECK_THROWS(graph.capture([&] { x.nonzero(); }));
  CHECK_THROWS(graph.capture([&] { x.masked_select(x > 0); }));
  CHECK_THROWS(graph.capture([&] { x.index({x > 0}); }));
  CHECK_THROWS(graph.capture([&] { x.cpu(); }));
  CHECK_THROWS(graph.capture([&] { torch::tensor({1.F}).to(torch::kMeta); }));
  CHECK_THROWS(graph.capture([&] { x.clone().copy_(torch::zeros({3})); }));
  CHECK(captures == 0);
  graph.capture([&] { x.clone().copy_(x + 1); });
  CHECK(captures == 1);
}

}  // namespace metaformer
