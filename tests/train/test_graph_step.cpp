// A step that is replayed as a graph does what an eager one does. The graph here runs its work by hand.

#include "support/graph_by_hand.h"
#include "support/workplace.h"

namespace metaformer {

namespace {

// A step that is replayed, and how often.
struct Replayed : Parts {
  explicit Replayed(const Experiment& given, bool fails = false) : Parts(given) {
    replay_by(std::make_unique<GraphByHand>(counts, fails));
  }
  GraphCounts counts;
};

// Steps of both, with a rate that changes. A rate in a tensor is a float, so updates differ by its rounding.
void check_equal(Parts& eager, Parts& replayed, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    const double rate = 1e-3 / static_cast<double>(step + 1);
    const auto expected = eager.run(step, rate), given = replayed.run(step, rate);
    REQUIRE(torch::allclose(given.loss, expected.loss, 1e-6, 0));
    REQUIRE(torch::allclose(given.gradient_norm, expected.gradient_norm, 1e-5, 0));
  }
  CHECK(torch::allclose(replayed.parameters->values(), eager.parameters->values(), 1e-6, 1e-9));
}

}  // namespace

TEST_CASE("replayed steps are eager steps: other batches, rates, losses and random numbers every time", "[graph]") {
  const Workplace place;
  const auto more = GENERATE(values<Overrides>({{"train.precision=fp32"},
                                                {"train.precision=bf16"},
                                                {"model.dropout=0.3", "model.embedding.dropout=0.2"},
                                                // At most 32 targets in a batch, whose places are padded to 32.
                                                {"task=masked_language_model", "train.batch_size=2"}}));
  const auto experiment = place.experiment(joined(more, {"train.accumulate=2"}));
  Parts eager(experiment);
  Replayed graph(experiment);
  check_equal(eager, graph, 8);
  CHECK(graph.counts.captures == 1);
  CHECK(graph.counts.replays == 5);  // after three to warm up
}

TEST_CASE("what a replay returns is not overwritten by the next", "[graph]") {
  const Workplace place;
  Replayed graph(place.experiment({}));
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
  Parts eager(experiment);
  Replayed graph(experiment);
  check_equal(eager, graph, 12);
  CHECK(graph.counts.captures == 1);
  CHECK(graph.counts.replays < 9);
}

TEST_CASE("a recording that fails leaves eager steps, and is not tried again", "[graph]") {
  const Workplace place;
  Parts eager(place.experiment({}));
  Replayed graph(place.experiment({}), /*fails=*/true);
  check_equal(eager, graph, 6);
  CHECK(graph.counts.captures == 1);
  CHECK(graph.counts.replays == 0);
  CHECK_FALSE(graph.replays());
}

TEST_CASE("a step whose norm somebody must accept is never replayed", "[graph]") {
  const Workplace place;
  Replayed graph(place.experiment({}));
  int asked = 0;
  for (std::int64_t step = 0; step < 6; ++step) graph.run(step, 1e-3, [&](double) { return ++asked > 0; });
  CHECK(asked == 6);
  CHECK(graph.counts.replays == 0);
}

TEST_CASE("a replayed step divides by the targets of its own batches", "[graph]") {
  const Workplace place;
  // Language model windows that all have the same shape; the number of their targets is what differs.
  class Halved : public OneBatchStream {
   public:
    using OneBatchStream::OneBatchStream;
    Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
      auto batch = OneBatchStream::training_batch(step, micro, device);
      batch.targets_bc = batch.targets_bc.clone();
      batch.targets_bc.narrow(1, 0, step % 5).fill_(-1);
      batch.weight = (batch.targets_bc >= 0).sum().to(torch::kDouble);
      return batch;
    }
  };
  Parts eager(place.experiment({}));
  Replayed graph(place.experiment({}));
  for (auto* each : {&eager, static_cast<Parts*>(&graph)})
    each->task.batches = std::make_shared<Halved>(each->task.batches, 1);
  check_equal(eager, graph, 9);
  CHECK(graph.counts.replays == 6);
}

}  // namespace metaformer
