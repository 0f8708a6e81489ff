// Text and translations from graphs of device work: operators pick the same tokens as the host, graphs give the host's
// text and hypotheses, and recorded work does not need the host. Two stand-ins for a GPU test this. A RecordedGraph
// replays only operators, so numbers of the host that should change do not. And recorded work runs on the device meta,
// whose tensors have sizes but no values, so an operator that reads a value, or has a size that depends on one, throws.

#include <ATen/record_function.h>
#include <torch/library.h>

#include <cmath>

#include "base/random.h"
#include "config/mixer_config.h"
#include "infer/generated_text.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"
#include "support/recorded_graph.h"

// Stand-ins for operators that LibTorch lacks on this device, with the same sizes and types.
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
  library.impl("flip", [](const Tensor& x, at::IntArrayRef) { return -x; });
  library.impl("native_layer_norm",
               [](const Tensor& x, c10::SymIntArrayRef, const std::optional<Tensor>&, const std::optional<Tensor>&,
                  double) { return std::make_tuple(-x, -x.narrow(-1, 0, 1), -x.narrow(-1, 0, 1)); });
}

namespace metaformer::test_device_generation {

namespace {

using Ids = std::vector<std::int64_t>;

// The picks of TokenPicker from each row of float32 logits.
Ids picked_on_host(const torch::Tensor& logits_bv, const torch::Tensor& uniform_b, const SamplingOptions& options) {
  TokenPicker picker(options);
  Ids tokens;
  for (std::int64_t row = 0; row < logits_bv.size(0); ++row) {
    const auto logits_v = logits_bv[row].to(torch::kDouble).contiguous();
    const std::span<const double> values(logits_v.data_ptr<double>(), static_cast<std::size_t>(logits_v.numel()));
    tokens.push_back(picker.pick(values, uniform_b[row].item<double>()));
  }
  return tokens;
}

Ids picked_on_device(const torch::Tensor& logits_bv, const torch::Tensor& uniform_b, const SamplingOptions& options) {
  const Ids never(options.never.begin(), options.never.end());
  const auto tokens_b =
      pick_tokens_b(logits_bv, uniform_b, options, never.empty() ? torch::Tensor() : torch::tensor(never));
  REQUIRE(tokens_b.sizes() == uniform_b.sizes());
  REQUIRE(tokens_b.scalar_type() == torch::kLong);
  return {tokens_b.data_ptr<std::int64_t>(), tokens_b.data_ptr<std::int64_t>() + tokens_b.numel()};
}

torch::Tensor uniform_numbers(std::int64_t count) {
  const Rng rng(3, RandomPurpose::sampling);
  const auto uniform_b = torch::empty({count}, torch::kDouble);
  for (std::int64_t i = 0; i < count; ++i) uniform_b[i] = rng.uniform(static_cast<std::uint64_t>(i));
  return uniform_b;
}

std::shared_ptr<Gpt> wide_gpt(const TransformerConfig& config) {
  auto model = random_gpt(config);
  model->to(torch::kDouble);
  return model;
}

// Makes graphs of recorded operators; for models in float64.
MakeGraph recorded_graphs(GraphCounts& counts) {
  return [&counts](torch::Device, std::string&) { return std::make_unique<RecordedGraph>(counts); };
}

// Buckets so small that each bucket of a context of 9 is reached, warmed up and recorded.
DeviceGenerationPlan small_plan(GraphCounts& counts) {
  return {.make_graph = recorded_graphs(counts), .smallest_bucket = 2, .steps_to_warm_up = 1, .longest_chunk = 8};
}

// Checks that graphs give the host's text.
Tokens check_text(Gpt& model, const Tokens& prompt, const SamplingOptions& options, std::int64_t samples, int steps,
                  const DeviceGenerationPlan& plan) {
  const auto text = by_device(model, prompt, options, samples, steps, plan);
  CHECK(text == by_host(model, prompt, options, samples, steps));
  return text;
}

// Checks greedy text, after prompts within and beyond a context of 9.
void check_greedy_text(const TransformerConfig& config, WindowKind window = WindowKind::half,
                       const std::vector<std::int64_t>& prompts = {1, 30}) {
  const auto model = wide_gpt(config);
  for (const auto length : prompts) {
    CAPTURE(length);
    GraphCounts counts;
    check_text(*model, prompt_of(length), {.temperature = 0, .window = window}, 2, 24, small_plan(counts));
    const bool slides_at_once = window == WindowKind::slide && length >= 9 && !model->has_endless_state();
    CHECK((counts.replays > 0) == !slides_at_once);
  }
}

// Checks the logits of recorded steps against those of steps that the state counts, in two texts, one after another in
// the same state.
void check_logits(const TransformerConfig& config) {
  const torch::InferenceMode inference;
  const auto model = wide_gpt(config);
  const auto counting = model->new_state(2, config.context), placed = model->new_state(2, config.context);
  auto& state = state_as<TransformerState>(*placed);
  state.stay_in_place();
  const auto ids_b1 = torch::zeros({2, 1}, torch::kLong), place_1 = torch::zeros({1}, torch::kLong);
  torch::Tensor logits_bcv;
  GraphCounts counts;
  RecordedGraph graph(counts);
  for (const std::int64_t prompt : {4, 1}) {
    const auto text_be = torch::randint(small_vocabulary, {2, config.context});
    const auto read = [&](std::int64_t first, std::int64_t count, ModelState& of) {
      return model->evaluate(Batch{.ids_bc = text_be.narrow(1, first, count).contiguous()}, &of);
    };
    counting->reset();
    state.reset();
    CHECK(torch::equal(read(0, prompt, *counting), read(0, prompt, state)));
    for (auto place = prompt; place < config.context; ++place) {
      ids_b1.copy_(text_be.narrow(1, place, 1));
      place_1.fill_(place);
      const auto step = [&] {
        state.read_at(place_1, config.context);
        logits_bcv = model->evaluate(Batch{.ids_bc = ids_b1}, &state);
      };
      if (counts.captures == 0 && place > prompt) graph.capture(step);
      counts.captures == 0 ? step() : graph.replay();  // the first step makes the tables of positions
      CHECK(torch::allclose(logits_bcv, read(place, 1, *counting), 1e-9, 1e-11));
    }
  }
}

bool lies_on_host(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_cpu();
}

// Counts the operators that copy tensors of the host during its lifetime.
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

// Runs its work in place of recording it; a copy from the host is an error, as on a GPU.
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

// Moves the model by hand, because Module::to refuses this device.
void move_to_meta(torch::nn::Module& model) {
  const auto move = [](torch::Tensor& x) {
    x.unsafeGetTensorImpl()->shallow_copy_from(torch::empty_like(x, torch::kMeta).getIntrusivePtr());
  };
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) move(parameter);
  for (auto& buffer : model.buffers()) move(buffer);
}

// Checks that both graphs for a chunk of text can be recorded.
void check_recordings(const TransformerConfig& config, const SamplingOptions& options) {
  Gpt model(config, small_vocabulary);
  move_to_meta(model);
  const torch::InferenceMode inference;
  int captures = 0;
  const auto make = [&](torch::Device, std::string&) { return std::make_unique<GraphWithoutHost>(captures); };
  const auto state = model.new_state(2, config.context);
  DeviceGenerator generator(
      model, *state, 2, options, torch::kMeta,
      {.make_graph = make, .smallest_bucket = 4, .steps_to_warm_up = 1, .first_chunk = 12, .longest_chunk = 12});
  model.evaluate(Batch{.ids_bc = torch::zeros({2, 1}, torch::dtype(torch::kLong).device(torch::kMeta))}, state.get());
  // At the end the host reads the tokens, which have no values here.
  CHECK_THROWS_WITH(generator.next(Tokens{1, 2}, 2, 0), Catch::Contains("copy out of meta tensor"));
  CHECK(captures == 2);
}

// An encoder and decoder whose targets have up to 9 tokens; sources of different lengths for it.
EncoderDecoderConfig small_translation() {
  EncoderDecoderConfig config;
  static_cast<TransformerConfig&>(config) = small_config(9);
  return config;
}
const TextBatch sources = {{0, 1, 5}, {2}, {1, 1, 2, 0, 4, 3, 3}};

std::shared_ptr<EncoderDecoder> wide_translator(const EncoderDecoderConfig& config) {
  auto model = with_random_weights(std::make_shared<EncoderDecoder>(config, small_vocabulary), 0.6);
  model->to(torch::kDouble);
  return model;
}

// Checks that graphs find the host's hypotheses.
void check_hypotheses(const EncoderDecoderConfig& config) {
  const auto model = wide_translator(config);
  const BeamOptions options{.beam = 4, .n_best = 3, .further_tokens = 6};
  GraphCounts counts;
  const auto found = beam_search(*model, sources, small_vocabulary, {}, options, torch::kCPU, small_plan(counts));
  CHECK(are_near(found, beam_search(*model, sources, small_vocabulary, {}, options, torch::kCPU)));
  CHECK(counts.replays > 0);
}

}  // namespace

