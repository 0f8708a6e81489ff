// The copy of the weights in 16 bits (ops/autocast.h) in training: it changes no byte, and no pass reads a copy of
// earlier weights, whatever has written the weights since.

#include <array>
#include <functional>

#include "run/checkpoint_surgery.h"
#include "support/graph_by_hand.h"
#include "support/together.h"
#include "tasks/task_examples.h"

namespace metaformer::test_half_weights {

namespace {

const std::vector<std::string> optimizers = {"adamw", "adam", "{kind: sgd, momentum: 0.9}", "sgd", "adagrad", "muon"};

Overrides with_bf16(const Overrides& more) { return joined({"train.precision=bf16"}, more); }

// The number of weights that a pass would read from the copy. Fails if one of them is not that of the present weight.
int weights_read_from_copy(const Step& step) {
  const AutocastScope autocast(step.config().train.precision, torch::kCPU);
  int read = 0;
  for (const auto& view : step.parameters->views()) {
    const auto copy = HalfWeights::copy_of(view.parameter);
    if (!copy.defined()) continue;
    INFO(view.name);
    CHECK(torch::equal(copy, view.parameter.detach().to(copy.scalar_type())));
    ++read;
  }
  return read;
}

// Expects that all weights are copied, and that the copies are current.
void check_all_copied(const Step& step) { CHECK(weights_read_from_copy(step) == std::ssize(step.parameters->views())); }

// The same training without a copy: one in another type is never read.
struct Uncopied : Parts {
  explicit Uncopied(const Experiment& given) : Parts(given) { parameters->keep_half(torch::kHalf); }
};

// A graph that is recorded and replayed only with a current copy, as one of a device reads it without a check.
class CheckedGraph : public GraphByHand {
 public:
  CheckedGraph(GraphCounts& counts, const Step& step) : GraphByHand(counts), step_(step) {}
  void capture(const std::function<void()>& work) override {
    CHECK(step_.parameters->half()->is_current());
    GraphByHand::capture(work);
  }
  void replay() override {
    CHECK(step_.parameters->half()->is_current());
    GraphByHand::replay();
  }

