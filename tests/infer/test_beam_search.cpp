// Targets of a beam search, by the host and by graphs, against an exhaustive search and a beam search by hand. Graphs
// by hand repeat the work of a step; test_device_generation.cpp records it.

#include <cmath>

#include "config/loader.h"
#include "infer/beam_search.h"
#include "infer/generated_text.h"
#include "model/make_model.h"
#include "model/parameters.h"

namespace metaformer::test_beam_search {

namespace {

constexpr std::int64_t vocabulary = 3;
constexpr std::int32_t mark = vocabulary;
using Ids = std::vector<std::int32_t>;

// A model with large weights, so that its probabilities are far from uniform.
std::shared_ptr<SequenceModel> some_model(std::uint64_t seed, std::int64_t context = 6) {
  const auto config =
      default_experiment({"task=sequence_to_sequence", "model.kind=encoder_decoder", "model.layers=2", "model.heads=2",
                          "model.width=16", "model.context=" + std::to_string(context), "model.positions=sinusoidal",
                          "model.embedding={std: 1, scale: none}", "model.mixer=metric", "model.encoder.mixer=metric",
                          "model.cross_mixer=quadratic"})
          .config;
  auto model = make_model(config, {.vocabulary = vocabulary});
  initialise(*model, seed);
  return model;
}

torch::Tensor tensor_of(const Ids& ids) { return torch::tensor(ids, torch::kInt).to(torch::kLong).unsqueeze(0); }

// Log probabilities of the first token and of the token after each token of the target, in one pass.
torch::Tensor log_probabilities_cv(SequenceModel& model, const Ids& source, Ids target) {
  auto marked = source;
  target.insert(target.begin(), mark);
  marked.push_back(mark);
  Batch batch{.ids_bc = tensor_of(target)};
  batch.source_ids_bs = tensor_of(marked);
  return torch::log_softmax(model.evaluate(batch)[0].to(torch::kDouble), 1);
}

// The log probability of a target with its mark.
double log_probability(SequenceModel& model, const Ids& source, const Ids& target) {
  auto written = target;
  written.push_back(mark);
  return log_probabilities_cv(model, source, target).gather(1, tensor_of(written).t()).sum().item<double>();
}

// Every target of up to `longest` tokens without its mark.
std::vector<Ids> all_targets(std::int64_t longest) {
  std::vector<Ids> all = {{}};
  for (std::size_t i = 0; i < all.size(); ++i)
    if (std::ssize(all[i]) < longest)
      for (std::int32_t token = 0; token < vocabulary; ++token) {
        all.push_back(all[i]);
        all.back().push_back(token);
      }
  return all;
}

const std::vector<Ids> sources = {{0, 1}, {2}, {1, 1, 2, 0}, {2, 0, 1}};

// The results of the host, which are also those of graphs.
std::vector<std::vector<Hypothesis>> search(SequenceModel& model, const std::vector<Ids>& given,
                                            const BeamOptions& options, const Ids& never = {}) {
  const auto found = beam_search(model, given, mark, never, options, torch::kCPU);
  GraphCounts counts;
  const auto by_graphs = beam_search(model, given, mark, never, options, torch::kCPU,
                                     {.make_graph = graphs_by_hand(counts),
                                      .smallest_bucket = 2,
                                      .steps_to_warm_up = 1,
                                      .first_chunk = 1,
                                      .longest_chunk = 3});
  CHECK(are_near(by_graphs, found));
  return found;
}

// A model whose next token depends only on the last one. The likely tokens after each are equally likely, so that many
// hypotheses are.
class TableModel : public SequenceModel {
 public:
  explicit TableModel(std::uint64_t seed) {
    torch::manual_seed(seed);
    logits_vv_ = torch::randint(2, {vocabulary + 1, vocabulary + 1}, torch::kDouble) * -1000;
  }
  torch::Tensor forward(const Batch& batch, ModelState* state, Pass&) override {
    if (state != nullptr) {
      auto& own = state_as<EncoderDecoderState>(*state);
      if (!own.source_bsd.defined()) own.set_source(batch.source_ids_bs.unsqueeze(2), {});
    }
    return torch::embedding(logits_vv_, batch.ids_bc);
  }
  std::int64_t context() const override { return 7; }
  std::int64_t width() const override { return 1; }
  bool has_recordable_steps() const override { return true; }
  std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const override {
    return std::make_unique<EncoderDecoderState>(/*layers=*/0, batch, capacity, torch::kCPU);
  }

 private:
  torch::Tensor logits_vv_;
};

// The hypotheses, scores and ids, of a beam search that goes on until all targets have the largest length.
std::vector<std::pair<double, Ids>> unstopped_search(SequenceModel& model, const Ids& source, std::int64_t longest,
                                                     const BeamOptions& options) {
  const auto likelier = [](const auto& a, const auto& b) { return a.first > b.first; };
  std::vector<std::pair<double, Ids>> live = {{0.0, {}}}, ended;
  for (std::int64_t length = 1; length <= longest; ++length) {
    std::vector<std::pair<double, Ids>> next;
    for (const auto& [sum, target] : live) {
      const auto log_probabilities_v = log_probabilities_cv(model, source, target)[-1];
      for (std::int32_t token = length < longest ? 0 : mark; token <= mark; ++token) {
        next.emplace_back(sum + log_probabilities_v[token].item<double>(), target);
        next.back().second.push_back(token);
      }
    }
    std::ranges::stable_sort(next, likelier);
    next.resize(std::min(next.size(), static_cast<std::size_t>(options.beam)));
    live.clear();
    for (auto& [sum, target] : next)
      if (target.back() != mark) {
        live.emplace_back(sum, target);
      } else {
        target.pop_back();
        ended.emplace_back(sum / std::pow((5 + static_cast<double>(length)) / 6, options.alpha), target);
      }
  }
  std::ranges::stable_sort(ended, likelier);
  return ended;
}

void check_found(const std::vector<Hypothesis>& found, const std::vector<std::pair<double, Ids>>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].ids == expected[i].second);
    CHECK(std::abs(found[i].score - expected[i].first) < 1e-5);
  }
}

}  // namespace