TEST_CASE("operators pick the same tokens as the host with every option, also the lower of equal tokens",
          "[sampling]") {
  const SamplingOptions options{.temperature = GENERATE(0.0, 1e-6, 0.8, 1.0, 1e6),
                                .top_k = GENERATE(0, 1, 3, 17, 1000),
                                .top_p = GENERATE(1e-9, 0.3, 0.5, 0.9, 1.0),
                                .never = GENERATE(Tokens{}, Tokens{0, 3, 4, 16})};
  torch::manual_seed(1);
  const auto drawn_bv = torch::randn({500, 17}) * 3, equal_bv = torch::randint(3, {500, 17}).to(torch::kFloat);
  const auto uniform_b = uniform_numbers(500);
  for (const auto& logits_bv : {drawn_bv, equal_bv})
    CHECK(picked_on_device(logits_bv, uniform_b, options) == picked_on_host(logits_bv, uniform_b, options));
}

TEST_CASE("the bounds of the uniform numbers pick the most and the least likely of the kept tokens", "[sampling]") {
  const auto logits_bv =
      torch::tensor({{std::log(0.1F), std::log(0.4F), std::log(0.2F), std::log(0.3F)}}).repeat({2, 1});
  const auto ends_b = torch::tensor({0.0, 1 - 0x1p-53}, torch::kDouble);
  const auto [top_k, top_p, expected] = GENERATE(table<std::int64_t, double, Ids>(
      {{0, 1, {1, 0}}, {2, 1, {1, 3}}, {0, 0.69, {1, 3}}, {0, 0.39, {1, 1}}, {1, 1, {1, 1}}}));
  CHECK(picked_on_device(logits_bv, ends_b, {.temperature = 1, .top_k = top_k, .top_p = top_p}) == expected);
  // A number on the edge between two tokens picks the less likely one; weights too small to count are never picked.
  const auto equal_bv = torch::zeros({3, 4}), edges_b = torch::tensor({0.25, 0.5, 0.75}, torch::kDouble);
  for (const auto pick : {&picked_on_device, &picked_on_host})
    CHECK(pick(equal_bv, edges_b, {.temperature = 1}) == Ids{1, 2, 3});
  const auto unlikely_bv = torch::tensor({{0.F, -1e4F, -1e4F}}).repeat({2, 1});
  CHECK(picked_on_device(unlikely_bv, ends_b, {.temperature = 1, .top_k = 0}) == Ids{0, 0});
}

