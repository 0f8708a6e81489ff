// The memory, operations and accuracy that benchmarks report; times are not tested. A core is compared with a mixer
// whose projections are permutations. They give p, q, k and v exactly, so the outputs must be equal to the bit.

#include <ATen/record_function.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "attention/mixer.h"
#include "bench/attention_bench.h"
#include "bench/step_bench.h"
#include "bench/timing.h"
#include "config/loader.h"
#include "config/mixer_config.h"
#include "ops/attention.h"
#include "support/graph_by_hand.h"
#include "support/torch_catch.h"

namespace metaformer::test_attention_bench {

namespace {

constexpr AttentionShape shape{.batch = 2, .heads = 3, .context = 13, .head_width = 8};

std::vector<MixerConfig> mixers_with_cores() {
  std::vector<MixerConfig> list = {ScaledDotProductOptions{},
                                   QuadraticOptions{},
                                   QuadraticOptions{.form = QuadraticForm::full},
                                   LshOptions{},
                                   LshOptions{.rounds = 2, .chunk = 4},
                                   AveragePoolingOptions{},
                                   AveragePoolingOptions{.window = {.tokens = 0}},
                                   IdentityOptions{},
                                   NoneOptions{}};
  for (const auto constraint :
       {MetricConstraint::symmetric, MetricConstraint::psd, MetricConstraint::diagonal, MetricConstraint::identity}) {
    list.emplace_back(MetricOptions{.constraint = constraint});
    if (constraint != MetricConstraint::symmetric)
      list.emplace_back(MetricOptions{.constraint = constraint, .score = MetricScore::distance});
    list.emplace_back(MetricOptions{.constraint = constraint, .values = MixerValues::own});
  }
  list.emplace_back(QuadraticOptions{.values = MixerValues::own});
  list.emplace_back(
      MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance, .values = MixerValues::own});
  return list;
}

// A copy of x, because attention treats keys and values at the same address as one tensor.
torch::Tensor heads_of(const torch::Tensor& x_bcd) { return split_heads(x_bcd.clone(), shape.heads); }

// The form of a mixer whose projection is the identity.
torch::Tensor form_of_metric(Mixer& mixer, const MetricOptions& options) {
  const auto right_nkd = mixer.score_form()->right_nrd / (options.score == MetricScore::distance ? 2 : 1);
  std::vector<torch::Tensor> forms;
  for (std::int64_t n = 0; n < shape.heads; ++n)
    forms.push_back(right_nkd[n].narrow(1, n * shape.head_width, shape.head_width));
  const auto form_nkk = torch::stack(forms);
  return options.constraint == MetricConstraint::diagonal ? form_nkk.diagonal(0, 1, 2) : form_nkk;
}

// Sets the mixer's projections, and returns the inputs of its core.
CoreInputs inputs_of(const MixerConfig& options, Mixer& mixer, const torch::Tensor& x_bcd) {
  auto parameters = mixer.named_parameters();
  const auto identity = torch::eye(shape.width());
  const auto q_rows = torch::randperm(shape.width()), k_rows = torch::randperm(shape.width());
  if (is<ScaledDotProductOptions>(options)) {
    parameters["query_key_value.weight"].copy_(
        torch::cat({identity.index_select(0, q_rows), identity.index_select(0, k_rows), identity}));
    return {heads_of(x_bcd.index_select(2, q_rows)), heads_of(x_bcd.index_select(2, k_rows)), heads_of(x_bcd)};
  }
  if (is<LshOptions>(options)) {
    parameters["projection.weight"].copy_(torch::cat({identity.index_select(0, q_rows), identity}));
    return {heads_of(x_bcd.index_select(2, q_rows)), heads_of(x_bcd)};
  }
  auto* projection = parameters.find("projection.weight");
  const bool own_values = projection != nullptr && projection->size(0) > shape.width();
  if (projection != nullptr)
    projection->copy_(own_values ? torch::cat({identity, identity.index_select(0, k_rows)}) : identity);
  const auto with_values = [&](CoreInputs inputs) {
    if (own_values) inputs.push_back(heads_of(x_bcd.index_select(2, k_rows)));
    return inputs;
  };
  if (const auto* metric = std::get_if<MetricOptions>(&options)) {
    if (metric->constraint == MetricConstraint::identity) return with_values({heads_of(x_bcd)});
    return with_values({heads_of(x_bcd), form_of_metric(mixer, *metric)});
  }
  if (const auto* form = parameters.find("form")) return with_values({heads_of(x_bcd), *form});
  if (const auto* form = parameters.find("full_form")) return {x_bcd, heads_of(x_bcd), *form};
  return {x_bcd};
}

Visibility visibility_of(bool segmented) {
  if (!segmented) return self_visibility(true, {});
  auto segment_bc = torch::arange(shape.context).div(5, "floor").repeat({shape.batch, 1});
  segment_bc.narrow(1, shape.context - 2, 2).fill_(-1);
  return self_visibility(true, segment_bc);
}

AttentionRequest core_request(const std::vector<MixerConfig>& mixers) {
  AttentionRequest request;
  request.shapes = {shape};
  request.mixers = mixers;
  request.core = true;
  request.rounds = 1;
  return request;
}

std::vector<AttentionResult> bench(const AttentionRequest& request) {
  return bench_attention(request, [](const std::string&) {});
}

}  // namespace

