#include "tasks/evaluation.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/log.h"
#include "ops/autocast.h"
#include "ops/kernel.h"
#include "tasks/batches.h"

namespace metaformer {

namespace {

std::int64_t slices_of(const Batch& batch) {
  constexpr std::int64_t tokens = 1024;                       // their activations fit into a core's cache
  if (!batch.ids_bc.is_cpu() || batch.is_packed()) return 1;  // labels of packed texts may be in any order
  return std::clamp<std::int64_t>(batch.ids_bc.numel() / tokens, 1, batch.ids_bc.size(0));
}

// Removes the padding of a slice's places, or restores padding at the end of its rows that the slice has lost.
torch::Tensor without_padding_of(const Batch& slice, const torch::Tensor& logits, std::int64_t length) {
  if (slice.places_t.defined()) return logits.narrow(0, 0, (slice.places_t >= 0).sum().item<std::int64_t>());
  if (logits.dim() < 3 || logits.size(1) == length) return logits;
  return torch::constant_pad_nd(logits, {0, 0, 0, length - logits.size(1)});
}

// `own`: the scores of batches rank, rank + size, ..., all with the same names. Returns the scores of all batches in
// order, on every process, as if one process had scored all of them.
ScoreSums add_scores_of_all(ProcessGroup& group, const std::vector<ScoreSums>& own) {
  NamedTensors of_own;
  for (const auto& batch : own)
    for (const auto& [name, tensors] : batch.of_batches()) of_own.emplace_back(name, tensors.front());
  const auto of_ranks = gather_tensors(group, of_own);
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : of_ranks.front()) names.insert(name);
  ScoreSums sums;
  for (std::size_t place = 0; place < of_ranks.front().size(); place += names.size())
    for (const auto& tensors : of_ranks)
      for (auto i = place; i < std::min(place + names.size(), tensors.size()); ++i)
        sums.add(tensors[i].first, tensors[i].second);
  return sums;
}

// The tokens of each row, without padding.
torch::Tensor row_tokens_b(const Batch& batch) {
  const auto count_b = [](const torch::Tensor& ids_bc, const torch::Tensor& segments_bc) {
    return (segments_bc.defined() ? segments_bc >= 0 : torch::ones_like(ids_bc, torch::kBool)).sum(1);
  };
  const auto tokens_b = count_b(batch.ids_bc, batch.segments_bc);
  return batch.source_ids_bs.defined() ? tokens_b + count_b(batch.source_ids_bs, batch.source_segments_bs) : tokens_b;
}

// Every process has the same number of turns, so that all of them stop in the same one.
template <class MakeBatch>
ScoreSums score_batches(const Scoring& scoring, std::string_view what, std::int64_t batches, MakeBatch make_batch) {
  auto& group = scoring.predictor.remembers() ? one_process() : scoring.group;
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(scoring.precision, scoring.device);
  std::vector<ScoreSums> own;
  struct ProgressEnd {
    ~ProgressEnd() { log::clear_progress(); }
  } at_end;
  LineTimer timer;
  log::progress(fmt::format("evaluating {}", what));
  for (std::int64_t turn = 0; turn * group.size() < batches; ++turn) {
    fault_point("evaluate", SIGTERM);
    throw_if_any_stopped(group);
    const auto i = turn * group.size() + group.rank();
    if (i >= batches) continue;
    if (timer.is_due()) {
      timer.restart();
      show_progress(fmt::format("evaluating {}: batch {} of {}", what, i + 1, batches));
    }
    const auto batch = make_batch(i);
    scoring.task.measures->score(scoring.predictor.logits(batch), batch, own.emplace_back());
  }
  return add_scores_of_all(group, own);
}

}  // namespace

torch::Tensor NetworkPredictor::logits_of_slice(const Batch& slice, std::size_t number) const {
  if (states_.empty()) return model_.evaluate(slice);
  auto& state = states_.at(number);
  if (state == nullptr || slice.begins) state = model_.new_state(slice.ids_bc.size(0), model_.context());
  return model_.evaluate(slice, state.get());
}