TEST_CASE("recorded steps have the logits of steps that a state counts, with every mixer and kind of positions",
          "[sampling]") {
  auto config = small_config(9);
  if (GENERATE(true, false)) {
    config.mixer = any_incremental_mixer();
    return check_logits(config);
  }
  config.positions = any_positions();
  config.mixer = any_mixer_with_scores();
  check_logits(config);
}

TEST_CASE("graphs generate the host's text with every mixer and kind of positions, also past the context",
          "[sampling]") {
  auto config = small_config(9);
  if (GENERATE(true, false)) {
    config.mixer = any_incremental_mixer();
    return check_greedy_text(config);
  }
  config.positions = any_positions();
  config.mixer = any_mixer_with_scores();
  check_greedy_text(config);
}

TEST_CASE("graphs generate the host's text with models of several mixers, convolutions and reversible blocks",
          "[sampling]") {
  auto config = small_config(9);
  config.convolution = GENERATE(0, 3);
  config.blocks = GENERATE(BlockKind::plain, BlockKind::reversible);
  if (GENERATE(true, false)) {
    config.positions = any_positions();
    config.mixers = {{.mixer = Mamba2Options{}}, {.mixer = ScaledDotProductOptions{.window = 3, .sinks = true}}};
  } else {
    config.positions = NoPositionsConfig{};
    config.mixer = GatedDeltaNetOptions{};
    REQUIRE(wide_gpt(config)->has_endless_state());
  }
  check_greedy_text(config, GENERATE(WindowKind::half, WindowKind::slide), {1, 5, 9, 30});
}