TEST_CASE("a beam as wide as the tree gives the same results as an exhaustive search", "[beam]") {
  const auto model = some_model(GENERATE(1, 2, 3));
  const auto alpha = GENERATE(0.0, 0.6, 2.0);
  const std::int64_t longest = 3;  // tokens without the mark
  const Ids source = {0, 2, 1};
  std::vector<std::pair<double, Ids>> scored;
  for (const auto& target : all_targets(longest)) {
    const auto penalty = std::pow((5 + static_cast<double>(target.size()) + 1) / 6, alpha);
    scored.emplace_back(log_probability(*model, source, target) / penalty, target);
  }
  std::sort(scored.rbegin(), scored.rend());
  check_found(
      search(*model, {source}, {.beam = 200, .n_best = std::ssize(scored), .alpha = alpha, .further_tokens = 0})[0],
      scored);
}

TEST_CASE("the unknown token is in no target, and other targets keep their probabilities", "[beam]") {
  const auto model = some_model(GENERATE(1, 2, 3));
  const std::int32_t unknown = GENERATE(0, 1, 2);
  const BeamOptions all{.beam = 200, .n_best = 200, .alpha = 0, .further_tokens = 0};
  std::vector<std::pair<double, Ids>> expected;
  const auto found = search(*model, {{0, 2, 1}}, all);
  for (const auto& [ids, sum, score, is_cut] : found[0])
    if (std::count(ids.begin(), ids.end(), unknown) == 0) expected.emplace_back(sum, ids);
  check_found(search(*model, {{0, 2, 1}}, all, {unknown})[0], expected);
}

TEST_CASE("poor targets that end early do not stop a beam search before its best targets are found", "[beam]") {
  const std::int64_t context = 8, beam = GENERATE(1, 2, 3, 5);  // 1: greedy search
  const BeamOptions options{.beam = beam, .n_best = std::min<std::int64_t>(beam, 2), .alpha = GENERATE(0.0, 0.6)};
  const auto model = some_model(GENERATE(range(11, 19)), context);
  for (const auto& source : sources) {
    auto expected = unstopped_search(*model, source, context, options);
    expected.resize(static_cast<std::size_t>(options.n_best));
    check_found(search(*model, {source}, options)[0], expected);
  }
}

TEST_CASE("of equally likely continuations a beam keeps those of the likelier hypothesis, then the lowest ids",
          "[beam]") {
  const std::int64_t beam = GENERATE(1, 2, 3, 4, 7, 100);
  const BeamOptions options{.beam = beam, .n_best = std::min<std::int64_t>(beam, 3), .alpha = GENERATE(0.0, 0.6)};
  TableModel model(GENERATE(range(1, 41)));
  auto expected = unstopped_search(model, {0}, model.context(), options);
  expected.resize(std::min(expected.size(), static_cast<std::size_t>(options.n_best)));
  for (const auto& found : search(model, sources, options)) check_found(found, expected);
}

TEST_CASE("every source of a batch gets the same targets as alone", "[beam]") {
  const auto model = some_model(GENERATE(5, 6), 12);
  const BeamOptions options{.beam = GENERATE(1, 2, 4), .further_tokens = 6};
  const auto together = search(*model, sources, options);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto alone = search(*model, {sources[i]}, options)[0];
    REQUIRE(alone.size() == 1);
    CHECK(together[i][0].ids == alone[0].ids);
    CHECK(std::abs(together[i][0].score - alone[0].score) < 1e-5);
  }
}

TEST_CASE("hypotheses have no mark inside, keep to the largest length, and come in order of falling score", "[beam]") {
  const auto model = some_model(GENERATE(7, 8), 8);
  const BeamOptions options{.beam = 5, .n_best = 4, .alpha = 0.6, .further_tokens = 2};
  const auto found = search(*model, sources, options);
  bool some_are_cut = false;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    CHECK(found[i].size() == 4);
    for (std::size_t j = 0; j < found[i].size(); ++j) {
      const auto& hypothesis = found[i][j];
      CHECK(std::count(hypothesis.ids.begin(), hypothesis.ids.end(), mark) == 0);
      CHECK(hypothesis.ids.size() <= sources[i].size() + 2);
      CHECK(std::abs(hypothesis.log_probability - log_probability(*model, sources[i], hypothesis.ids)) < 1e-5);
      const auto last = log_probabilities_cv(*model, sources[i], hypothesis.ids)[-1].argmax().item<std::int64_t>();
      CHECK(hypothesis.is_cut == (hypothesis.ids.size() == sources[i].size() + 2 && last != mark));
      some_are_cut = some_are_cut || hypothesis.is_cut;
      if (j > 0) CHECK(found[i][j - 1].score >= hypothesis.score);
      for (std::size_t k = 0; k < j; ++k) CHECK(found[i][k].ids != hypothesis.ids);
    }
  }
  CHECK(some_are_cut);
}

}  // namespace metaformer::test_beam_search