torch::Tensor NetworkPredictor::logits(const Batch& batch) const {
  const auto rows = batch.ids_bc.size(0), slices = slices_of(batch);
  if (model_.remembers()) states_.resize(static_cast<std::size_t>(slices));
  if (slices == 1) return logits_of_slice(batch, 0);
  std::vector<torch::Tensor> parts(static_cast<std::size_t>(slices));
  const at::ThreadLocalState state;
  const auto type = at::autocast::get_autocast_dtype(torch::kCPU);
  at::parallel_for(0, slices, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::ThreadLocalStateGuard as_outside(state);
    at::autocast::set_autocast_dtype(torch::kCPU, type);
    for (auto i = begin; i < end; ++i) {
      const auto first = rows * i / slices, last = rows * (i + 1) / slices;
      const auto number = static_cast<std::size_t>(i);
      const auto slice = rows_of(batch, first, last - first);
      parts[number] = without_padding_of(slice, logits_of_slice(slice, number), batch.ids_bc.size(1));
    }
  });
  const auto logits = torch::cat(parts);
  if (!batch.places_t.defined()) return logits;
  return torch::constant_pad_nd(logits, {0, 0, 0, batch.places_t.size(0) - logits.size(0)});
}

EvaluationPart part_of_split(const BatchStream& batches, Split split, std::optional<std::int64_t> most_tokens,
                             bool in_order) {
  EvaluationPart part{.batches =
                          std::vector<std::int64_t>(static_cast<std::size_t>(batches.evaluation_batches(split)))};
  std::iota(part.batches.begin(), part.batches.end(), std::int64_t{0});
  std::vector<std::int64_t> tokens;
  for (const auto i : part.batches) tokens.push_back(batches.evaluation_tokens(split, i));
  part.tokens = part.split_tokens = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  if (!most_tokens) return part;
  const auto all = std::ssize(part.batches);
  while (part.tokens > *most_tokens && part.batches.size() > 1) {
    // Estimated by the average tokens of a batch; one batch less if the chosen ones have more tokens.
    const auto estimate = static_cast<std::int64_t>(static_cast<double>(all) * static_cast<double>(*most_tokens) /
                                                    static_cast<double>(part.split_tokens));
    const auto count = std::clamp<std::int64_t>(estimate, 1, std::ssize(part.batches) - 1);
    part.batches.resize(static_cast<std::size_t>(count));
    part.tokens = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto batch = in_order ? i : i * all / count;
      part.batches[static_cast<std::size_t>(i)] = batch;
      part.tokens += tokens[static_cast<std::size_t>(batch)];
    }
  }
  if (part.tokens <= *most_tokens) return part;
  // The first rows of the only batch that have at most `most_tokens` tokens together, but at least one row.
  const auto sums_b = row_tokens_b(batches.evaluation_batch(split, part.batches.front(), torch::kCPU)).cumsum(0);
  part.rows = std::max<std::int64_t>(1, (sums_b <= *most_tokens).sum().item<std::int64_t>());
  part.tokens = sums_b[part.rows - 1].item<std::int64_t>();
  return part;
}

ScoreSums score_split(const Scoring& scoring, Split split) {
  const auto& batches = *scoring.task.batches;
  return score_batches(scoring, fmt::format("the {} split", to_string(split)), batches.evaluation_batches(split),
                       [&](std::int64_t i) { return batches.evaluation_batch(split, i, scoring.device); });
}

ScoreSums score_part(const Scoring& scoring, Split split, const EvaluationPart& part) {
  const auto what = fmt::format("{}the {} split", part.is_whole() ? "" : "a part of ", to_string(split));
  return score_batches(scoring, what, std::ssize(part.batches), [&](std::int64_t i) {
    const auto index = part.batches[static_cast<std::size_t>(i)];
    const auto batch = scoring.task.batches->evaluation_batch(split, index, scoring.device);
    return part.rows ? beginning_of(batch, part.rows) : batch;
  });
}

ScoreSums score_random_batches(const Scoring& scoring, Split split, std::int64_t batches) {
  return score_batches(scoring, fmt::format("random batches of the {} split", to_string(split)), batches,
                       [&](std::int64_t i) { return scoring.task.batches->random_batch(split, i, scoring.device); });
}

Evaluation report_of(const Task& task, Split split, const ScoreSums& sums, Tables tables) {
  return task.measures->report(sums, task.batches->source_of(split), tables);
}

Evaluation evaluate_split(const Scoring& scoring, Split split) {
  return report_of(scoring.task, split, score_split(scoring, split));
}

std::string headline_of(const Task& task, const Evaluation& evaluation) {
  auto text = fmt::format("loss {:.4f}", evaluation.at("loss"));
  for (const auto& key : task.measures->headline())
    if (const auto value = evaluation.find(key)) text += ", " + described(key, *value);
  return text;
}

}  // namespace metaformer