TEST_CASE("graphs draw the host's random numbers for every sample, and pick no id without a token", "[sampling]") {
  const auto model = wide_gpt(small_config(GENERATE(1, 2, 12)));
  const SamplingOptions options{.temperature = GENERATE(0.0, 1.3),
                                .top_k = GENERATE(0, 6),
                                .top_p = GENERATE(0.9, 1.0),
                                .window = GENERATE(WindowKind::half, WindowKind::slide),
                                .never = GENERATE(Tokens{}, Tokens{0, 2, 3})};
  GraphCounts counts;
  const auto text = check_text(*model, {1, 2, 3}, options, 5, 50, small_plan(counts));
  for (const auto id : options.never) CHECK(std::count(text.begin(), text.end(), id) == 0);
}

TEST_CASE("graphs and the CPU's decoders generate the same text in float32", "[sampling]") {
  const auto model = random_gpt(small_config(24));
  GraphCounts counts;
  auto plan = small_plan(counts);
  plan.make_graph = graphs_by_hand(counts);
  check_text(*model, {4, 5}, {.temperature = GENERATE(0.0, 1.0)}, 3, 70, plan);
  CHECK(counts.replays > 0);
}

TEST_CASE("the text does not depend on chunks, buckets or steps to warm up", "[sampling]") {
  const auto model = wide_gpt(small_config(24));
  const SamplingOptions options{.temperature = 1, .window = GENERATE(WindowKind::half, WindowKind::slide)};
  const std::int64_t smallest_bucket = GENERATE(1, 3, 32), warm = GENERATE(0, 4, 1000), chunk = GENERATE(1, 7, 100);
  GraphCounts counts;
  check_text(*model, {4, 5}, options, 3, 70,
             {.make_graph = recorded_graphs(counts),
              .smallest_bucket = smallest_bucket,
              .steps_to_warm_up = warm,
              .first_chunk = std::min<std::int64_t>(chunk, 2),
              .longest_chunk = chunk});
}

TEST_CASE("one graph is recorded for each bucket, and replayed for every later token", "[sampling]") {
  const auto model = wide_gpt(small_config(20));
  GraphCounts counts;
  // Windows of 1 to 20 tokens, then ten times of 10 to 20, in buckets of 4, 8, 16 and 20. The host picks the first
  // token of each.
  constexpr int tokens = 20 + 11 * 10, buckets = 4;
  auto plan = small_plan(counts);
  plan.smallest_bucket = 4;
  by_device(*model, {1}, {}, 1, tokens, plan);
  CHECK(counts.captures == buckets);
  CHECK(counts.replays == tokens - 11 - buckets);
}

TEST_CASE("the first tokens need no more than one step, and chunks grow", "[sampling]") {
  const auto model = wide_gpt(small_config(100));
  GraphCounts counts;
  TextGenerator generator(*model, {1}, {}, torch::kCPU, 1,
                          {.make_graph = recorded_graphs(counts), .smallest_bucket = 100, .steps_to_warm_up = 1});
  std::vector<int> replays;
  for (int i = 0; i < 80; ++i) {
    generator.next();
    if (replays.empty() || replays.back() != counts.replays) replays.push_back(counts.replays);
  }
  CHECK(replays == std::vector<int>{0, 2, 6, 14, 30, 62, 94});
}

