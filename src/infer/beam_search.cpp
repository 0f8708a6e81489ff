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

constexpr double impossible = -std::numeric_limits<double>::infinity();  // a log-probability

// A hypothesis that has not ended.
struct Live {
  std::vector<std::int32_t> ids;
  double log_probability = 0;
  std::int64_t slot = 0;  // its rank among the best continuations of the last step, those with the mark included
  std::int64_t row = 0;   // the row of the host's state that it continues
};

// A live hypothesis and one more token.
struct Continuation {
  double log_probability = 0;  // of all tokens, finite
  std::int64_t slot = 0;       // of the hypothesis
  std::int32_t token = 0;
  bool is_cut = false;  // in the last place, where another token was likelier than the mark
};
using Continuations = std::vector<Continuation>;  // the best ones of a target, by falling log-probability

// The search for one target.
class Beam {
 public:
  Beam(const BeamOptions& options, std::int32_t mark, std::int64_t most_tokens, std::int64_t row)
      : options_(options), mark_(mark), most_tokens_(most_tokens), live_{{.row = row}} {}

  const std::vector<Live>& live() const { return live_; }
  std::int64_t most_tokens() const { return most_tokens_; }

  // The best continuations, from the log-probabilities of all rows, [rows, v] in float64 on the CPU; none if one of
  // them is NaN.
  Continuations continuations(const torch::Tensor& log_probability_rv) const {
    const auto vocabulary = log_probability_rv.size(1);
    const auto is_likelier = [](double sum, const Continuation& other) { return sum > other.log_probability; };
    Continuations best;
    for (const auto& hypothesis : live_) {
      const auto* of_v = log_probability_rv.const_data_ptr<double>() + hypothesis.row * vocabulary;
      const bool is_last = length() == most_tokens_;
      const bool is_cut = is_last && std::max_element(of_v, of_v + vocabulary) != of_v + mark_;
      for (std::int32_t token = 0; token < vocabulary; ++token) {
        const double sum = hypothesis.log_probability + of_v[token];
        if (std::isnan(sum)) return {};
        if (sum == impossible || (is_last && token != mark_)) continue;
        if (std::ssize(best) == options_.beam && sum <= best.back().log_probability) continue;
        best.insert(std::upper_bound(best.begin(), best.end(), sum, is_likelier),
                    {.log_probability = sum, .slot = hypothesis.slot, .token = token, .is_cut = is_cut});
        if (std::ssize(best) > options_.beam) best.pop_back();
      }
    }
    return best;
  }

