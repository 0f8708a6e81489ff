// Steps that are replayed as graphs, steps with a loss scale in fp16, and the memory that a model carries from step to
// step. The graph here calls its work on every replay.

#include <cmath>
#include <limits>

#include "support/failure.h"
#include "support/graph_by_hand.h"
#include "support/together.h"
#include "support/workplace.h"
#include "train/optim/optimizer.h"

namespace metaformer::test_step {

namespace {

// A step that is replayed, with the numbers of recordings and replays.
struct Replayed : Parts {
  explicit Replayed(const Experiment& given, bool fails = false) : Parts(given) {
    replay_by(std::make_unique<GraphByHand>(counts, fails));
  }
  GraphCounts counts;
};

// Compares steps of both, with changing rates. A rate in a tensor is a float, so updates differ by its rounding.
void check_equal(Parts& eager, Parts& replayed, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    const double rate = 1e-3 / static_cast<double>(step + 1);
    const auto expected = eager.run(step, rate), given = replayed.run(step, rate);
    REQUIRE(torch::allclose(given.loss, expected.loss, 1e-6, 0));
    REQUIRE(torch::allclose(given.gradient_norm, expected.gradient_norm, 1e-5, 0));
  }
  CHECK(torch::allclose(replayed.parameters->values(), eager.parameters->values(), 1e-6, 1e-9));
}

constexpr float infinity = std::numeric_limits<float>::infinity();

void finish_step(LossScale& scale, bool overflows) {
  scale.unscaled_norm(torch::tensor(overflows ? infinity : 3.F));
  scale.adapt();
}

double factor(const LossScale& scale) { return scale.factor().item<double>(); }

// From now on one parameter gets an infinite gradient in all steps with `*overflows`.
void inject_overflows(Parts& parts, const std::shared_ptr<bool>& overflows) {
  parts.parameters->views()[2].parameter.register_hook(
      [overflows](const torch::Tensor& gradient) { return *overflows ? gradient * infinity : gradient; });
}

const std::vector<std::string> carrying = {"model={kind: lstm, width: 16, layers: 2, carry_state: true}"};

// Sets the memory of the passes of a step, with 6 rows each: row r of the step contains r.
void fill(const StepMemory& memory, int passes, int first_pass = 0) {
  for (int pass = 0; pass < passes; ++pass) {
    const auto rows = torch::arange(6, torch::kFloat) + 6 * (first_pass + pass);
    const auto state_lbd = rows.view({1, 6, 1}).expand({2, 6, 16}).contiguous();
    memory.of_pass(pass)->load({{"length", torch::tensor(32)}, {"hidden", state_lbd}, {"cell", -state_lbd}}, "a test");
  }
}

std::map<std::string, torch::Tensor> tensors_of(const StepMemory& memory) {
  const auto tensors = memory.tensors();
  return {tensors.begin(), tensors.end()};
}

}  // namespace

TEST_CASE("replayed steps equal eager steps, with new batches, rates and random numbers every time", "[graph]") {
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
  CHECK(graph.counts.replays == 5);  // after three eager steps of warm-up
}

TEST_CASE("a replay does not overwrite earlier results, and steps whose norm must be accepted are not replayed",
          "[graph]") {
  const Workplace place;
  Replayed graph(place.experiment({}));
  int asked = 0;
  for (std::int64_t step = 0; step < 6; ++step) graph.run(step, 1e-3, [&](double) { return ++asked > 0; });
  CHECK(asked == 6);
  CHECK(graph.counts.replays == 0);
  for (std::int64_t step = 6; step < 10; ++step) graph.run(step, 1e-2);
  const auto loss = graph.run(10, 1e-2).loss;
  const double before = loss.item<double>();
  graph.run(11, 1e-2);
  CHECK(loss.item<double>() == before);
  CHECK(graph.counts.replays > 0);
}

TEST_CASE("batches with another shape than the recorded ones run eagerly", "[graph]") {
  const Workplace place;
  std::string table = "text,label\n";
  for (int i = 0; i < 60; ++i) {
    const auto length = static_cast<std::size_t>(i % 7 == 0 ? 12 : i % 7);
    table += std::string(length, static_cast<char>('a' + i % 5)) + (i % 2 ? ",x\n" : "b,y\n");
  }
  place.folder().write("table.csv", table);
  const auto experiment = place.experiment({"task=classification", "data.path='" + (place / "table.csv").string() + "'",
                                            "data.tokenizer.kind=character", "train.batch_size=8"});
  Parts eager(experiment);
  Replayed graph(experiment);
  check_equal(eager, graph, 12);
  CHECK(graph.counts.captures == 1);
  CHECK(graph.counts.replays < 9);
}