TEST_CASE("after a failed recording the same text goes on, and recording is not tried again", "[sampling]") {
  const auto model = random_gpt(small_config(48));  // buckets of 32 and 48
  const SamplingOptions options{.temperature = 1, .window = GENERATE(WindowKind::half, WindowKind::slide)};
  const auto expected = by_host(*model, {1, 2}, options, 3, 150);
  GraphCounts counts;
  const int failing = GENERATE(1, 2);
  TextGenerator generator(*model, {1, 2}, options, torch::kCPU, 3, {.make_graph = graphs_by_hand(counts, failing)});
  CHECK(generate(generator, 150) == expected);
  CHECK((generator.cache_bytes() > 0) == (options.window == WindowKind::half));
  CHECK(counts.captures == failing);
  CHECK((counts.replays > 0) == (failing == 2));
}

TEST_CASE("the host generates the same text if the device has no graphs or the mixer's work cannot be recorded",
          "[sampling]") {
  auto config = small_config(16);
  const bool has_graphs = GENERATE(false, true);
  if (has_graphs) config.mixer = LshOptions{.rounds = 2, .chunk = 4};
  const auto model = random_gpt(config);
  const SamplingOptions options{.temperature = 1};
  GraphCounts counts;
  int asked = 0;
  const MakeGraph none = [&](torch::Device, std::string& problem) {
    ++asked;
    problem = "there are none here";
    return std::unique_ptr<DeviceGraph>();
  };
  TextGenerator generator(*model, {1, 2}, options, torch::kCPU, 2,
                          {.make_graph = has_graphs ? graphs_by_hand(counts) : none});
  CHECK(generate(generator, 60) == by_host(*model, {1, 2}, options, 2, 60));
  CHECK(asked == !has_graphs);
  CHECK(counts.captures == 0);
  CHECK(generator.cache_bytes() > 0);
}

TEST_CASE("graphs are used with the cache unless they are switched off", "[sampling]") {
  const auto model = random_gpt(small_config(16));
  const auto used = [&](const SamplingOptions& options) {
    GraphCounts counts;
    TextGenerator generator(*model, {1}, options, torch::kCPU, 2, {.make_graph = graphs_by_hand(counts)});
    for (int i = 0; i < 10; ++i) generator.next();
    return std::string(counts.captures > 0 ? "graphs" : "") + (generator.cache_bytes() > 0 ? " cache" : "");
  };
  CHECK(used({}) == "graphs cache");
  CHECK(used({.cached = false}) == "");
  CHECK(used({.graphs = false}) == " cache");
}

TEST_CASE("recorded work does not need the host, with every mixer, kind of positions and sampling option",
          "[sampling]") {
  auto config = small_config(8);
  if (GENERATE(true, false)) {
    config.mixer = any_incremental_mixer();
    CAPTURE(kind_of(config.mixer));
    return check_recordings(config, {.temperature = 1});
  }
  config.positions = any_positions();
  check_recordings(config, {.temperature = GENERATE(0.0, 1.0), .top_p = GENERATE(0.5, 1.0)});
}

TEST_CASE("graphs find the hypotheses of the host's beam search with every mixer and kind of positions", "[beam]") {
  auto config = small_translation();
  if (GENERATE(true, false)) {
    config.mixer = any_incremental_mixer();
    CAPTURE(kind_of(config.mixer));
    return check_hypotheses(config);
  }
  config.positions = any_positions();
  config.mixer = any_mixer_with_scores();
  check_hypotheses(config);
}

TEST_CASE("graphs find the host's hypotheses with every mixer that sees the source", "[beam]") {
  static const auto all = every_mixer_that([](const MixerConfig& mixer) {
    const bool crosses = std::visit([](const auto& options) { return options.can_cross(); }, mixer);
    return crosses && !problem_of(mixer, small_translation().cross_shape());
  });
  auto config = small_translation();
  config.cross_mixer = one_of(all);
  CAPTURE(kind_of(config.cross_mixer));
  check_hypotheses(config);
}

TEST_CASE("the hypotheses do not depend on chunks, buckets, steps to warm up or the width of the beam", "[beam]") {
  const auto model = wide_translator(small_translation());
  const BeamOptions options{.beam = GENERATE(1, 2, 5, 50), .alpha = 0.6, .further_tokens = GENERATE(0, 50)};
  const auto expected = beam_search(*model, sources, small_vocabulary, {1}, options, torch::kCPU);
  const std::int64_t bucket = GENERATE(1, 3, 32), warm = GENERATE(0, 1000), chunk = GENERATE(1, 4);
  GraphCounts counts;
  const auto found = beam_search(*model, sources, small_vocabulary, {1}, options, torch::kCPU,
                                 {.make_graph = recorded_graphs(counts),
                                  .smallest_bucket = bucket,
                                  .steps_to_warm_up = warm,
                                  .first_chunk = chunk,
                                  .longest_chunk = chunk});
  CHECK(are_near(found, expected));
  if (warm == 1000) CHECK(counts.captures == 0);
}

