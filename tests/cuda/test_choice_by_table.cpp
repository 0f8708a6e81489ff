// The backend auto with a table in the cache folder, through the emulated kernels.

#include "attention/kernel_choice.h"
#include "attention/mixer.h"
#include "attention/mixers.h"
#include "bench/attention_bench.h"
#include "bench/choice_grid.h"
#include "support/mixer_options.h"
#include "support/own_cache.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("auto takes what the table says for the type, context and head width", "[fused]") {
  const OwnCache cache;
  const auto name = device_name(torch::kCPU);
  const ChoiceTable table{.device = name,
                          .date = "2026-11-23",
                          .cells = {{{ChoiceType::fp32, 16, 16, false, false}, 2.0},
                                    {{ChoiceType::fp32, 128, 16, false, false}, 0.5},
                                    {{ChoiceType::fp32, 16, 16, false, true}, 0.5}}};
  const auto path = std::filesystem::relative(choice_table_path(name).value(), cache.folder().path());
  cache.folder().write(path.string(), to_json_text(table));
  const auto output = [](Backend backend, std::int64_t tokens, bool segmented) {
    torch::manual_seed(3);
    const auto mixer = make_mixer(MetricOptions{.backend = backend}, {.width = 32, .heads = 2});
    const torch::NoGradGuard no_grad;
    for (auto& parameter : mixer->parameters()) parameter.add_(0.3 * torch::randn_like(parameter));
    const auto x = torch::randn({2, tokens, 32});
    const auto segment_bc = segmented ? torch::zeros({2, tokens}, torch::kLong) : torch::Tensor();
    Pass pass;
    return mixer->forward(x, x, self_visibility(true, segment_bc), nullptr, pass);
  };
  const auto same = [&](Backend backend, std::int64_t tokens, bool segmented) {
    return torch::equal(output(Backend::automatic, tokens, segmented), output(backend, tokens, segmented));
  };
  REQUIRE_FALSE(torch::equal(output(Backend::fused, 16, false), output(Backend::composed, 16, false)));
  CHECK(same(Backend::composed, 16, false));  // the rule would take the kernels
  CHECK(same(Backend::fused, 128, false));
  CHECK(same(Backend::fused, 16, true));
}

TEST_CASE("the grid of choices can be measured with kernels", "[fused]") {
  ChoiceGrid grid;
  grid.types = {ChoiceType::bf16, ChoiceType::tf32, ChoiceType::fp16, ChoiceType::fp32};
  grid.contexts = {16, 32};
  grid.head_widths = {16};
  grid.tokens = 32;
  grid.width = 16;
  grid.rounds = 1;
  const auto table = measure_choices(
      grid, "X", "2026-11-23",
      {.measure = [](const AttentionRequest& request) { return bench_attention(request, [](const std::string&) {}); },
       .type_done = [](const ChoiceTable&) {}});
  CHECK(table.cells.size() == 4 * 2 * 2 * 2);
  AttentionRequest request;
  request.shapes = {{.batch = 2, .heads = 2, .context = 40, .head_width = 16}};
  request.core = true;
  request.rounds = 1;
  for (const bool segmented : {false, true}) {
    request.segmented = segmented;
    request.mixers = {QuadraticOptions{.backend = Backend::fused}};
    for (const auto constraint :
         {MetricConstraint::symmetric, MetricConstraint::psd, MetricConstraint::diagonal, MetricConstraint::identity})
      for (const auto score : {MetricScore::bilinear, MetricScore::distance})
        if (constraint != MetricConstraint::symmetric || score == MetricScore::bilinear)
          request.mixers.emplace_back(
              MetricOptions{.constraint = constraint, .score = score, .backend = Backend::fused});
    for (const auto& result : bench_attention(request, [](const std::string&) {})) {
      CHECK(result.backend == "fused");
      REQUIRE(result.error);
      CHECK(*result.error < 2e-5);
      CHECK(result.ms > 0);
    }
  }
}

}  // namespace metaformer
