#pragma once
// Measures the table that the backend auto goes by (attention/choice_table.h): the core of metric attention, forward
// and backward, composed and fused, over types, contexts, head widths, scores and masks. Quadratic attention runs the
// same kernels and products, with a form that is not symmetric.

#include <functional>
#include <vector>

#include "attention/choice_table.h"
#include "bench/attention_request.h"

namespace metaformer {

struct ChoiceGrid {
  std::vector<ChoiceType> types = {ChoiceType::bf16, ChoiceType::tf32, ChoiceType::fp16, ChoiceType::fp32};
  std::vector<std::int64_t> contexts = {64, 128, 256, 512, 1024, 2048, 4096};
  std::vector<std::int64_t> head_widths = {32, 64, 128};
  std::int64_t tokens = 16384, width = 512;  // of a batch: enough to keep a GPU busy at every context
  std::int64_t rounds = 5;
  torch::Device device = torch::kCPU;
};

struct ChoiceGridHooks {
  // What measures a request: bench_attention.
  std::function<std::vector<AttentionResult>(const AttentionRequest&)> measure;
  // Is given the table so far after every type, so that a measurement that is cut off leaves one.
  std::function<void(const ChoiceTable&)> type_done;
};

// `date`: "2026-11-23". Cells that do not fit into memory are left out.
ChoiceTable measure_choices(const ChoiceGrid& grid, const std::string& device, const std::string& date,
                            const ChoiceGridHooks& hooks);

}  // namespace metaformer
