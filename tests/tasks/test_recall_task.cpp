// Tasks that test a model's memory, as whole trainings.

#include "support/failure.h"
#include "tasks/batches.h"
#include "tasks/evaluation.h"
#include "tasks/task_examples.h"

namespace metaformer::test_recall_task {

namespace {

// A training on rows of 12 tokens.
Overrides recall(const std::string& task, const Overrides& more) {
  return joined(
      {"task=" + task, "model.layers=2", "model.heads=1", "model.width=32", "model.context=12", "train.batch_size=32",
       "train.eval_interval=100", "train.learning_rate=3e-3", "train.schedule.warmup_steps=20"},
      more);
}
const std::string pairs_of_keys = "{kind: recall, vocabulary: 16, pairs: 2, length: 12, held_out: 200, enough: 0.995}";
const Overrides delta_net = {"model.positions=none", "model.mixer=gated_delta_net"};

double accuracy_with(const Workplace& place, const Overrides& options) {
  const auto run = load_run(place / "run", "best", "cpu", {.context = {}, .options = options});
  const auto task = task_of(run, true);
  return evaluate_split({*run.predictor, task}, Split::test).at("accuracy");
}

}  // namespace

TEST_CASE("a mixer with a state learns to recall values, also in longer rows", "[recall]") {
  const Workplace place;
  const auto summary = place.train("run", recall(pairs_of_keys, joined(delta_net, {"train.steps=1500"})));
  CHECK(summary["validation"]["accuracy"].get<double>() > 0.99);
  CHECK(summary["test"]["accuracy"].get<double>() > 0.99);
  CHECK(summary["test"]["rows"] == 200);
  CHECK(summary["test"]["targets"] == 400);
  CHECK(accuracy_with(place, {}) == summary["test"]["accuracy"].get<double>());
  CHECK(accuracy_with(place, {"task.length=24"}) > 0.9);
  CHECK(accuracy_with(place, {"task.length=24", "task.pairs=5"}) < 0.99);  // more pairs than in training
  const auto refused = [&](const Overrides& options, std::optional<std::int64_t> context = {}) {
    return failure([&] { load_run(place / "run", "last", "cpu", {.context = context, .options = options}); }).second;
  };
  CHECK_THAT(refused({"task.vocabulary=32"}), ContainsSubstring("task.vocabulary=32"));
  CHECK_THAT(refused({"task.examples=32"}), ContainsSubstring("task.examples=32"));
  CHECK_THAT(refused({"task.lenght=24"}), Mentions("task.lenght=24|did you mean|task.length"));
  CHECK_THAT(refused({"task.pairs=5"}), Mentions("task.length|too short"));
  CHECK_THAT(refused({}, 24), Mentions("--context|task.length"));
}

TEST_CASE("attention with learned positions solves induction, but cannot take longer rows", "[recall]") {
  const Workplace place;
  const auto summary =
      place.train("run", recall("{kind: induction, vocabulary: 8, length: 12, held_out: 100, enough: 0.99}",
                                {"train.steps=4000", "model.positions=learned", "model.mixer=scaled_dot_product"}));
  CHECK(summary["validation"]["accuracy"].get<double>() >= 0.99);
  CHECK(summary["stopped_early"] == true);
  CHECK(summary["steps"].get<int>() % 100 == 0);
  CHECK_THAT(failure([&] { accuracy_with(place, {"task.length=24"}); }).second,
             Mentions("--set task.length=24|learned positions for 12"));
}

TEST_CASE("a model trained with noise cannot be evaluated without it, because tokens would change their meaning",
          "[recall]") {
  const Workplace place;
  place.train("run", recall("{kind: in_context_recall, vocabulary: 32, noise: 0.3, length: 12, held_out: 20}",
                            joined(delta_net, {"train.steps=2"})));
  CHECK_THAT(failure([&] { accuracy_with(place, {"task.noise=0"}); }).second, Mentions("task.noise=0|0.3"));
  CHECK(accuracy_with(place, {"task.noise=0.6"}) < 1);
}

TEST_CASE("a mixer that is made for the context cannot take longer rows", "[recall]") {
  const Workplace place;
  const auto mixer = GENERATE(as<std::string>(), "hyena", "static");
  place.train("run", recall(pairs_of_keys, {"train.steps=2", "model.positions=none", "model.mixer=" + mixer}));
  CHECK_THAT(failure([&] { accuracy_with(place, {"task.length=24"}); }).second,
             Mentions("--set task.length=24|" + mixer + "|made for 12 tokens"));
}

TEST_CASE("a model learns to restore a row from its last vector", "[recall]") {
  const Workplace place;
  const auto summary =
      place.train("run", recall("{kind: compression, vocabulary: 6, length: 5, held_out: 100, enough: 0.95}",
                                {"train.steps=1200", "model.positions=none", "model.mixer=rwkv7"}));
  CHECK(summary["validation"]["accuracy"].get<double>() > 0.9);
}

TEST_CASE("a recall training resumes to the byte, with unlimited and limited rows", "[recall][resume]") {
  const auto examples = GENERATE(as<std::string>(), "0", "50");
  const Workplace place;
  const auto common = recall(pairs_of_keys, joined(delta_net, {"task.examples=" + examples, "train.schedule=constant",
                                                               "train.checkpoint_interval=3"}));
  place.train("whole", joined(common, {"train.steps=6"}));
  place.train("cut", joined(common, {"train.steps=3"}));
  place.train("cut", joined(common, {"train.steps=6"}), true);
  const auto weights = [&](const std::string& run) {
    return read_text(place / run / "checkpoints/last/model.safetensors");
  };
  CHECK((weights("whole") == weights("cut")));
}

TEST_CASE("logits only at the places of targets equal those of the whole row, for every model", "[recall]") {
  const std::string model = GENERATE("transformer", "lstm", "gru", "feed_forward");
  const auto config = default_experiment({"task={kind: recall, vocabulary: 16, length: 12, pairs: 2}",
                                          "model={kind: " + model + ", context: 12}"})
                          .config;
  const auto task = make_task(config, true);
  const auto network = make_model(config, {.vocabulary = 16});
  initialise(*network, 1);
  const torch::NoGradGuard no_grad;
  auto batch = task.batches->training_batch(0, 0, torch::kCPU);
  const auto few = network->evaluate(batch);
  CHECK(few.dim() == 2);
  const auto places_t = batch.places_t;
  batch.places_t = torch::Tensor();
  const auto all = network->evaluate(batch);
  CHECK(torch::allclose(few, all.flatten(0, 1).index_select(0, places_t.clamp_min(0)), 1e-5, 1e-6));
}

TEST_CASE("a row is right if all its targets are right, with logits of all tokens or only of targets", "[recall]") {
  torch::manual_seed(3);
  const auto targets_bc = torch::tensor({{-1, 2, 1, -1}, {0, -1, -1, 2}, {-1, -1, -1, -1}, {1, -1, 2, -1}});
  auto logits_bcv = torch::rand({4, 4, 3});
  for (const auto& [row, column] : {std::pair(0, 1), {0, 2}, {1, 0}, {3, 0}, {3, 2}})
    logits_bcv.index_put_({row, column, targets_bc[row][column]}, 2);
  const Batch whole{.ids_bc = targets_bc, .targets_bc = targets_bc, .weight = torch::tensor(6.0)};
  auto part = whole;
  part.places_t = torch::tensor({1, 2, 4, 7, 12, 14, -1});
  const TokenMeasures measures(
      [](const TokenScores& scores, Split) -> Scores {
        return {{"loss", scores.loss},
                {"accuracy", scores.accuracy},
                {"exact_match", scores.exact_match},
                {"rows", scores.rows}};
      },
      {}, /*by_row=*/true);
  const auto report = [&](const torch::Tensor& logits, const Batch& batch) {
    ScoreSums sums;
    measures.score(logits, batch, sums);
    return measures.report(sums, Split::validation, Tables::few);
  };
  const auto of_all = report(logits_bcv, whole);
  const auto of_part = report(logits_bcv.flatten(0, 1).index_select(0, part.places_t.clamp_min(0)), part);
  const bool last_is_right = logits_bcv[1][3].argmax().item<std::int64_t>() == 2;
  CHECK(of_all.at("exact_match") == (last_is_right ? 1 : 0.75));
  for (const char* name : {"accuracy", "exact_match", "rows"}) CHECK(of_part.at(name) == of_all.at(name));
  CHECK(of_part.at("loss") == Approx(of_all.at("loss")));
}

}  // namespace metaformer::test_recall_task
