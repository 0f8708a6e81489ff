// A step that is replayed as a graph does what an eager one does. The graph here runs its work by hand.

#include "data/datasets/text_dataset.h"
#include "support/workplace.h"
#include "tasks/batches.h"
#include "train/graph_training_step.h"

namespace metaformer {

namespace {

struct Counts {
  int captures = 0, replays = 0;
};

class GraphByHand : public DeviceGraph {
 public:
  GraphByHand(Counts& counts, bool fails) : counts_(counts), fails_(fails) {}
  void capture(const std::function<void()>& work) override {
    ++counts_.captures;
    TORCH_CHECK(!fails_, "this work needs the host");
    work_ = work;  // a recording computes nothing
  }
  void replay() override {
    ++counts_.replays;
    work_();
  }

 private:
  Counts& counts_;
  bool fails_;
  std::function<void()> work_;
};

GraphTrainingStep graph_step(Parts& parts, Counts& counts, bool fails = false) {
  return {parts.experiment.config,
          *parts.task,
          *parts.model,
          *parts.parameters,
          *parts.optimizer,
          torch::kCPU,
          std::make_unique<GraphByHand>(counts, fails)};
}

// Steps of both, with a rate that changes. A rate in a tensor is a float, so updates differ by its rounding.
void check_equal(Parts& eager, GraphTrainingStep& graph, Parts& parts, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    const double rate = 1e-3 / static_cast<double>(step + 1);
    const auto expected = eager.step->run(step, rate), given = graph.run(step, rate);
    REQUIRE(torch::allclose(given.loss, expected.loss, 1e-6, 0));
    REQUIRE(torch::allclose(given.gradient_norm, expected.gradient_norm, 1e-5, 0));
  }
  CHECK(torch::allclose(parts.parameters->values(), eager.parameters->values(), 1e-6, 1e-9));
}

}  // namespace

TEST_CASE("replayed steps are eager steps: other batches, rates and losses every time", "[graph]") {
  const Workplace place;
  const std::string precision = GENERATE("fp32", "bf16");
  const auto experiment = place.experiment({"train.accumulate=2", "train.precision=" + precision});
  Parts eager(experiment), parts(experiment);
  Counts counts;
  auto graph = graph_step(parts, counts);
  check_equal(eager, graph, parts, 8);
  CHECK(counts.captures == 1);
  CHECK(counts.replays == 5);  // after three to warm up
}

TEST_CASE("what a replay returns is not overwritten by the next", "[graph]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  Counts counts;
  auto graph = graph_step(parts, counts);
  for (std::int64_t step = 0; step < 4; ++step) graph.run(step, 1e-2);
  const auto loss = graph.run(4, 1e-2).loss;
  const double before = loss.item<double>();
  graph.run(5, 1e-2);
  CHECK(loss.item<double>() == before);
}

TEST_CASE("batches of another shape than the recorded ones run as they are", "[graph]") {
  const Workplace place;
  place.folder().write("table.csv", [] {
    std::string table = "text,label\n";
    for (int i = 0; i < 60; ++i)
      table += std::string(static_cast<std::size_t>(i % 7 == 0 ? 12 : i % 7), static_cast<char>('a' + i % 5)) +
               (i % 2 ? ",x\n" : "b,y\n");
    return table;
  }());
  const auto experiment = place.experiment({"task=classification", "data.path='" + (place / "table.csv").string() + "'",
                                            "data.tokenizer.kind=character", "train.batch_size=8"});
  Parts eager(experiment), parts(experiment);
  Counts counts;
  auto graph = graph_step(parts, counts);
  check_equal(eager, graph, parts, 12);
  CHECK(counts.captures == 1);
  CHECK(counts.replays < 9);
}

TEST_CASE("a recording that fails leaves eager steps, and is not tried again", "[graph]") {
  const Workplace place;
  Parts eager(place.experiment({})), parts(place.experiment({}));
  Counts counts;
  auto graph = graph_step(parts, counts, true);
  check_equal(eager, graph, parts, 6);
  CHECK(counts.captures == 1);
  CHECK(counts.replays == 0);
  CHECK_FALSE(graph.replays());
}

TEST_CASE("a step whose norm somebody must accept is never replayed", "[graph]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  Counts counts;
  auto graph = graph_step(parts, counts);
  int asked = 0;
  for (std::int64_t step = 0; step < 6; ++step) graph.run(step, 1e-3, [&](double) { return ++asked > 0; });
  CHECK(asked == 6);
  CHECK(counts.replays == 0);
}

TEST_CASE("windows cut on the device are those of the dataset", "[batches]") {
  const auto tokens = torch::arange(100, torch::kInt) * 3;
  const auto batch = cut_windows(tokens, {0, 17, 89}, 10);
  REQUIRE(batch.ids_bc.sizes() == torch::IntArrayRef({3, 10}));
  CHECK(batch.ids_bc.scalar_type() == torch::kLong);
  CHECK(batch.weight == 30);
  for (const auto& [row, start] : std::vector<std::pair<int, int>>{{0, 0}, {1, 17}, {2, 89}}) {
    CHECK(torch::equal(batch.ids_bc[row], (torch::arange(10) + start) * 3));
    CHECK(torch::equal(batch.targets_bc[row], (torch::arange(10) + start + 1) * 3));
  }
}

TEST_CASE("a language model's batches are the dataset's windows", "[batches]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  const auto& config = parts.experiment.config;
  const auto corpus = load_corpus(config.data, true);
  std::unique_ptr<Tokenizer> tokenizer;
  const TextDataset dataset(corpus, config.data, config.model.context, tokenizer);
  const auto expected = to_batch(dataset.random_windows(Split::train, static_cast<std::uint64_t>(config.train.seed),
                                                        RandomPurpose::batches, 4, 6, 6),
                                 torch::kCPU);
  const auto given = parts.task->training_batch(4, 1, torch::kCPU);
  CHECK(torch::equal(given.ids_bc, expected.ids_bc));
  CHECK(torch::equal(given.targets_bc, expected.targets_bc));
  CHECK(given.weight == expected.weight);
}

}  // namespace metaformer
