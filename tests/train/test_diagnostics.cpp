// Diagnostics of a training: norms and score forms by block, measurements of attention, the warning about collapsed
// attention, and the profile of steps.

#include <cmath>

#include "attention/mixer.h"
#include "config/mixer_config.h"
#include "run/checkpoint_surgery.h"
#include "support/any_mixer.h"
#include "tasks/batches.h"
#include "tasks/evaluation.h"
#include "tasks/task_examples.h"
#include "train/diagnostics.h"
#include "train/step_profiler.h"

namespace metaformer::test_diagnostics {

namespace {

using Json = nlohmann::ordered_json;

// The only part of a model without blocks; empty for a model with blocks.
std::string only_part(const ModelConfig& model) {
  return is<TransformerConfig>(model) ? "" : is<FeedForwardModelConfig>(model) ? "hidden_layer" : "block_1";
}

bool is_scored(const ModelConfig& model) {
  const auto* transformer = std::get_if<TransformerConfig>(&model);
  return transformer && has_scores(transformer->mixer);
}

void check_attention(const Json& block, const std::string& prefix) {
  for (const auto& entropy : block.at(prefix + "attention_entropy")) CHECK((entropy >= 0 && entropy <= 1));
  CHECK(block.at(prefix + "attention_entropy").size() == 2);
  for (const auto& deviation : block.at(prefix + "score_std")) CHECK(deviation >= 0);
  CHECK(block.at(prefix + "score_max") >= 0);
}

void check_block(const Json& block) {
  for (const auto* positive : {"stream_norm", "feed_forward_norm", "stream_gradient"}) CHECK(block.at(positive) > 0);
  CHECK(block.at("mixer_norm") >= 0);
}

bool is_advised(const std::filesystem::path& run, const std::string& key) {
  const auto log = read_text(run / "train.log");
  const auto warning = log.find("has collapsed");
  CHECK(log.find("has collapsed", warning + 1) == std::string::npos);  // only one warning
  return warning != std::string::npos && log.find(key, warning) < log.find('\n', warning);
}

// A training with scores so large that every query attends to one key, and a rate so low that they do not change.
Overrides one_token(const Overrides& more) {
  return joined({"model.mixer=metric", "model.mixer.score_std=100000", "train.learning_rate=1e-9",
                 "train.schedule={kind: constant, warmup_steps: 2}"},
                more);
}

}  // namespace

TEST_CASE("attention has collapsed if heads attend mostly to one token, or all uniformly to every token", "[watch]") {
  const double low = least_mean_entropy, high = least_entropy_of_uniform, nan = std::nan("");
  CHECK(collapsed({}) == CollapseKind::none);
  CHECK(collapsed({0, low, 1.9 * low}) == CollapseKind::one_token);
  CHECK(collapsed({0, low, 2.1 * low}) == CollapseKind::none);
  CHECK(collapsed({0, 0, 0, 0, 0, least_greatest_entropy}) == CollapseKind::none);
  CHECK(collapsed({1, high}) == CollapseKind::uniform);
  CHECK(collapsed({1, high - 0.01}) == CollapseKind::none);
  CHECK(collapsed({0, 1}) == CollapseKind::none);
  CHECK(collapsed({0, nan}) == CollapseKind::none);
  CHECK(collapsed({nan, 1}) == CollapseKind::none);
}

TEST_CASE("the advice after a collapse to one token is to limit scores, and for uniform attention larger scores",
          "[watch]") {
  const Workplace place;
  const auto remedies = [&](CollapseKind kind, const Overrides& mixer) {
    return collapse_remedies(kind, place.experiment(mixer).config);
  };
  using Words = std::vector<std::string>;
  const Overrides published = {"model.mixer={kind: metric, score_std: 0.3}"};
  CHECK(remedies(CollapseKind::one_token, published) ==
        Words{"model.mixer.qk_norm=true", "model.mixer.values=own", "a lower train.learning_rate"});
  CHECK(remedies(CollapseKind::uniform, published) ==
        Words{"a larger model.mixer.score_std (0.3 now)", "another train.learning_rate"});
  const Overrides limited = {"model.mixer={kind: scaled_dot_product, qk_norm: true, score_std: null}"};
  CHECK(remedies(CollapseKind::one_token, limited) == Words{"a lower train.learning_rate"});
  CHECK(remedies(CollapseKind::uniform, limited) == Words{"another train.learning_rate"});
}

TEST_CASE("a training has forty looks at attention, the last at its end, and none before its first step", "[watch]") {
  const auto steps = GENERATE(std::int64_t{40}, std::int64_t{2000}, std::int64_t{2019});
  std::vector<std::int64_t> due;
  for (std::int64_t step = 0; step <= steps; ++step)
    if (is_look_due(step, steps)) due.push_back(step);
  CHECK(due.size() == 40);
  CHECK(due.front() == (steps + 39) / 40);
  CHECK(due.back() == steps);
  CHECK(is_look_due(1, 7));
  CHECK_FALSE(is_look_due(0, 7));
}

TEST_CASE("uniform attention is a collapse only after the warm-up, if it hardly changes between two looks", "[watch]") {
  const Workplace place;
  const auto experiment = place.experiment({"train.steps=80", "train.schedule={kind: constant, warmup_steps: 10}"});
  Parts parts(experiment);
  StreamDiagnostics diagnostics(experiment.config, parts.task, *parts.model, torch::kCPU);
  const AttentionWatch watch(experiment.config, diagnostics);
  Progress progress;
  const std::vector<std::tuple<std::int64_t, double, bool>> looks = {
      {6, 1, false},     {10, 1, false}, {12, 1, false},      {13, 1, false},  // 13: for the diagnostics, not a look
      {14, 0.5, false},  {16, 1, false}, {18, 0.9991, false},                  // attention changes
      {20, 0.999, true}, {22, 0, true}};                                       // the first collapse is kept
  for (const auto& [step, entropy, is_found] : looks) {
    progress.step = step;
    watch.note({entropy, entropy}, progress);
    CHECK(progress.collapse.has_value() == is_found);
  }
  CHECK(progress.collapse->kind == CollapseKind::uniform);
  CHECK(progress.collapse->step == 20);
  CHECK(progress.collapse->entropy == Approx(0.999));
}

TEST_CASE("training is the same to the byte with and without measurements, for many tasks and models", "[watch]") {
  const Workplace place;
  std::vector<std::pair<std::string, Overrides>> models = {
      {"sorter", sorter({"model.heads=2"})},
      {"classifier", classifier(place, {"task.head=first_token", "data.packing=spfhp"})},
      {"regions", classifier(place, {"model.embedding.region=sequence"})},
      {"pairs", pairs(place, {"model.layers=1", "model.mixer=identity", "model.cross_mixer=metric"})},
      {"slices", {"train.cpu_slices=2", "train.accumulate=2"}},
      {"frozen", {"train.freeze=[transformer.token_embedding, transformer.blocks.0]"}},
      {"without residual", {"model.norm.position=post", "model.residual=false"}},
      {"identity", {"model.mixer=identity"}},
      {"fp16", {"train.precision=fp16"}},
      {"alibi", {"model.positions=alibi"}}};
  models.insert(models.end(), language_models.begin(), language_models.end());
  const auto index = GENERATE_COPY(range(std::size_t{0}, models.size()));
  const auto& [name, overrides] = models[index];
  INFO(name);
  const bool is_language_model = index >= 4;  // after the other tasks
  const bool crosses = name == "pairs";
  auto more = joined(joined(overrides, evaluates_and_saves_once),
                     {"train.steps=6", "train.schedule={kind: constant, warmup_steps: 2}"});
  const auto model = place.experiment(more).config.model;
  place.train("plain", more);
  more.emplace_back("train.diagnostics_interval=1");
  place.train("measured", more);
  CHECK(model_bytes(place / "plain") == model_bytes(place / "measured"));
  CHECK(state_bytes(place / "plain") == state_bytes(place / "measured"));
  const auto lines = metrics_of(place / "measured", "diagnostics");
  REQUIRE(lines.size() == 6);
  CHECK(metrics_of(place / "plain", "diagnostics").empty());
  const auto part = is_language_model ? only_part(model) : "";
  for (const auto& line : lines) {
    if (is_language_model) {
      const auto& embedding = line.at("token_embedding");
      CHECK(embedding.contains("stream_norm") == part.empty());
      CHECK(embedding.at(part.empty() ? "stream_gradient" : "gradient_norm") > 0);
    }
    for (const auto* field : {"gradient_norm", "update_ratio"})
      if (!part.empty()) CHECK(line.at(part).at(field) > 0);
    auto blocks = std::vector<std::string>{"block_0"};
    if (crosses) blocks.emplace_back("encoder_block_0");
    if (is_language_model) blocks.emplace_back("block_1");
    if (!part.empty()) blocks.clear();
    for (const auto& block_name : blocks) {
      const auto& block = line.at(block_name);
      const bool is_decoder = crosses && block_name == "block_0";
      const bool scores = crosses ? !is_decoder : is_scored(model);
      check_block(block);
      CHECK(block.contains("attention_entropy") == scores);
      CHECK(block.contains("cross_attention_entropy") == is_decoder);
      CHECK(block.contains("cross_norm") == is_decoder);
      if (is_language_model && scores) check_attention(block, "");
      if (is_decoder) check_attention(block, "cross_");
    }
  }
}

TEST_CASE("the gradient by depth equals that of backward, and measuring it changes no parameter's gradient",
          "[watch]") {
  struct Keeping : Probe {
    bool wants_scores() const override { return false; }
    void stream(StreamPoint point, const torch::Tensor& x_bcd) override {
      if (point != StreamPoint::embedding && point != StreamPoint::after_feed_forward) return;
      x_bcd.retain_grad();
      kept.push_back(x_bcd);
    }
    std::vector<torch::Tensor> kept;
  } probe;
  const Workplace place;
  Parts parts(place.experiment({}));
  parts.run(0, 1e-3);
  const auto gradients = parts.parameters->gradients().clone();
  StreamDiagnostics diagnostics(parts.experiment.config, parts.task, *parts.model, torch::kCPU);
  const auto stacks = diagnostics.measure(StreamDiagnostics::Gradients::of_stream);
  CHECK(torch::equal(parts.parameters->gradients(), gradients));
  REQUIRE(stacks.size() == 1);
  const auto batch = beginning_of(parts.task.batches->evaluation_batch(Split::validation, 0, torch::kCPU), 8);
  Pass pass{.probe = &probe};
  (parts.task.objective(parts.model->forward(batch, nullptr, pass), batch) / batch.weight).backward();
  REQUIRE(probe.kept.size() == 3);
  const auto norm = [&](std::size_t i) { return probe.kept[i].grad().to(torch::kDouble).norm().item<double>(); };
  CHECK(stacks[0].gradients->embedding == Approx(norm(0)).epsilon(1e-4));
  CHECK(stacks[0].gradients->after_feed_forward.at(0) == Approx(norm(1)).epsilon(1e-4));
  CHECK(stacks[0].gradients->after_feed_forward.at(1) == Approx(norm(2)).epsilon(1e-4));
}

TEST_CASE("attention with a context of 2048 tokens can be measured", "[watch]") {
  const Workplace place;
  Parts parts(place.experiment({"model.context=2048", "model.heads=16", "data.validation_fraction=0.5",
                                "model.positions=none", "train.batch_size=1"}));
  StreamDiagnostics diagnostics(parts.experiment.config, parts.task, *parts.model, torch::kCPU);
  const auto stacks = diagnostics.measure(StreamDiagnostics::Gradients::none);
  REQUIRE(stacks.size() == 1);
  CHECK(stacks[0].own.size() == 2);
  CHECK_FALSE(stacks[0].gradients);
  CHECK(attention_entropies(stacks).size() == 32);
}

TEST_CASE("collapsed attention causes one warning, also in a resumed training, and is in the summary", "[watch]") {
  const Workplace place;
  place.train("run", one_token({"train.steps=5"}));
  CHECK(is_advised(place / "run", "model.mixer.qk_norm=true"));
  const auto summary = place.train("run", one_token({"train.steps=12"}), true);
  CHECK(is_advised(place / "run", "model.mixer.values=own"));
  const auto& collapse = summary.at("attention_collapse");
  CHECK(collapse.at("step") == 1);
  CHECK(collapse.at("kind") == "one_token");
  CHECK(collapse.at("entropy") < 0.01);
  CHECK_FALSE(place.train("usual", {}).contains("attention_collapse"));
  CHECK_FALSE(is_advised(place / "usual", "train.learning_rate"));
}

TEST_CASE("diagnostics find a collapse between two looks, and the advice omits options that are set", "[watch]") {
  const Workplace place;
  const auto summary =
      place.train("run", one_token({"model.mixer={kind: scaled_dot_product, qk_norm: true, score_std: 1e5}",
                                    "train.steps=60", "train.diagnostics_interval=1"}));
  CHECK(summary.at("attention_collapse").at("kind") == "one_token");
  CHECK(summary.at("attention_collapse").at("step") == 1);
  CHECK(is_advised(place / "run", "train.learning_rate"));
  CHECK_FALSE(is_advised(place / "run", "model.mixer"));
}

TEST_CASE("diagnostics of a score form equal those of the dense matrix", "[diagnostics]") {
  torch::manual_seed(0);
  const auto left = torch::randn({3, 4, 10}, torch::kDouble), right = torch::randn({3, 4, 10}, torch::kDouble);
  const auto result = diagnose_form({left, right});
  double asymmetry = 0, rank = 0;
  auto spectrum = torch::zeros({4}, torch::kDouble);
  for (int head = 0; head < 3; ++head) {
    const auto form = torch::matmul(left[head].t(), right[head]);
    asymmetry += ((form - form.t()).norm() / (2 * form.norm())).item<double>() / 3;
    const auto values = torch::linalg_svdvals(form).narrow(0, 0, 4);
    const auto share = values / values.sum();
    rank += std::exp(-(share * share.log()).sum().item<double>()) / 3;
    spectrum += values / 3;
  }
  CHECK(result.asymmetry == Approx(asymmetry));
  CHECK(result.effective_rank == Approx(rank));
  REQUIRE(result.spectrum.size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(result.spectrum[static_cast<std::size_t>(i)] == Approx(spectrum[i].item<double>()));
}

TEST_CASE("every mixer with a single score form returns it, and only that of metric attention is symmetric",
          "[diagnostics]") {
  const auto options = any_mixer();
  torch::manual_seed(1);
  const auto shape = with_pairs({.width = 12, .heads = 3}, options);
  const auto mixer = make_mixer(options, shape);
  mixer->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : mixer->parameters()) parameter.normal_(0, 0.5);
  const auto form = mixer->score_form();
  const auto* as_metric = std::get_if<MetricOptions>(&options);
  const bool published = as_metric != nullptr && as_metric->score == MetricScore::as_published;
  const auto* sdp = std::get_if<ScaledDotProductOptions>(&options);
  const auto* quadratic = std::get_if<QuadraticOptions>(&options);
  const bool normalised =
      (sdp && sdp->qk_norm) || (quadratic && quadratic->qk_norm) || (as_metric && as_metric->qk_norm);
  const bool scores = has_scores(options) && !published && !normalised;
  REQUIRE(form.has_value() == scores);
  if (!form) return;
  CHECK(form->left_nrd.size(0) == shape.heads);
  CHECK(form->right_nrd.size(0) == shape.heads);
  CHECK(form->left_nrd.size(2) == 12);
  CHECK((diagnose_form(*form).asymmetry < 1e-6) == (as_metric != nullptr));
}

TEST_CASE("squared norms by block add up to the whole, and the update ratio is that of the step's change",
          "[diagnostics]") {
  const Workplace place;
  Parts parts(place.experiment({"train.clip=0.05", "model.mixer=metric"}));
  parts.run(0, 1e-3);
  const auto before = parts.parameters->values().clone();
  const auto result = parts.run(1, 1e-2);
  const double norm = result.gradient_norm.item<double>();
  REQUIRE(norm > 0.05);  // clipped
  const auto diagnosed = diagnose_step(*parts.model, *parts.parameters, before, norm);
  double squared = 0;
  for (const auto& [name, group] : diagnosed.items()) squared += std::pow(group.at("gradient_norm").get<double>(), 2);
  CHECK(std::sqrt(squared) == Approx(norm).epsilon(1e-5));
  CHECK(diagnosed.contains("block_0"));
  CHECK(diagnosed.contains("block_1"));
  CHECK(diagnosed.contains("token_embedding"));
  double change = 0, size = 0;
  for (const auto& view : parts.parameters->views()) {
    if (view.name.find("blocks.1.") == std::string::npos) continue;
    const auto earlier = ParameterBuffer::part(before, view);
    change += (view.parameter - earlier).square().sum().item<double>();
    size += earlier.square().sum().item<double>();
  }
  CHECK(diagnosed["block_1"]["update_ratio"].get<double>() == Approx(std::sqrt(change / size)).epsilon(1e-4));
  CHECK(diagnosed["block_1"]["score_asymmetry"].get<double>() < 1e-3);
  CHECK(diagnosed["block_1"]["score_spectrum"].size() == 8);
}

TEST_CASE("diagnostics of an encoder and decoder are by block, and separate cross-attention from self-attention",
          "[diagnostics]") {
  Parts parts(default_experiment({"task=sequence_to_sequence", "data.synthetic=copy", "model=encoder_decoder",
                                  "model.layers=1", "model.encoder.layers=2", "model.heads=2", "model.width=16",
                                  "model.context=12", "model.positions=sinusoidal", "model.mixer=metric",
                                  "model.cross_mixer=quadratic", "model.encoder.mixer=quadratic"}));
  parts.run(0, 1e-3);
  const auto before = parts.parameters->values().clone();
  const auto result = parts.run(1, 1e-2);
  const auto diagnosed = diagnose_step(*parts.model, *parts.parameters, before, result.gradient_norm.item<double>());
  std::vector<std::string> names;
  for (const auto& [name, group] : diagnosed.items()) {
    names.push_back(name);
    CHECK(group.at("gradient_norm").get<double>() > 0);
    CHECK(group.at("update_ratio").get<double>() > 0);
  }
  CHECK(names == std::vector<std::string>{"token_embedding", "block_0", "final_norm", "encoder_block_0",
                                          "encoder_block_1", "encoder_final_norm"});
  CHECK(diagnosed["block_0"]["score_asymmetry"].get<double>() < 1e-3);  // metric attention
  CHECK(diagnosed["block_0"]["cross_score_asymmetry"].get<double>() > 0.3);
  CHECK(diagnosed["encoder_block_1"]["score_asymmetry"].get<double>() > 0.3);
}

TEST_CASE("a profile accounts for the time of the recorded steps", "[profile]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  StepProfiler profiler(place / "profile.json", torch::kCPU);
  double recorded_ms = 0;
  for (std::int64_t step = 0; step < 31; ++step) {
    profiler.before_step(step);
    const auto start = std::chrono::steady_clock::now();
    parts.run(step, 1e-3);
    profiler.after_step();
    const auto ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (step >= 10 && step < 30) recorded_ms += ms;
    evaluate_split({parts.predictor(), parts.task}, Split::validation);  // not recorded
  }
  profiler.finish();
  double self_ms = 0;
  std::int64_t updates = 0;
  for (const auto& entry : profiler.operators()) {
    CHECK(entry.self_ms >= 0);
    self_ms += entry.self_ms;
    if (entry.name == "aten::_fused_adamw_") updates = entry.calls;
  }
  CHECK(updates == 40);  // for matrices and vectors, in 20 steps
  CHECK(self_ms <= recorded_ms);
  CHECK(self_ms >= 0.2 * recorded_ms);
  CHECK(nlohmann::json::parse(read_text(place / "profile.json")).contains("traceEvents"));
}

TEST_CASE("the kind of a kernel follows from its name", "[profile]") {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__"
       "5x_"
       "cublas",
       "matrix products"},
      {"nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "matrix products"},
      {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_tn_align8>", "matrix products"},
      {"ampere_sgemm_128x64_tn", "matrix products"},
      {"void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>", "matrix products"},
      {"void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8, 4, "
       "4, "
       "4, false, false, cutlass::bfloat16_t>>",
       "attention"},
      {"fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention"},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64", "attention"},
      {"void metaformer::cuda::metric_pass_kernel<metaformer::cuda::Bf16, 64>", "attention"},
      {"void metaformer::cuda::(anonymous namespace)::dropout_kernel<metaformer::cuda::Bf16>", "dropout"},
      {"void metaformer::cuda::(anonymous namespace)::residual_norm_kernel<1, 3>", "norms and softmax"},
      {"void metaformer::cuda::(anonymous namespace)::activation_gradient_kernel<metaformer::cuda::(anonymous "
       "namespace)::Gelu, false>",
       "element by element, sums"},
      {"metaformer::cuda::(anonymous namespace)::rotary_kernel", "element by element, sums"},
      {"metaformer::cuda::(anonymous namespace)::embedding_sort_kernel", "embedding and loss"},
      {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>", "norms and softmax"},
      {"void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float>", "norms and softmax"},
      {"void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>", "norms and softmax"},
      {"void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, at::native::(anonymous namespace)::"
       "LogSoftMaxForwardEpilogue>",
       "embedding and loss"},
      {"void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>", "embedding and loss"},
      {"void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long>", "embedding and loss"},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>",
       "element by element, sums"},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "element by element, sums"},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", "copies and fills"},
      {"void at::native::unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>",
       "copies and fills"},
      {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 3>", "copies and fills"},
      {"Memcpy HtoD (Pinned -> Device)", "copies and fills"},
      {"Memset (Device)", "copies and fills"},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
       "FusedAdamMathFunctor<float, 4>>",
       "optimiser"},
      {"metaformer::cuda::(anonymous namespace)::adam_kernel(metaformer::cuda::AdamStep)", "optimiser"},
      {"metaformer::cuda::(anonymous namespace)::gradient_squares_kernel(float const*, long)", "optimiser"},
      {"void metaformer::cuda::(anonymous namespace)::cross_entropy_kernel<metaformer::cuda::Bf16, 32>",
       "embedding and loss"},
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "other"},
      {"", "other"}};
  for (const auto& [name, kind] : kinds) {
    INFO(name);
    CHECK(kind_of_kernel(name) == kind);
  }
  CHECK(short_kernel_name("void metaformer::cuda::(anonymous namespace)::dropout_kernel<metaformer::cuda::Bf16>") ==
        "dropout_kernel<Bf16>");
  CHECK(short_kernel_name("nvjet_hsh_128x256") == "nvjet_hsh_128x256");
}