TEST_CASE("a core equals its mixer without the projections", "[attention_core]") {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(5);
  const auto visibility = visibility_of(GENERATE(false, true));
  for (const auto& mixer_options : mixers_with_cores()) {
    for (const auto backend : backends_of(mixer_options)) {
      if (backend == Backend::fused) continue;
      const auto options = with_backend(mixer_options, backend);
      CAPTURE(kind_of(options), to_string(backend), visibility.has_segments());
      const auto mixer = make_mixer(options, {.width = shape.width(), .heads = shape.heads, .context = shape.context});
      for (auto& parameter : mixer->parameters()) parameter.copy_(torch::randn_like(parameter));
      const auto x_bcd = torch::randn({shape.batch, shape.context, shape.width()});
      const auto inputs = inputs_of(options, *mixer, x_bcd);
      Pass pass;
      const auto expected = mixer->forward(x_bcd, x_bcd, visibility, nullptr, pass);
      auto given = make_core_mix(options, shape)(inputs, visibility);
      const auto weights = mixer->named_parameters();
      if (const auto* output = weights.find("output.weight")) given = torch::linear(given, *output);
      CHECK(torch::equal(given, expected));
    }
  }
}

TEST_CASE("the inputs of a core have the shapes of the mixer's inputs, and its scores a standard deviation of 1",
          "[attention_core]") {
  NormalDraws draws(torch::kCPU);
  const AttentionShape wide{.batch = 4, .heads = 8, .context = 64, .head_width = 32};
  const double root_k = std::sqrt(32.0);
  const auto std_of = [&](const torch::Tensor& score) { return (score / root_k).std().item<double>(); };
  const auto drawn = [&](const MixerConfig& options) { return draw_core_inputs(options, wide, draws).value(); };
  const auto form_scores = [](const CoreInputs& in) {
    const auto form_nkk = in[1].dim() == 3 ? in[1] : torch::diag_embed(in[1]);
    return torch::einsum("bnck,nkj,bnej->bnce", {in[0], form_nkk, in[0].roll(1, 0)});  // pairs of different sequences
  };
  const auto qkv = drawn(ScaledDotProductOptions{});
  REQUIRE(qkv.size() == 3);
  for (const auto& vectors : qkv) {  // with the strides of a projection
    CHECK(vectors.sizes() == std::vector<std::int64_t>{4, 8, 64, 32});
    CHECK(vectors.strides() == std::vector<std::int64_t>{64 * 256, 32, 256, 1});
    CHECK(vectors.is_leaf());
  }
  CHECK(std_of(torch::matmul(qkv[0], qkv[1].transpose(2, 3))) == Approx(1).margin(0.05));
  for (const MixerConfig& options : {MixerConfig(QuadraticOptions{}), MixerConfig(MetricOptions{}),
                                     MixerConfig(MetricOptions{.constraint = MetricConstraint::diagonal})})
    CHECK(std_of(form_scores(drawn(options))) == Approx(1).margin(0.1));
  const auto full = drawn(QuadraticOptions{.form = QuadraticForm::full});
  CHECK(std_of(torch::einsum("bcd,ndf,bef->bnce", {full[0], full[2], full[0].roll(1, 0)})) == Approx(1).margin(0.1));
  for (const auto constraint : {MetricConstraint::psd, MetricConstraint::diagonal}) {
    const auto distance = drawn(MetricOptions{.constraint = constraint, .score = MetricScore::distance});
    const auto form_nkk = distance[1].dim() == 3 ? distance[1] : torch::diag_embed(distance[1]);
    CHECK((torch::linalg_eigvalsh(form_nkk, "L") > -1e-5).all().item<bool>());
    // The part that varies along the context, 2 p M p' - p' M p'.
    const auto length = torch::einsum("bnek,nkj,bnej->bne", {distance[0], form_nkk, distance[0]}).roll(1, 0);
    CHECK(std_of(2 * form_scores(distance) - length.unsqueeze(2)) < 1.5);
    CHECK(std_of(2 * form_scores(distance) - length.unsqueeze(2)) > 0.5);
  }
}

