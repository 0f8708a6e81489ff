#include "cli/target_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/output.h"
#include "infer/text_answers.h"
#include "infer/write_targets.h"
#include "inspect/inspection.h"

namespace metaformer {

namespace {

using Row = std::vector<double>;

// Mean over layers and heads, a row for each token that is written.
std::vector<Row> mean_attention(const TextInspection& cross) {
  std::vector<torch::Tensor> layers;
  for (const auto& layer : cross.layers) layers.push_back(layer.attention_nce.mean(0));
  const auto mean_ce = torch::stack(layers).mean(0).contiguous();
  std::vector<Row> rows;
  for (const auto& row_e : mean_ce.unbind())
    rows.emplace_back(row_e.const_data_ptr<double>(), row_e.const_data_ptr<double>() + row_e.numel());
  return rows;
}

std::string largest_of(const Row& weights, const std::vector<std::string>& tokens) {
  constexpr std::size_t most = 3;
  constexpr double smallest = 0.05;
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return weights[a] > weights[b]; });
  std::string text;
  for (std::size_t i = 0; i < std::min(most, order.size()) && weights[order[i]] >= smallest; ++i)
    text += fmt::format("  {} {:.2f}", trim(tokens[order[i]]), weights[order[i]]);
  return text;
}

std::vector<std::int32_t> read_source(const LoadedRun& run, const std::string& source, const BeamOptions& options,
                                      bool& cut) {
  try {
    auto ids = target_answers(run, options)->encode(without_last_break(source), cut);
    if (cut)
      log::warning("the source is longer than the model's context and is cut to its first {} tokens", ids.size());
    return ids;
  } catch (const Error& error) {
    throw Error(ExitCode::usage, fmt::format("prompt {}: {}", in_quotes(source), error.what()));
  }
}

}  // namespace

void show_target(const LoadedRun& run, const std::string& source, const BeamOptions& options, bool json) {
  bool cut = false;
  const auto ids = read_source(run, source, options, cut);
  const auto start = std::chrono::steady_clock::now();
  const auto best = write_target(run, ids, options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto cross = inspect_pair(run, {.source = ids, .target = best.ids}, {.tokens = most_inspected_tokens}).back();
  const auto attention = mean_attention(cross);
  const auto text = run.codec.tokenizer->decode(best.ids);
  if (json)
    return print_json({{"prompt", source},
                       {"cut", cut},
                       {"text", text},
                       {"tokens", best.ids.size()},
                       {"log_probability", best.log_probability},
                       {"score", best.score},
                       {"seconds", seconds},
                       {"tokens_per_second", static_cast<double>(best.ids.size()) / seconds},
                       {"source_tokens", cross.keys},
                       {"target_tokens", cross.tokens},
                       {"attention", attention},
                       {"checkpoint", run.checkpoint.string()}});
  std::string shown = text + "\n\nwritten, and what of the source it attends to (mean of layers and heads)\n";
  for (std::size_t i = 0; i < attention.size(); ++i)
    shown += fmt::format("{:<16}{}\n", trim(cross.tokens[i]), largest_of(attention[i], cross.keys));
  print(shown);
  log::info("{} tokens in {:.2f} s: {} tokens/s", best.ids.size(), seconds,
            human_count(static_cast<double>(best.ids.size()) / seconds));
}

}  // namespace metaformer
