#include "infer/beam_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "infer/sampling.h"
#include "model/token_model.h"
#include "ops/autocast.h"
#include "tasks/batches.h"
#include "text/overlap.h"
#include "text/special_tokens.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

double length_penalty(std::int64_t tokens, double alpha) {
  return std::pow((5 + static_cast<double>(tokens)) / 6, alpha);
}

namespace {

struct Live {
  std::vector<std::int32_t> ids;
  double log_probability = 0;
  std::int64_t row = 0;  // the row of the state that it continues
};

constexpr double impossible = -std::numeric_limits<double>::infinity();  // a log-probability

// The search for one target.
class Beam {
 public:
  Beam(const BeamOptions& options, std::int32_t mark, std::int64_t most_tokens, std::int64_t row)
      : options_(options), mark_(mark), most_tokens_(most_tokens), live_{{.row = row}} {}

  const std::vector<Live>& live() const { return live_; }

  // Extends all live hypotheses by one token, from the log-probabilities of all rows, [rows, v] on the CPU.
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

  // Gives the live hypotheses consecutive rows from `first` on; returns the row after them.
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

  // Whether no live hypothesis can still win: at best it keeps its probability up to the maximum length.
  bool is_decided() const {
    if (live_.empty()) return true;
    if (std::ssize(finished_) < options_.n_best) return false;
    return finished_.back().score >= live_.front().log_probability / length_penalty(most_tokens_, options_.alpha);
  }

  const BeamOptions& options_;
  std::int32_t mark_;
  std::int64_t most_tokens_;
  std::vector<Live> live_;            // by falling probability
  std::vector<Hypothesis> finished_;  // the n_best finished ones, by falling score
};

using Ids = std::vector<std::int32_t>;
using Clock = std::chrono::steady_clock;

// Scores of texts, summed over the lines of a split.
class TextScores {
 public:
  void add(const std::string& hypothesis, const std::string& reference) {
    bleu_ += bleu_statistics(hypothesis, reference, {});
    lowercase_bleu_ += bleu_statistics(hypothesis, reference, lowercase);
    chrf_ += chrf_statistics(hypothesis, reference);
    rouge_ += rouge_statistics(hypothesis, reference);
  }

  Scores report() const {
    const auto rouge_scores = rouge(rouge_);
    return {{"bleu", bleu(bleu_).bleu},
            {"bleu_lowercase", bleu(lowercase_bleu_).bleu},
            {"chrf", chrf(chrf_)},
            {"rouge_1", rouge_scores.rouge_1.f1},
            {"rouge_2", rouge_scores.rouge_2.f1},
            {"rouge_l", rouge_scores.rouge_l.f1}};
  }

  // BLEU is then 0, whatever the words.
  bool lacks_long_lines() const { return bleu_.hypothesis[bleu_orders - 1] == 0; }

  static constexpr BleuOptions lowercase{.lowercase = true};

 private:
  BleuStatistics bleu_, lowercase_bleu_;
  ChrfStatistics chrf_;
  RougeStatistics rouge_;
};

// Token ids by index in the split; empty for the lines of other processes.
std::vector<Ids> write_own_turns(SequenceModel& model, const ExperimentConfig& config, torch::Device device,
                                 const PairDataset& pairs, Split split, const BeamOptions& options,
                                 ProcessGroup& group) {
  const auto rows = std::clamp<std::int64_t>(1024 / options.beam, 1, 32);  // wide beams must not fill the memory
  const auto most = static_cast<std::size_t>(context_of(config.model) - 1);
  std::vector<Ids> written(static_cast<std::size_t>(pairs.count(split)));
  for (auto first = group.rank() * rows; first < pairs.count(split); first += group.size() * rows) {
    std::vector<Ids> sources;
    for (auto i = first; i < std::min(first + rows, pairs.count(split)); ++i) {
      auto& source = sources.emplace_back(pairs.pair(split, i).source);
      source.resize(std::min(source.size(), most));
    }
    auto place = written.begin() + first;
    for (auto& best : write_targets(model, config, device, *pairs.codec().tokenizer, sources, options))
      *place++ = std::move(best.front().ids);
  }
  return written;
}

std::vector<Ids> share(std::vector<Ids> written, ProcessGroup& group) {
  if (group.size() == 1) return written;
  for (const auto& of_rank : group.gather(Json(written).dump())) {
    const auto theirs = Json::parse(of_rank).get<std::vector<Ids>>();
    for (std::size_t i = 0; i < written.size(); ++i)
      if (written[i].empty()) written[i] = theirs[i];
  }
  return written;
}

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

std::string first_sentence(const std::string& text) {
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    const bool ends = text[i] == '.' || text[i] == '?' || text[i] == '!';
    if (ends && (text[i + 1] == ' ' || text[i + 1] == '\n')) return text.substr(0, i + 1);
  }
  return text;
}

WrittenScores score_written_targets(SequenceModel& model, const ExperimentConfig& config, torch::Device device,
                                    const PairDataset& pairs, Split split, const BeamOptions& options,
                                    ProcessGroup& group) {
  const auto start = Clock::now();
  const auto written = share(write_own_turns(model, config, device, pairs, split, options, group), group);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  TextScores scores, copied, first;
  std::int64_t exact = 0, tokens = 0;
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const auto texts = pairs.texts(split, index);
    scores.add(pairs.codec().tokenizer->decode(written[i]), texts.target);
    copied.add(texts.source, texts.target);
    first.add(first_sentence(texts.source), texts.target);
    exact += written[i] == pairs.pair(split, index).target ? 1 : 0;
    tokens += std::ssize(written[i]);
  }
  Scores report = {{"beam", options.beam},
                   {"alpha", options.alpha},
                   {"exact_match", static_cast<double>(exact) / static_cast<double>(written.size())}};
  const auto of_texts = scores.report();
  report.insert(report.end(), of_texts.begin(), of_texts.end());
  const auto value = [&](std::string_view key) { return value_of(report, key).value(); };
  log::info("{} targets written with a beam of {}, {} tokens/s: BLEU {:.2f}, chrF {:.2f}, ROUGE-L {:.2f}%",
            written.size(), options.beam, human_count(static_cast<double>(tokens) / seconds), value("bleu"),
            value("chrf"), 100 * value("rouge_l"));
  if (scores.lacks_long_lines())
    log::info("no written target has four words, so that BLEU, which needs sequences of four, is 0");
  return {.scores = std::move(report),
          .baselines = {{"source", copied.report()}, {"first_sentence", first.report()}},
          .signatures = {{"bleu", bleu_signature({})},
                         {"bleu_lowercase", bleu_signature(TextScores::lowercase)},
                         {"chrf", chrf_signature()}}};
}

}  // namespace metaformer
