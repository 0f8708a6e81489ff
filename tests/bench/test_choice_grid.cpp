// The table that the backend auto goes by, from measurements of a stand-in.

#include <functional>
#include <map>

#include "bench/attention_bench.h"
#include "bench/choice_grid.h"
#include "support/mixer_options.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

using Measure = std::function<std::vector<AttentionResult>(const AttentionRequest&)>;

AttentionResult result_of(const MixerConfig& mixer, double ms) {
  AttentionResult result;
  result.mixer = kind_of(mixer);
  result.backend = to_string(mixer->backend());
  result.ms = ms;
  return result;
}

ChoiceTable measured(const ChoiceGrid& grid, const Measure& measure) {
  return measure_choices(grid, "NVIDIA X", "2026-11-23", {.measure = measure, .type_done = [](const ChoiceTable&) {}});
}

}  // namespace

TEST_CASE("every cell is the time of the kernels over that of composed products", "[choice_grid]") {
  const ChoiceGrid grid;
  // A time that says where it comes from.
  const auto time = [](const ChoicePlace& place) {
    return static_cast<double>(place.context + place.head_width) + (place.distance ? 0.5 : 0) +
           (place.segmented ? 0.25 : 0) + 1e4 * static_cast<double>(place.type);
  };
  const auto measure = [&](const AttentionRequest& request) {
    CHECK(request.core);
    CHECK(request.backward);
    CHECK(request.causal);
    CHECK_FALSE(request.with_errors);
    REQUIRE(request.shapes.size() == 1);
    const auto& shape = request.shapes[0];
    CHECK(shape.batch * shape.context == 16384);
    CHECK(shape.width() == 512);
    std::vector<AttentionResult> results;
    for (const auto& mixer : request.mixers) {
      const auto& options = *mixer.get_if<MetricOptions>();
      CHECK_FALSE(mixer->problem({.width = shape.width(), .heads = shape.heads}));
      const auto type = request.tf32                       ? ChoiceType::tf32
                        : request.type == torch::kBFloat16 ? ChoiceType::bf16
                        : request.type == torch::kHalf     ? ChoiceType::fp16
                                                           : ChoiceType::fp32;
      const bool distance = options.score == MetricScore::distance;
      const ChoicePlace place{type, shape.context, shape.head_width, distance, request.segmented};
      results.push_back(result_of(mixer, options.backend == Backend::fused ? time(place) : 2));
    }
    return results;
  };
  const auto table = measured(grid, measure);
  CHECK(table.device == "NVIDIA X");
  CHECK(table.date == "2026-11-23");
  CHECK(table.cells.size() == 4 * 7 * 3 * 2 * 2);
  std::map<std::string, int> cells;
  for (const auto& cell : table.cells) {
    CHECK(cell.ratio == time(cell.place) / 2);
    CHECK(table.ratio(cell.place) == cell.ratio);
  }
}

TEST_CASE("the table so far is given after every type, and what does not fit is left out", "[choice_grid]") {
  ChoiceGrid grid;
  grid.types = {ChoiceType::bf16, ChoiceType::fp32};
  grid.contexts = {64, 128};
  grid.head_widths = {32};
  std::vector<std::size_t> sizes;
  const auto measure = [](const AttentionRequest& request) {
    std::vector<AttentionResult> results;
    for (const auto& mixer : request.mixers) {
      auto result = result_of(mixer, 1);
      if (request.shapes[0].context == 128 && mixer.get_if<MetricOptions>()->score == MetricScore::distance &&
          mixer->backend() == Backend::composed)
        result.skipped = "score matrices of 3 GiB";
      results.push_back(result);
    }
    return results;
  };
  const auto table = measure_choices(
      grid, "NVIDIA X", "2026-11-23",
      {.measure = measure, .type_done = [&](const ChoiceTable& so_far) { sizes.push_back(so_far.cells.size()); }});
  CHECK(sizes == std::vector<std::size_t>{6, 12});
  for (const auto& cell : table.cells) CHECK_FALSE((cell.place.context == 128 && cell.place.distance));
}

TEST_CASE("the requests of the grid can be measured", "[choice_grid]") {
  ChoiceGrid grid;
  grid.types = {ChoiceType::bf16, ChoiceType::fp32};
  grid.contexts = {16};
  grid.head_widths = {8};
  grid.tokens = 32;
  grid.width = 16;
  grid.rounds = 1;
  // There are no kernels here: the reference stands in for them.
  const auto measure = [](AttentionRequest request) {
    for (auto& mixer : request.mixers)
      if (mixer->backend() == Backend::fused) mixer = with_backend(mixer, Backend::reference);
    return bench_attention(request, [](const std::string&) {});
  };
  const auto table = measured(grid, measure);
  CHECK(table.cells.size() == 2 * 2 * 2);
  for (const auto& cell : table.cells) CHECK(cell.ratio > 0);
}

}  // namespace metaformer