 private:
  const Step& step_;
};

const Overrides adapters = {"train.init_from=nowhere", "train.lora.rank=2"};

}  // namespace

TEST_CASE("steps with a copy of the weights give the same bytes as steps that cast them", "[half]") {
  const Workplace place;
  const auto more = GENERATE(values<Overrides>({{"train.optimizer=adamw"},
                                                {"train.optimizer=muon"},
                                                {"train.optimizer=adagrad"},
                                                {"train.cpu_slices=2", "train.accumulate=2"},
                                                {"train.loss_chunks=3", "model.feed_forward.chunks=2"},
                                                {"model.blocks=reversible"},
                                                {"model.embedding.tie=false", "model.bias=true"},
                                                {"model.mixer=metric", "model.feed_forward=gated"},
                                                {"task=masked_language_model"},
                                                {"model={kind: lstm, width: 16, layers: 2}"},
                                                adapters,
                                                {"train.precision=fp16"}}));
  INFO(more.front());
  const auto experiment = place.experiment(with_bf16(more));
  Parts copied(experiment);
  Uncopied cast(experiment);
  if (experiment.config.train.precision == Precision::fp16) cast.parameters->keep_half(torch::kBFloat16);
  for (std::int64_t step = 0; step < 4; ++step) {
    const auto expected = cast.run(step, 1e-2), given = copied.run(step, 1e-2);
    CHECK(torch::equal(given.loss, expected.loss));
    CHECK(torch::equal(given.gradient_norm, expected.gradient_norm));
    check_all_copied(copied);
  }
  CHECK(torch::equal(copied.parameters->values(), cast.parameters->values()));
  CHECK(weights_read_from_copy(cast) == 0);
}

TEST_CASE("no optimiser leaves a copy of earlier weights that a pass would read", "[half]") {
  const Workplace place;
  const auto optimizer = GENERATE(from_range(optimizers));
  INFO(optimizer);
  Parts parts(place.experiment(with_bf16({"train.optimizer=" + optimizer})));
  parts.run(0, 1e-2);
  check_all_copied(parts);
  const auto before = parts.parameters->values().clone();
  parts.compute_gradients(1);
  parts.optimizer->step(1e-2);  // not the step, which refreshes the copy
  CHECK_FALSE(torch::equal(parts.parameters->values(), before));
  CHECK(weights_read_from_copy(parts) == 0);
  parts.compute_gradients(2);
  check_all_copied(parts);
}

TEST_CASE("a table with listed gradient rows is not copied, and its updates are counted", "[half]") {
  const Workplace place;
  Parts parts(place.experiment(with_bf16(classifier(
      place, {"model.layers=0", "model.heads=4", "model.positions=none", "model.dropout=0", "train.optimizer=adagrad",
              "train.clip=0", "task.head=max_pooled", "model.embedding.region=sequence"}))));
  for (std::int64_t step = 0; step < 2; ++step) {
    parts.run(step, 1e-2);
    const auto read = weights_read_from_copy(parts);
    CHECK(read > 0);
    CHECK(read < std::ssize(parts.parameters->views()));
  }
  parts.compute_gradients(2);
  parts.optimizer->step(1e-2);
  CHECK(weights_read_from_copy(parts) == 0);
}

TEST_CASE("an average of the weights has its own copy while it is used", "[half]") {
  const Workplace place;
  Parts parts(place.experiment(with_bf16({"train.weight_average.decay=0.9"})));
  for (std::int64_t step = 0; step < 3; ++step) {
    parts.run(step, 1e-2);
    parts.average->update(step + 1);
  }
  const auto trained = parts.parameters->values().clone();
  {
    const WeightAverage::Use use(*parts.average);
    CHECK_FALSE(torch::equal(parts.parameters->values(), trained));
    check_all_copied(parts);
  }
  CHECK(torch::equal(parts.parameters->values(), trained));
  check_all_copied(parts);
}

TEST_CASE("weights that are set, restarted or merged with adapters are copied again", "[half]") {
  const Workplace place;
  Parts parts(place.experiment(with_bf16(adapters)));
  parts.run(0, 1e-2);
  check_all_copied(parts);
  const auto values = parts.parameters->values().clone();
  const torch::NoGradGuard no_grad;
  const std::vector<std::function<void()>> writes = {
      [&] { parts.restart(values * 2); }, [&] { initialise(*parts.model, 5); },
      [&] { copy_by_name(named_state(*Parts(parts.experiment).model), named_state(*parts.model), "a test"); },
      [&] {
        for (const auto& view : parts.parameters->views())
          if (view.name.ends_with(".lora_B")) torch::Tensor(view.parameter).fill_(0.1);
        parts.lora->merge();
      }};
  for (const auto& write : writes) {
    write();
    CHECK(weights_read_from_copy(parts) < std::ssize(parts.parameters->views()));
    const torch::AutoGradMode with_gradients(true);
    parts.compute_gradients(1);
    check_all_copied(parts);
  }
}

TEST_CASE("a replayed step begins with a current copy", "[half][graph]") {
  const Workplace place;
  const auto experiment = place.experiment(with_bf16({}));
  Parts eager(experiment), replayed(experiment);
  GraphCounts counts;
  replayed.replay_by(std::make_unique<CheckedGraph>(counts, replayed));
  constexpr double rate = 0x1p-7;  // a float
  for (std::int64_t step = 0; step < 8; ++step) {
    for (auto* parts : {&eager, &replayed}) {
      parts->run(step, rate);
      check_all_copied(*parts);
      if (step == 2 || step == 5) parts->restart(parts->parameters->values() / 2);
    }
  }
  CHECK(counts.replays == 5);
  CHECK(torch::equal(replayed.parameters->values(), eager.parameters->values()));
}

TEST_CASE("processes with a sharded optimiser copy the weights that they receive", "[half][processes]") {
  const Workplace place;
  const auto experiment = place.experiment(with_bf16({"train.shard_optimizer=true", "train.accumulate=2"}));
  std::array<bool, 2> are_read = {}, are_current = {};
  together(2, [&](ProcessGroup& group) {
    const TaskOf of(experiment);
    Step step(of.experiment.config, of.task, torch::kCPU, group);
    const auto rank = static_cast<std::size_t>(group.rank());
    are_current[rank] = true;
    for (std::int64_t i = 0; i < 3; ++i) {
      step.run(i, 1e-2);
      are_read[rank] = step.parameters->half()->is_current();
      const AutocastScope autocast(Precision::bf16, torch::kCPU);
      for (const auto& view : step.parameters->views())
        are_current[rank] = are_current[rank] && torch::equal(HalfWeights::copy_of(view.parameter),
                                                              view.parameter.detach().to(torch::kBFloat16));
    }
    step.compute_gradients(3);
    step.optimizer->step(1e-2);
    are_read[rank] = are_read[rank] && !step.parameters->half()->is_current();
  });
  CHECK(are_read == std::array{true, true});
  CHECK(are_current == std::array{true, true});
}

TEST_CASE("a restored checkpoint is copied", "[half]") {
  const Workplace place;
  const auto options = with_bf16({"train.weight_average.decay=0.9"});
  place.train("run", options);
  const auto checkpoint = load_checkpoint(RunDirectory::open(place / "run"), "last", WithOptimizer::yes);
  Parts parts(place.experiment(options));
  parts.run(0, 1e-2);
  parts.restore(checkpoint);
  check_all_copied(parts);
  parts.run(12, 1e-2);
  check_all_copied(parts);
}

}  // namespace metaformer::test_half_weights
