#include "infer/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/signals.h"
#include "infer/sampling.h"
#include "model/token_model.h"
#include "ops/autocast.h"
#include "tasks/batches.h"
#include "text/special_tokens.h"

namespace metaformer {

double length_penalty(std::int64_t tokens, double alpha) {
  return std::pow((5 + static_cast<double>(tokens)) / 6, alpha);
}

namespace {

struct Live {
  std::vector<std::int32_t> ids;
  double log_probability = 0;
  std::int64_t row = 0;  // of the state, from which it goes on
};

constexpr double impossible = -std::numeric_limits<double>::infinity();  // a log-probability

// The search of one target.
class Beam {
 public:
  Beam(const BeamOptions& options, std::int32_t mark, std::int64_t most_tokens, std::int64_t row)
      : options_(options), mark_(mark), most_tokens_(most_tokens), live_{{.row = row}} {}

  const std::vector<Live>& live() const { return live_; }

  // Takes the next token of every live hypothesis: the log-probabilities of their rows, [rows, v] on the CPU.
  void advance(const torch::Tensor& log_probability_rv) {
    const auto length = std::ssize(live_.front().ids) + 1;
    const auto [value_k, place_k] = candidates(log_probability_rv, length);
    const auto vocabulary = log_probability_rv.size(1);
    std::vector<Live> next;
    for (std::int64_t rank = 0; rank < value_k.size(0); ++rank) {
      const auto log_probability = value_k[rank].item<double>();
      const auto place = place_k[rank].item<std::int64_t>();
      if (!std::isfinite(log_probability)) break;
      const auto& from = live_[static_cast<std::size_t>(place / vocabulary)];
      const auto token = static_cast<std::int32_t>(place % vocabulary);
      if (token != mark_) {
        next.push_back({.ids = from.ids, .log_probability = log_probability, .row = from.row});
        next.back().ids.push_back(token);
      } else {
        finished_.push_back(
            {.ids = from.ids,
             .log_probability = log_probability,
             .score = log_probability / length_penalty(length, options_.alpha),
             .is_cut = length == most_tokens_ && log_probability_rv[from.row].argmax().item<std::int64_t>() != mark_});
      }
    }
    live_ = std::move(next);
    std::stable_sort(finished_.begin(), finished_.end(),
                     [](const auto& a, const auto& b) { return a.score > b.score; });
    if (std::ssize(finished_) > options_.n_best) finished_.resize(static_cast<std::size_t>(options_.n_best));
    if (is_decided()) live_.clear();
  }

  // From now on live hypotheses have the rows from `first` on; returns the row behind them.
  std::int64_t number_rows(std::int64_t first) {
    for (auto& hypothesis : live_) hypothesis.row = first++;
    return first;
  }

  std::vector<Hypothesis> best() { return std::move(finished_); }

 private:
  // The best continuations of all live hypotheses.
  std::tuple<torch::Tensor, torch::Tensor> candidates(const torch::Tensor& log_probability_rv, std::int64_t length) {
    std::vector<torch::Tensor> rows;
    for (const auto& hypothesis : live_) {
      auto row_v = log_probability_rv[hypothesis.row].to(torch::kDouble) + hypothesis.log_probability;
      if (length == most_tokens_) {
        const auto end = row_v[mark_].clone();
        row_v.fill_(impossible);
        row_v[mark_] = end;
      }
      rows.push_back(row_v);
    }
    const auto all = torch::cat(rows);
    return torch::topk(all, std::min(options_.beam, all.size(0)));
  }

  // A live one can at best keep its probability until it is as long as it may be.
  bool is_decided() const {
    if (live_.empty()) return true;
    if (std::ssize(finished_) < options_.n_best) return false;
    return finished_.back().score >= live_.front().log_probability / length_penalty(most_tokens_, options_.alpha);
  }

  const BeamOptions& options_;
  std::int32_t mark_;
  std::int64_t most_tokens_;
  std::vector<Live> live_;            // by falling probability
  std::vector<Hypothesis> finished_;  // the n_best of them, by falling score
};

}  // namespace

std::vector<std::vector<Hypothesis>> beam_search(SequenceModel& model, const TextBatch& sources, std::int32_t mark,
                                                 const std::vector<std::int32_t>& never, const BeamOptions& options,
                                                 torch::Device device) {
  const torch::NoGradGuard no_grad;
  const auto count = std::ssize(sources);
  std::vector<Beam> beams;
  std::int64_t capacity = 0;
  for (const auto& source : sources) {
    const auto most_tokens = std::min(std::ssize(source) + 1 + options.further_tokens, model.context());
    beams.emplace_back(options, mark, most_tokens, std::ssize(beams));
    capacity = std::max(capacity, most_tokens);
  }
  const auto state = model.new_state(count, capacity);
  auto marked = sources;
  for (auto& source : marked) source.push_back(mark);
  const auto source = to_batch(pad_rows({marked.begin(), marked.end()}), device, model.context());
  Batch batch;
  batch.source_ids_bs = source.ids_bc;
  batch.source_segments_bs = source.segments_bc;
  std::vector<std::int64_t> next(static_cast<std::size_t>(count), mark), rows;
  const std::vector<std::int64_t> never_ids(never.begin(), never.end());
  const auto never_n = torch::tensor(at::ArrayRef<std::int64_t>(never_ids), torch::kLong);
  while (!next.empty()) {
    throw_if_stopped();
    if (!rows.empty()) state_as<EncoderDecoderState>(*state).select(torch::tensor(rows).to(device));
    batch.ids_bc = torch::tensor(next).unsqueeze(1).to(device);
    const auto logits_rv = widened(model.evaluate(batch, state.get())).select(1, 0);
    const auto log_probability_rv = torch::log_softmax(logits_rv, 1).to(torch::kCPU).index_fill(1, never_n, impossible);
    next.clear();
    rows.clear();
    for (auto& beam : beams) {
      if (beam.live().empty()) continue;
      beam.advance(log_probability_rv);
      for (const auto& hypothesis : beam.live()) {
        next.push_back(hypothesis.ids.back());
        rows.push_back(hypothesis.row);
      }
    }
    std::int64_t row = 0;
    for (auto& beam : beams) row = beam.number_rows(row);
  }
  std::vector<std::vector<Hypothesis>> best;
  for (auto& beam : beams) best.push_back(beam.best());
  return best;
}

std::vector<std::vector<Hypothesis>> write_targets(SequenceModel& model, const ExperimentConfig& config,
                                                   torch::Device device, const Tokenizer& tokenizer,
                                                   const TextBatch& sources, const BeamOptions& options) {
  const AutocastScope autocast(config.train.precision, device);
  const auto mark = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  auto never = ids_without_token(tokenizer);
  if (const auto unknown = tokenizer.unknown_id()) never.push_back(*unknown);
  auto written = beam_search(model, sources, mark, never, options, device);
  const auto is_empty = [](const auto& hypotheses) { return hypotheses.empty(); };
  require_finite_answers(std::count_if(written.begin(), written.end(), is_empty), std::ssize(written));
  return written;
}

std::vector<std::vector<Hypothesis>> write_targets(const LoadedRun& run, const TextBatch& sources,
                                                   const BeamOptions& options) {
  return write_targets(*run.model, run.experiment.config, run.device, *run.codec.tokenizer, sources, options);
}

Hypothesis write_target(const LoadedRun& run, const std::vector<std::int32_t>& source, const BeamOptions& options) {
  return write_targets(run, {source}, options).front().front();
}

}  // namespace metaformer