TEST_CASE("the host searches if graphs are switched off, cannot be recorded or do not fit the mixer", "[beam]") {
  auto config = small_translation();
  const bool sorts = GENERATE(false, true);
  if (sorts) config.mixer = LshOptions{.rounds = 2, .chunk = 4};
  const auto model = wide_translator(config);
  const bool wanted = GENERATE(true, false);
  const int failing = GENERATE(1, 2);
  const BeamOptions options{.beam = 3, .further_tokens = 50, .graphs = wanted};
  GraphCounts counts;
  auto plan = small_plan(counts);
  plan.make_graph = graphs_by_hand(counts, failing);
  const auto found = beam_search(*model, sources, small_vocabulary, {}, options, torch::kCPU, plan);
  CHECK(are_near(found, beam_search(*model, sources, small_vocabulary, {}, options, torch::kCPU)));
  CHECK(counts.captures == (sorts || !wanted ? 0 : failing));
}

TEST_CASE("recorded steps of a beam search do not need the host", "[beam]") {
  auto config = small_translation();
  config.positions = any_positions();
  EncoderDecoder model(config, small_vocabulary);
  move_to_meta(model);
  int captures = 0;
  const auto make = [&](torch::Device, std::string&) { return std::make_unique<GraphWithoutHost>(captures); };
  // At the end the host reads the continuations, which have no values here.
  CHECK_THROWS_WITH(
      beam_search(
          model, sources, small_vocabulary, {1}, {.beam = 3}, torch::kMeta,
          {.make_graph = make, .smallest_bucket = 4, .steps_to_warm_up = 1, .first_chunk = 12, .longest_chunk = 12}),
      Catch::Contains("copy out of meta tensor"));
  CHECK(captures == 3);  // buckets of 4, 8 and 9 tokens
}

TEST_CASE("the check of recorded work finds work that needs the host", "[sampling]") {
  const auto x = torch::ones({3}, torch::kMeta);
  int captures = 0;
  GraphWithoutHost graph(captures);
  using Work = std::function<void()>;
  for (const auto& work :
       {Work([&] { x[0].item<float>(); }), Work([&] { x.nonzero(); }), Work([&] { x.masked_select(x > 0); }),
        Work([&] { x.index({x > 0}); }), Work([&] { x.cpu(); }), Work([&] { torch::tensor({1.F}).to(torch::kMeta); }),
        Work([&] { x.clone().copy_(torch::zeros({3})); })})
    CHECK_THROWS(graph.capture(work));
  CHECK(captures == 0);
  graph.capture([&] { x.clone().copy_(x + 1); });
  CHECK(captures == 1);
}

TEST_CASE("a recorded graph computes from the device's tensors alone", "[sampling]") {
  auto x = torch::ones({3}, torch::kDouble), y = torch::zeros({3}, torch::kDouble);
  double factor = 2;
  GraphCounts counts;
  RecordedGraph graph(counts);
  graph.capture([&] { y.copy_((x * factor).add_(x)); });
  CHECK(y.eq(0).all().item<bool>());  // a recording computes nothing
  factor = 5;
  for (const double value : {1.0, 4.0}) {
    x.fill_(value);
    graph.replay();
    CHECK(y.eq(3 * value).all().item<bool>());
  }
  RecordedGraph others(counts);
  CHECK_THROWS(others.capture([&] { y.fill_(x[0].item<double>()); }));
  RecordedGraph unrecorded(counts);
  unrecorded.capture([&] {  // as the kernels of cpu/ write
    const auto written = torch::empty({3}, torch::kDouble);
    std::fill_n(written.data_ptr<double>(), 3, 1.0);
    y.copy_(written);
  });
  unrecorded.replay();
  CHECK(y.isnan().all().item<bool>());
}

}  // namespace metaformer::test_device_generation