TEST_CASE("times of the device are sums by kind and kernel, and gaps are times without a kernel", "[profile]") {
  constexpr std::int64_t ms = 1'000'000;
  const auto event = [](const std::string& name, std::int64_t start, std::int64_t end, std::int64_t launched,
                        std::int64_t stream = 7) {
    return DeviceEvent{name, start * ms, end * ms, launched * ms, stream};
  };
  const auto product = [&](std::int64_t start, std::int64_t end, std::int64_t launched, double operations) {
    auto given = event("nvjet_a", start, end, launched);
    given.operations = operations;
    given.bytes = 10;
    return given;
  };
  // On the host the steps are at 10 ... 20 and 20 ... 30; the device runs later.
  const std::vector<Interval> steps = {{10 * ms, 20 * ms}, {20 * ms, 30 * ms}};
  std::vector<DeviceEvent> events = {
      event("Memset (Device)", 5, 15, 9),  // before the first step
      product(15, 18, 11, 100),
      event("dropout_kernel", 20, 23, 12),
      event("Memcpy HtoD", 22, 26, 13, 8),  // overlaps on another stream
      event("dropout_kernel", 26, 27, 19),
      product(31, 36, 20, 50),  // the second step
      event("unheard_of", 40, 41, 29),
      event("dropout_kernel", 42, 43, 30),  // after the last step
  };
  const auto check = [&](const DeviceTimes& times) {
    CHECK(times.span_ms == Approx(12 + 10));  // 15 ... 27, 31 ... 41
    CHECK(times.gap_ms == Approx(2 + 4));     // 18 ... 20, 36 ... 40
    CHECK(times.between_ms == Approx(4));
    CHECK(times.streams == 2);
    REQUIRE(times.kinds.size() == 4);
    CHECK(times.kinds[0].name == "matrix products");
    CHECK(times.kinds[0].calls == 2);
    CHECK(times.kinds[0].ms == Approx(8));
    CHECK(times.kinds[0].operations == 150);
    CHECK(times.kinds[0].bytes == 20);
    CHECK(times.kinds[1].ms == Approx(4));
    CHECK(times.kinds[2].ms == Approx(4));
    CHECK_FALSE(times.kinds[1].operations);
    CHECK(times.kinds[3].name == "other");
    CHECK(times.kernels.size() == 4);
    double sum = 0;
    for (const auto& kernel : times.kernels) sum += kernel.ms;
    CHECK(sum == Approx(8 + 4 + 4 + 1));
  };
  check(device_times(events, steps));
  std::reverse(events.begin(), events.end());
  check(device_times(events, steps));

  // With a product of unknown size, the sum of its kind is unknown.
  events.push_back(event("nvjet_b", 16, 17, 12));
  const auto times = device_times(events, steps);
  CHECK(times.kinds[0].calls == 3);
  CHECK_FALSE(times.kinds[0].operations);
  CHECK(times.gap_ms == Approx(6));  // unchanged: within another kernel
}

TEST_CASE("without kernels of the steps there are no times of the device", "[profile]") {
  const std::vector<Interval> steps = {{10, 20}};
  const auto check_nothing = [](const DeviceTimes& times) {
    CHECK(times.kinds.empty());
    CHECK(times.kernels.empty());
    CHECK(times.span_ms == 0);
    CHECK(times.gap_ms == 0);
    CHECK(times.between_ms == 0);
  };
  check_nothing(device_times({}, steps));
  check_nothing(device_times({}, {}));
  check_nothing(device_times({{.name = "Memset (Device)", .start_ns = 12, .end_ns = 14, .launched_ns = 9}}, steps));
  check_nothing(device_times({{.name = "Memset (Device)", .start_ns = 12, .end_ns = 14, .launched_ns = 12}}, {}));
}

}  // namespace metaformer::test_diagnostics