  // Replaces the live hypotheses by their best continuations.
  void advance(const Continuations& best) {
    const auto tokens = length();
    std::vector<Live> next;
    for (std::size_t rank = 0; rank < best.size(); ++rank) {
      const auto& [log_probability, slot, token, is_cut] = best[rank];
      const auto& from = *std::ranges::find(live_, slot, &Live::slot);
      if (token != mark_) {
        next.push_back({.ids = from.ids,
                        .log_probability = log_probability,
                        .slot = static_cast<std::int64_t>(rank),
                        .row = from.row});
        next.back().ids.push_back(token);
      } else {
        finished_.push_back({.ids = from.ids,
                             .log_probability = log_probability,
                             .score = log_probability / length_penalty(tokens, options_.alpha),
                             .is_cut = is_cut});
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
  std::int64_t length() const { return std::ssize(live_.front().ids) + 1; }  // of a continuation

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
using Beams = std::vector<Beam>;

bool are_live(const Beams& beams) {
  return std::ranges::any_of(beams, [](const Beam& beam) { return !beam.live().empty(); });
}

// The searches for a batch of targets.
struct BeamTask {
  SequenceModel& model;
  Batch batch;  // the sources, and the mark as the first token of every target
  std::int32_t mark = 0;
  torch::Tensor never_n;      // ids that are not written, on the device; undefined: none
  std::int64_t capacity = 0;  // tokens of the longest target
  torch::Device device;

  std::int64_t targets() const { return batch.ids_bc.size(0); }

  // [r, v], from the logits of the newest token of every row, [r, 1, v].
  torch::Tensor log_probabilities(const torch::Tensor& logits_rcv) const {
    const auto log_probability_rv = torch::log_softmax(widened(logits_rcv).select(1, 0), 1);
    return never_n.defined() ? log_probability_rv.index_fill(1, never_n, impossible) : log_probability_rv;
  }
};

// Advances the beams to their ends. The state has a row for each live hypothesis.
void search_by_host(const BeamTask& task, Beams& beams) {
  const auto state = task.model.new_state(task.targets(), task.capacity);
  auto batch = task.batch;
  while (true) {
    throw_if_stopped();
    const auto on_device_rv = task.log_probabilities(task.model.evaluate(batch, state.get()));
    const auto log_probability_rv = on_device_rv.to(torch::kCPU).to(torch::kDouble).contiguous();
    std::vector<std::int64_t> next, rows;
    std::int64_t row = 0;
    for (auto& beam : beams) {
      if (beam.live().empty()) continue;
      beam.advance(beam.continuations(log_probability_rv));
      for (const auto& hypothesis : beam.live()) {
        next.push_back(hypothesis.ids.back());
        rows.push_back(hypothesis.row);
      }
      row = beam.number_rows(row);
    }
    if (next.empty()) return;
    state_as<EncoderDecoderState>(*state).select(torch::tensor(rows).to(task.device));
    batch.ids_bc = torch::tensor(next).unsqueeze(1).to(task.device);
  }
}

// The same search on a device that does not wait for its host (StepGraphs). A step computes the best continuations of
// every target, and continues from their states; the beams get these continuations after a chunk of steps. Because the
// sizes of recorded work are fixed, every target has as many rows as the beam is wide, one for each slot. Rows whose
// hypotheses have ended have the log-probability -infinity; those of targets that are decided compute what is not read.
class DeviceBeams {
 public:
  DeviceBeams(const BeamTask& task, const Beams& beams, std::int64_t width, DeviceGenerationPlan plan);
  DeviceBeams(const DeviceBeams&) = delete;
  DeviceBeams& operator=(const DeviceBeams&) = delete;

  // Advances the beams, which are new, to their ends. Returns false as soon as the work could not be recorded; the
  // beams are then unfinished.
  bool search(Beams& beams);

 private:
  void compute(std::int64_t bucket);  // all of it on the device
  void begin();
  // Chooses the best continuations from the log-probabilities after every row, records and takes them.
  void advance(const torch::Tensor& log_probability_rv);
  void give(Beams& beams, std::int64_t steps) const;  // the recorded continuations

  const BeamTask& task_;
  std::int64_t width_;
  std::unique_ptr<ModelState> state_;
  torch::Tensor newest_r1_, place_1_;   // the newest token of every row, and its place
  torch::Tensor live_bk_;               // log-probability of the hypothesis of every slot, float64
  torch::Tensor most_b11_;              // tokens of each target's longest hypothesis
  torch::Tensor is_other_v_;            // whether a token is not the mark
  torch::Tensor first_row_b1_;          // of each target
  torch::Tensor step_1_, chosen_tbk4_;  // index of the step in the chunk; the members of its continuations as float64
  StepGraphs graphs_;                   // destroyed before the tensors, which the graphs use
};

DeviceBeams::DeviceBeams(const BeamTask& task, const Beams& beams, std::int64_t width, DeviceGenerationPlan plan)
    : task_(task),
      width_(width),
      state_(task.model.new_state(task.targets(), task.capacity)),
      graphs_([this](std::int64_t bucket) { compute(bucket); }, task.capacity, task.device, std::move(plan)) {
  const auto targets = task.targets();
  const auto whole = torch::TensorOptions().dtype(torch::kLong).device(task.device);
  std::vector<std::int64_t> most;
  for (const auto& beam : beams) most.push_back(beam.most_tokens());
  newest_r1_ = torch::zeros({targets * width, 1}, whole);
  place_1_ = torch::zeros({1}, whole);
  live_bk_ = torch::full({targets, width}, impossible, whole.dtype(torch::kDouble));
  most_b11_ = torch::tensor(most).view({targets, 1, 1}).to(task.device);
  first_row_b1_ = torch::arange(targets, whole).unsqueeze(1) * width;
  step_1_ = torch::zeros({1}, whole);
  chosen_tbk4_ = torch::zeros({1 + graphs_.longest_chunk(), targets, width, 4}, whole.dtype(torch::kDouble));
}

// In the first step, which is not recorded, every target has one row; its hypothesis gets the first slot.
void DeviceBeams::begin() {
  auto& state = state_as<EncoderDecoderState>(*state_);
  state.stay_in_place();
  const auto log_probability_bv = task_.log_probabilities(task_.model.evaluate(task_.batch, &state));
  is_other_v_ = torch::arange(log_probability_bv.size(1), place_1_.options()) != task_.mark;
  live_bk_.select(1, 0).zero_();
  const auto target_r = torch::arange(task_.targets(), place_1_.options()).repeat_interleave(width_);
  state.select(target_r);
  advance(log_probability_bv.index_select(0, target_r));
}

void DeviceBeams::compute(std::int64_t bucket) {
  state_as<EncoderDecoderState>(*state_).read_at(place_1_, bucket);
  advance(task_.log_probabilities(task_.model.evaluate(Batch{.ids_bc = newest_r1_}, state_.get())));
}

void DeviceBeams::advance(const torch::Tensor& log_probability_rv) {
  const auto vocabulary = log_probability_rv.size(1), kept = std::min(width_, vocabulary);
  const auto is_last_b11 = most_b11_ == place_1_ + 1;
  const auto is_cut_bk =
      (log_probability_rv.argmax(1) != task_.mark).view_as(live_bk_).logical_and(is_last_b11.squeeze(2));
  const auto allowed_bkv =
      log_probability_rv.view({-1, width_, vocabulary}).masked_fill(is_last_b11.logical_and(is_other_v_), impossible);
  // Stable sorts leave the lowest slot and id first of equally likely ones.
  const auto [sorted_bkv, id_bkv] = allowed_bkv.sort(/*stable=*/true, /*dim=*/2, /*descending=*/true);
  const auto sum_bc = (sorted_bkv.narrow(2, 0, kept).to(torch::kDouble) + live_bk_.unsqueeze(2)).flatten(1);
  const auto [ranked_bc, place_bc] = sum_bc.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true);
  const auto best_bk = ranked_bc.narrow(1, 0, width_), place_bk = place_bc.narrow(1, 0, width_);
  const auto slot_bk = place_bk.div(kept, "floor");
  const auto token_bk = id_bkv.narrow(2, 0, kept).flatten(1).gather(1, place_bk);
  const auto chosen_bk4 = torch::stack({best_bk, slot_bk.to(torch::kDouble), token_bk.to(torch::kDouble),
                                        is_cut_bk.gather(1, slot_bk).to(torch::kDouble)},
                                       2);
  chosen_tbk4_.index_copy_(0, step_1_, chosen_bk4.unsqueeze(0));
  live_bk_.copy_(best_bk.masked_fill(token_bk == task_.mark, impossible));
  newest_r1_.copy_(token_bk.view({-1, 1}));
  state_as<EncoderDecoderState>(*state_).select_beside_source((first_row_b1_ + slot_bk).flatten());
  place_1_.add_(1);
  step_1_.add_(1);
}

void DeviceBeams::give(Beams& beams, std::int64_t steps) const {
  const auto chosen_tbk4 = chosen_tbk4_.narrow(0, 0, steps).to(torch::kCPU).contiguous();
  const auto* number = chosen_tbk4.const_data_ptr<double>();
  for (std::int64_t step = 0; step < steps; ++step)
    for (auto& beam : beams) {
      Continuations best;
      for (std::int64_t rank = 0; rank < width_; ++rank, number += 4)
        if (std::ssize(best) == rank && std::isfinite(number[0]))
          best.push_back({.log_probability = number[0],
                          .slot = static_cast<std::int64_t>(number[1]),
                          .token = static_cast<std::int32_t>(number[2]),
                          .is_cut = number[3] != 0});
      if (!beam.live().empty()) beam.advance(best);
    }
}

bool DeviceBeams::search(Beams& beams) {
  begin();
  std::int64_t length = 2, steps = 1;  // steps: recorded ones that the beams have not got yet
  do {
    throw_if_stopped();
    const auto done = graphs_.run(length, graphs_.next_chunk(task_.capacity - length + 1));
    if (graphs_.failed()) return false;
    give(beams, steps + done);
    step_1_.zero_();
    length += done;
    steps = 0;
  } while (are_live(beams) && length <= task_.capacity);
  return true;
}

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
                                                 torch::Device device, DeviceGenerationPlan plan) {
  if (sources.empty()) return {};
  const torch::NoGradGuard no_grad;
  Beams new_beams;
  BeamTask task{.model = model, .mark = mark, .device = device};
  auto marked = sources;
  for (auto& source : marked) {
    source.push_back(mark);
    const auto most_tokens = std::min(std::ssize(source) + options.further_tokens, model.context());
    new_beams.emplace_back(options, mark, most_tokens, std::ssize(new_beams));
    task.capacity = std::max(task.capacity, most_tokens);
  }
  const auto source = to_batch(pad_rows({marked.begin(), marked.end()}), device, model.context());
  task.batch.ids_bc = torch::full({std::ssize(sources), 1}, mark, torch::TensorOptions(torch::kLong).device(device));
  task.batch.source_ids_bs = source.ids_bc;
  task.batch.source_segments_bs = source.segments_bc;
  if (!never.empty()) task.never_n = torch::tensor(never, torch::kLong).to(device);
  auto beams = new_beams;
  const auto planned = plan_with_graphs(std::move(plan), model, device);
  if (!planned || !options.graphs || !DeviceBeams(task, beams, options.beam, *planned).search(beams)) {
    beams = std::move(new_beams);
    search_by_host(task, beams);
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