TEST_CASE("the benchmark of cores reports correct operations, errors and memory for every mixer", "[attention_core]") {
  auto request = core_request({});
  request.type = GENERATE(torch::kFloat, torch::kBFloat16);
  for (const auto& mixer : mixers_with_cores())
    for (const auto backend : backends_of(mixer))
      if (backend != Backend::fused) request.mixers.push_back(with_backend(mixer, backend));
  const auto results = bench(request);
  REQUIRE(results.size() == request.mixers.size());
  const double largest = request.type == torch::kFloat ? 1e-5 : 5e-2;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto& result = results[i];
    CAPTURE(result.mixer, result.backend);
    const double operations =
        forward_operations(request.mixers[i], shape, true) - projection_operations(request.mixers[i], shape);
    CHECK(result.ms > 0);
    CHECK(result.teraflops == Approx(3 * operations / result.ms * 1e-9));
    CHECK(result.timed_by == TimedBy::clock);
    CHECK(result.peak_bytes >= result.kept_bytes);
    CHECK(result.error.has_value() == (result.mixer != "none"));  // its output is zeros
    if (result.error) CHECK(*result.error < largest);
    if (result.error && request.type == torch::kBFloat16 && result.mixer != "identity") CHECK(*result.error > 1e-4);
  }
}

TEST_CASE("the memory of a core is that of attention without its inputs", "[attention_core]") {
  auto request = core_request(
      {ScaledDotProductOptions{.backend = Backend::composed}, MetricOptions{.backend = Backend::composed}});
  request.shapes = {{.batch = 2, .heads = 2, .context = 64, .head_width = 16}};
  const auto results = bench(request);
  const std::int64_t vectors = 2 * 64 * 2 * 16 * 4, number_per_row = 2 * 2 * 64 * 4;
  CHECK(results[0].kept_bytes == vectors + number_per_row);             // t
  CHECK(results[1].kept_bytes == 2 * vectors + number_per_row);         // also q = p M
  CHECK(results[0].peak_bytes >= results[0].kept_bytes + 3 * vectors);  // also the gradients of q, k and v
}

TEST_CASE("every backend of the library's attention equals composed attention", "[attention_core]") {
  auto request = core_request({ScaledDotProductOptions{.backend = Backend::composed}});
  request.library = true;
  const auto results = bench(request);
  std::vector<std::string> backends;
  for (const auto& result : results) {
    REQUIRE(result.error);
    CHECK(*result.error < 1e-5);
    CHECK(result.teraflops / results[0].teraflops == Approx(results[0].ms / result.ms));
    backends.push_back(result.backend);
  }
  CHECK(backends == std::vector<std::string>{"composed", "library_flash", "library_math"});  // those of a CPU
  const auto& context = at::globalContext();
  CHECK((context.userEnabledFlashSDP() && context.userEnabledMathSDP() && context.userEnabledMemEfficientSDP()));
}

