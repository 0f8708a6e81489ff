#include "bench/choice_grid.h"

#include <algorithm>

#include "attention/kernel_choice.h"
#include "attention/metric_options.h"

namespace metaformer {

namespace {

MetricOptions metric(bool distance, Backend backend) {
  MetricOptions options;
  options.constraint = distance ? MetricConstraint::psd : MetricConstraint::symmetric;
  options.score = distance ? MetricScore::distance : MetricScore::bilinear;
  options.backend = backend;
  return options;
}

// Both scores, each composed and fused, in this order.
AttentionRequest request_of(const ChoiceGrid& grid, const ChoicePlace& place) {
  AttentionRequest request;
  request.shapes = {{.batch = std::max<std::int64_t>(1, grid.tokens / place.context),
                     .heads = std::max<std::int64_t>(1, grid.width / place.head_width),
                     .context = place.context,
                     .head_width = place.head_width}};
  for (const bool distance : {false, true})
    for (const auto backend : {Backend::composed, Backend::fused})
      request.mixers.emplace_back(metric(distance, backend));
  request.core = true;
  request.type = stored_as(place.type);
  request.tf32 = place.type == ChoiceType::tf32;
  request.segmented = place.segmented;
  request.with_errors = false;
  request.rounds = grid.rounds;
  request.device = grid.device;
  return request;
}

void add_cells(ChoiceTable& table, ChoicePlace place, const std::vector<AttentionResult>& results) {
  for (const bool distance : {false, true}) {
    const auto &composed = results.at(distance ? 2 : 0), &fused = results.at(distance ? 3 : 1);
    if (!composed.skipped.empty() || !fused.skipped.empty()) continue;
    place.distance = distance;
    table.cells.push_back({.place = place, .ratio = fused.ms / composed.ms});
  }
}

}  // namespace

ChoiceTable measure_choices(const ChoiceGrid& grid, const std::string& device, const std::string& date,
                            const ChoiceGridHooks& hooks) {
  ChoiceTable table{.device = device, .date = date, .cells = {}};
  for (const auto type : grid.types) {
    for (const auto width : grid.head_widths)
      for (const auto context : grid.contexts)
        for (const bool segmented : {false, true}) {
          const ChoicePlace place{.type = type, .context = context, .head_width = width, .segmented = segmented};
          add_cells(table, place, hooks.measure(request_of(grid, place)));
        }
    hooks.type_done(table);
  }
  return table;
}

}  // namespace metaformer