TEST_CASE("after a failed recording all steps are eager, and none is recorded again", "[graph]") {
  const Workplace place;
  Parts eager(place.experiment({}));
  Replayed graph(place.experiment({}), /*fails=*/true);
  check_equal(eager, graph, 6);
  CHECK(graph.counts.captures == 1);
  CHECK(graph.counts.replays == 0);
  CHECK_FALSE(graph.replays());
}

TEST_CASE("a replayed step divides by the number of targets of its own batches", "[graph]") {
  const Workplace place;
  // Windows of a language model with the same shape and different numbers of targets.
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

TEST_CASE("fp16 training reaches the loss of fp32 training", "[fp16]") {
  const Workplace place;
  const auto loss = [&](const std::string& precision) {
    return place
        .train(precision, {"train.precision=" + precision, "train.steps=200", "train.eval_interval=200",
                           "train.checkpoint_interval=200"})["val_loss"]
        .get<double>();
  };
  CHECK(std::abs(loss("fp16") - loss("fp32")) < 2e-3);
}

TEST_CASE("the loss scale is halved by an overflow, doubled after 2,000 good steps, and exhausted at 1", "[fp16]") {
  LossScale scale(torch::kCPU);
  CHECK(factor(scale) == 65536);
  CHECK(scale.unscaled_norm(torch::tensor(131072.F)).item<double>() == 2);
  finish_step(scale, true);
  CHECK(factor(scale) == 32768);
  for (int i = 0; i < 1999; ++i) finish_step(scale, false);
  CHECK(factor(scale) == 32768);
  const auto saved = scale.state();
  LossScale later(torch::kCPU);
  for (std::size_t i = 0; i < saved.size(); ++i) later.state()[i].second.copy_(saved[i].second);
  finish_step(later, false);
  CHECK(factor(later) == 65536);
  finish_step(scale, true);  // counts from 0 again
  for (int i = 0; i < 1999; ++i) finish_step(scale, false);
  CHECK(factor(scale) == 16384);

  later.reset();
  for (int i = 0; i < 16; ++i) {
    CHECK(factor(later) == std::pow(2, 16 - i));
    later.unscaled_norm(torch::tensor(std::numeric_limits<float>::quiet_NaN()));
    CHECK(later.is_skipped().item<bool>());
    CHECK_FALSE(later.is_exhausted().item<bool>());
    later.adapt();
  }
  later.unscaled_norm(torch::tensor(infinity));
  CHECK(later.is_exhausted().item<bool>());
  later.adapt();
  CHECK(factor(later) == 1);
  later.unscaled_norm(torch::tensor(1.F));
  CHECK_FALSE((later.is_skipped().item<bool>() || later.is_exhausted().item<bool>()));
}

TEST_CASE("a loss scale that is a power of two changes only the exponents of gradients", "[fp16]") {
  const Workplace place;
  const std::string clip = GENERATE("0", "0.1"), optimizer = GENERATE("adamw", "adam", "sgd", "muon");
  const auto experiment =
      place.experiment({"train.accumulate=2", "train.clip=" + clip, "train.optimizer=" + optimizer});
  Parts plain(experiment), scaled(experiment);
  scaled.loss_scale = std::make_unique<LossScale>(torch::kCPU);  // in float32
  scaled.optimizer = make_optimizer(*scaled.parameters, experiment.config.train, scaled.loss_scale->of_gradients());
  for (std::int64_t step = 0; step < 4; ++step) {
    const auto expected = plain.run(step, 1e-2), given = scaled.run(step, 1e-2);
    CHECK(given.loss.item<double>() == expected.loss.item<double>());
    CHECK(given.gradient_norm.item<double>() == Approx(expected.gradient_norm.item<double>()).epsilon(1e-6));
    CHECK_FALSE(given.skipped.item<bool>());
  }
  CHECK(torch::allclose(scaled.parameters->values(), plain.parameters->values(), 1e-6, 1e-7));
}

TEST_CASE("a step that overflows is skipped, halves the scale, and changes no parameter, eager or replayed", "[fp16]") {
  const Workplace place;
  const auto experiment = place.experiment({"model.mixer=metric", "train.precision=fp16"});
  Parts eager(experiment), parts(experiment);
  GraphCounts counts;
  parts.replay_by(std::make_unique<GraphByHand>(counts));
  const auto overflows = std::make_shared<bool>(false);
  inject_overflows(eager, overflows);
  inject_overflows(parts, overflows);
  for (std::int64_t step = 0; step < 8; ++step) {
    *overflows = step == 1 || step == 5;
    const auto before = parts.parameters->values().clone();
    const double scale = parts.loss_scale->factor().item<double>();
    const auto expected = eager.run(step, 1e-3), given = parts.run(step, 1e-3);
    INFO("step " << step);
    CHECK(given.skipped.item<bool>() == *overflows);
    CHECK(expected.skipped.item<bool>() == *overflows);
    CHECK_FALSE(given.exhausted.item<bool>());
    CHECK(torch::equal(parts.parameters->values(), before) == *overflows);
    CHECK(parts.loss_scale->factor().item<double>() == (*overflows ? scale / 2 : scale));
    CHECK(std::isfinite(given.loss.item<double>()));
  }
  CHECK(parts.replays());
  CHECK(torch::allclose(parts.parameters->values(), eager.parameters->values(), 1e-5, 1e-7));
}

TEST_CASE("memory is saved by rows, and can be loaded by passes and processes of other sizes", "[memory]") {
  const Workplace place;
  Parts parts(place.experiment(carrying));
  const StepMemory whole(*parts.model, 4, 1, one_process());
  fill(whole, 4);
  const auto saved = whole.tensors();
  CHECK(torch::equal(tensors_of(whole).at("memory.hidden").select(0, 1).select(1, 3),
                     torch::arange(24).to(torch::kFloat)));
  StepMemory other(*parts.model, 2, 3, one_process());
  auto again = saved;
  other.take(again, 24, "a test");
  CHECK(again.empty());
  CHECK(torch::equal(tensors_of(other).at("memory.cell"), tensors_of(whole).at("memory.cell")));
  CHECK(other.of_pass(4)->tensors()[1].second.size(1) == 4);
  together(2, [&](ProcessGroup& group) {
    StepMemory half(*parts.model, 2, 1, group);
    auto all = saved;
    half.take(all, 24, "a test");
    CHECK(half.of_pass(0)->tensors()[1].second[0][0][0].item<int>() == 12 * group.rank());
    CHECK(torch::equal(tensors_of(half).at("memory.hidden"), tensors_of(whole).at("memory.hidden")));
  });
}

TEST_CASE("saved memory with other shapes than the model's is refused by name", "[memory]") {
  const Workplace place;
  Parts parts(place.experiment(carrying));
  const StepMemory memory(*parts.model, 2, 1, one_process());
  fill(memory, 2);
  const auto check = [&](const NamedTensors& changes, const std::string& text) {
    auto saved = memory.tensors();
    for (auto& [name, tensor] : saved)
      for (const auto& [changed, value] : changes)
        if (name == changed) tensor = value;
    StepMemory other(*parts.model, 2, 1, one_process());
    CHECK_THAT(message_of(ExitCode::usage, [&] { other.take(saved, 12, "state.safetensors"); }),
               Mentions("state.safetensors: memory: |" + text));
  };
  check({{"memory.hidden", torch::zeros({2, 12})}}, "'hidden'|[2, 12]|expects [2|16]");
  check({{"memory.hidden", torch::zeros({2, 12, 8})}}, "has shape [2, 12, 8]");
  check({{"memory.cell", torch::zeros({2, 11, 16})}}, "expects [2, 12, 16]");
  check({{"memory.length", torch::tensor(std::int64_t{9'000'000'000'000'000'000})}}, "'length' is 9e+18");
  check({{"memory.hidden", torch::zeros({2, 10, 16})}, {"memory.cell", torch::zeros({2, 10, 16})}},
        "'hidden'|[2,|10,|16]|expects|[2,|12,|16]");
  NamedTensors unnamed = {{"memory.", torch::zeros({2, 6, 16})}};
  StepMemory other(*parts.model, 2, 1, one_process());
  CHECK(failure([&] { other.take(unnamed, 12, "a test"); }).first == ExitCode::usage);
  Parts plain(place.experiment({}));
  const StepMemory none(*plain.model, 2, 1, one_process());  // a model without memory has none to save
  CHECK(none.tensors().empty());
  CHECK(none.of_pass(1) == nullptr);
}

}  // namespace metaformer::test_step