TEST_CASE("a core that the benchmark does not know is skipped with a reason", "[attention_core]") {
  const auto request = core_request({MetricOptions{.score = MetricScore::as_published, .backend = Backend::reference},
                                     MetricOptions{.values = MixerValues::own, .qk_norm = true},
                                     QuadraticOptions{.qk_norm = true, .backend = Backend::composed},
                                     QuadraticOptions{.fixed_norm = true, .backend = Backend::composed},
                                     MetricOptions{.fixed_norm = true, .backend = Backend::composed}});
  for (const auto& result : bench(request)) {
    CHECK_THAT(result.skipped, Mentions("not know|core"));
    CHECK(result.predicted_bytes == 0);
  }
}

TEST_CASE("candidates that can be recorded are timed by replays, forward and backward", "[attention_core]") {
  auto request =
      core_request({MetricOptions{.backend = Backend::composed}, MetricOptions{.backend = Backend::reference}});
  request.core = GENERATE(true, false);
  request.direction = GENERATE(Direction::both, Direction::forward);
  request.rounds = 3;
  GraphCounts counts;
  request.make_graph = [&] { return std::make_unique<GraphByHand>(counts, /*fails=*/counts.captures == 1); };
  std::vector<std::string> lines;
  const auto results = bench_attention(request, [&](const std::string& line) { lines.push_back(line); });
  CHECK(counts.captures == 2);
  CHECK(lines.at(0) == "metric reference is not timed as a graph: this work needs the host");
  CHECK(results[0].timed_by == TimedBy::graph);
  CHECK(results[1].timed_by == TimedBy::clock);  // the recording failed
  CHECK(counts.replays >= 2 + 3);
}

namespace {

// Numbers of graph nodes that this thread's operations create and that a backward pass calls.
struct Nodes {
  int made = 0, called_back = 0;
} nodes;

std::unique_ptr<at::ObserverContext> count_node(const at::RecordFunction& function) {
  if (std::string_view(function.name()).starts_with("autograd::engine::evaluate_function"))
    ++nodes.called_back;
  else
    nodes.made += function.seqNr() >= 0;
  return nullptr;
}

// A replay of the first recording takes 200 ms, one of the second 100 ms.
class WaitingGraph : public DeviceGraph {
 public:
  explicit WaitingGraph(std::vector<Nodes>& recordings) : recordings_(recordings) {}
  void capture(const std::function<void()>& work) override {
    nodes = {};
    const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count_node));
    work();
    at::removeCallback(handle);
    recordings_.push_back(nodes);
    wait_ = std::chrono::milliseconds(recordings_.size() == 1 ? 200 : 100);
  }
  void replay() override { std::this_thread::sleep_for(wait_); }

 private:
  std::vector<Nodes>& recordings_;
  std::chrono::milliseconds wait_{};
};

}  // namespace

TEST_CASE("the time of a backward pass is the time of both passes minus that of the forward pass", "[attention_core]") {
  auto request = core_request({MetricOptions{.backend = Backend::composed}});
  request.core = GENERATE(true, false);
  request.direction = Direction::backward;
  std::vector<Nodes> recordings;
  request.make_graph = [&] { return std::make_unique<WaitingGraph>(recordings); };
  const auto results = bench(request);
  REQUIRE(recordings.size() == 2);
  CHECK((recordings[0].made > 0 && recordings[0].called_back > 0));
  CHECK((recordings[1].made > 0 && recordings[1].called_back == 0));  // training also keeps its graph
  CHECK((results[0].ms > 50 && results[0].ms < 150));
  const double operations = forward_operations(request.mixers[0], shape, true) -
                            (request.core ? projection_operations(request.mixers[0], shape) : 0);
  CHECK(results[0].teraflops == Approx(2 * operations / results[0].ms * 1e-9));
  CHECK(results[0].peak_bytes > results[0].kept_bytes);  // memory of both passes
}

TEST_CASE("the meter counts the bytes of tensors", "[bench]") {
  auto before = torch::ones({1000});
  {
    const MemoryMeter meter(torch::kCPU);
    auto kept = torch::ones({2500});
    CHECK(meter.current_bytes() == 10'000);
    { auto passing = torch::ones({5000}); }
    CHECK(meter.current_bytes() == 10'000);
    CHECK(meter.peak_bytes() == 30'000);
    before = kept;  // outlives the meter
  }
  CHECK(before.sum().item<float>() == 2500);
}

TEST_CASE("the pair table gives p M p", "[bench]") {
  const auto p_bnck = torch::randn({2, 3, 7, 5}, torch::kDouble), triangle = torch::randn({3, 15}, torch::kDouble);
  auto metric_nkk = torch::zeros({3, 5, 5}, torch::kDouble);
  for (std::int64_t i = 0, l = 0; i < 5; ++i)
    for (std::int64_t j = 0; j <= i; ++j, ++l)
      for (const auto& [row, column] : {std::pair{i, j}, std::pair{j, i}})
        metric_nkk.select(1, row).select(1, column).copy_(triangle.select(1, l));
  const auto expected = torch::einsum("bnck,nkj,bnej->bnce", {p_bnck, metric_nkk, p_bnck});
  CHECK(torch::allclose(pair_table_scores(p_bnck, triangle), expected, 1e-12, 1e-12));
  CHECK(pair_table_bytes(32, 8, 256, 48, 4) == 32.0 * 8 * 4 * (256 * 257 / 2) * (48 * 49 / 2));
}

TEST_CASE("operations are those of a layer's matrix products, and a core's exclude the projections", "[bench]") {
  const double b = 2, n = 3, c = 13, k = 8, d = 24, pairs = b * c * c, seen = b * c * (c + 1) / 2;
  const QuadraticOptions full{.form = QuadraticForm::full};
  const MetricOptions identity{.constraint = MetricConstraint::identity};
  const std::vector<std::tuple<MixerConfig, double, double>> cases = {
      // operations of the projections, of the core
      {ScaledDotProductOptions{}, 4 * 2 * b * c * d * d, 2 * 2 * pairs * d},
      {MetricOptions{}, 2 * 2 * b * c * d * d, 2 * b * c * d * k + 2 * 2 * pairs * d},
      {QuadraticOptions{}, 2 * 2 * b * c * d * d, 2 * b * c * d * k + 2 * 2 * pairs * d},
      {full, 2 * 2 * b * c * d * d, 2 * b * c * n * d * d + 2 * pairs * n * d + 2 * pairs * d},
      {identity, 2 * 2 * b * c * d * d, 2 * 2 * pairs * d},
      {AveragePoolingOptions{}, 0, 0},
      {IdentityOptions{}, 0, 0}};
  for (const auto& [mixer, projections, core] : cases) {
    CAPTURE(kind_of(mixer));
    CHECK(projection_operations(mixer, shape) == projections);
    CHECK(forward_operations(mixer, shape, false) == projections + core);
  }
  CHECK(forward_operations(ScaledDotProductOptions{}, shape, true) == 4 * 2 * b * c * d * d + 2 * 2 * seen * d);
}

TEST_CASE("the memory of composed attention grows linearly with the context, that of the reference quadratically",
          "[bench]") {
  AttentionRequest request;
  for (const std::int64_t context : {128, 256, 512})
    request.shapes.push_back({.batch = 1, .heads = 2, .context = context, .head_width = 16});
  request.mixers = {MetricOptions{.backend = Backend::composed}, MetricOptions{.backend = Backend::reference}};
  request.rounds = 1;
  int lines = 0;
  const auto results = bench_attention(request, [&](const std::string&) { ++lines; });
  REQUIRE(results.size() == 6);
  CHECK(lines == 3);
  const auto kept = [&](std::size_t i) { return static_cast<double>(results[i].kept_bytes); };
  CHECK(kept(4) < 2.2 * kept(2));
  CHECK(kept(5) > 3 * kept(3));
  for (const auto& result : results) {
    CHECK(result.skipped.empty());
    CHECK((result.ms > 0 && result.teraflops > 0));
    CHECK(result.peak_bytes >= result.kept_bytes);
    REQUIRE(result.error);
    CHECK((*result.error > 0 && *result.error < 1e-5));
  }
  // A candidate that does not fit into memory is skipped with its size.
  const auto table = bench(
      {.shapes = {{.batch = 32, .heads = 8, .context = 2048, .head_width = 48}}, .mixers = {}, .pair_table = true});
  REQUIRE(table.size() == 1);
  CHECK_FALSE(table[0].skipped.empty());
  CHECK(table[0].predicted_bytes > 1e12);
}

}  // namespace metaformer::test_attention_bench
