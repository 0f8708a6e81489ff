// Trainings of recurrent and feed-forward language models.

#include "ops/named_tensors.h"
#include "support/threads.h"
#include "support/workplace.h"
#include "tasks/evaluation.h"
#include "train/optim/learning_rate.h"
#include "train/step.h"

namespace metaformer {

namespace {

using Overrides = std::vector<std::string>;

Overrides joined(Overrides a, const Overrides& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Small ones of every kind.
Overrides any_model() {
  return {GENERATE(as<std::string>(), "model={kind: lstm, width: 16}",
                   "model={kind: lstm, width: 16, carry_state: true}",
                   "model={kind: gru, width: 16, carry_state: true, embedding: {tie: false}}",
                   "model={kind: feed_forward, window: 4, width: 8, hidden: 16}")};
}

}  // namespace

TEST_CASE("language models of every kind learn, in every precision", "[language_models]") {
  const Workplace place;
  const auto model = any_model();
  const std::string precision = GENERATE("fp32", "bf16", "fp16");
  INFO(model.front() << ", " << precision);
  const auto summary = place.train("run", joined(model, {"train.steps=150", "train.learning_rate=1e-2",
                                                         "train.schedule=constant", "train.schedule.warmup_steps=5",
                                                         "train.eval_interval=150", "train.precision=" + precision}));
  // A cycle of words with a letter between: without any context its characters have 2.8 nats.
  CHECK(summary.at("val_loss").get<double>() < 0.6);
}

TEST_CASE("slices of language models of every kind have the batch's gradients", "[language_models][slices]") {
  const Workplace place;
  const auto model = any_model();
  const auto gradients_of = [&](const std::string& slices) {
    Parts parts(place.experiment(joined(model, {"train.accumulate=2", "train.cpu_slices=" + slices})));
    parts.compute_gradients(3);
    return parts.parameters->gradients().clone();
  };
  const auto whole = gradients_of("1");
  CHECK(whole.norm().item<double>() > 0);
  for (const std::string slices : {"2", "6"}) CHECK(torch::allclose(gradients_of(slices), whole, 1e-4, 1e-6));
}

TEST_CASE("slices of language models have the same bytes with any number of threads", "[language_models][slices]") {
  const Workplace place;
  const auto model = any_model();
  const auto train = [&](int threads) {
    const Threads scope(threads);
    const auto run = std::to_string(threads);
    place.train(run, joined(model, {"train.cpu_slices=3", "model.dropout=0.2", "train.accumulate=2"}));
    return model_bytes(place / run);
  };
  const auto bytes = train(1);
  for (const int threads : {2, 3}) CHECK((train(threads) == bytes));
}

TEST_CASE("a carried state is that of the tokens before, in training and in evaluation", "[language_models]") {
  const Workplace place;
  const std::string kind = GENERATE("lstm", "gru"), slices = GENERATE("1", "2");
  const auto experiment = place.experiment({"model={kind: " + kind + ", width: 16, carry_state: true}",
                                            "train.accumulate=2", "train.cpu_slices=" + slices, "train.steps=4"});
  const auto task = make_task(experiment.config, true);
  Step setup(experiment.config, task, torch::kCPU);
  const torch::NoGradGuard no_grad;
  // Without a change of weights: what is remembered after four steps is what one pass over their tokens ends with.
  for (std::int64_t step = 0; step < 4; ++step) {
    const torch::AutoGradMode with_gradients(true);
    setup.run(step, /*learning_rate=*/0);
  }
  std::vector<torch::Tensor> ids;
  for (std::int64_t step = 0; step < 4; ++step) {
    std::vector<torch::Tensor> rows;
    for (std::int64_t micro = 0; micro < 2; ++micro)
      rows.push_back(task.batches->training_batch(step, micro, torch::kCPU).ids_bc);
    ids.push_back(torch::cat(rows));
  }
  const auto state = setup.model->new_state(12, 64);
  setup.model->evaluate({.ids_bc = torch::cat(ids, 1)}, state.get());
  const auto expected_lbd = state->tensors()[1].second;
  std::vector<torch::Tensor> remembered;
  for (const auto& [name, tensor] : setup.memory->tensors())
    if (name.ends_with("hidden")) remembered.push_back(tensor);
  REQUIRE(remembered.size() == 1);
  CHECK(torch::allclose(remembered.front(), expected_lbd, 1e-5, 1e-6));

  // The rows of the evaluation, each read at once.
  const NetworkPredictor predictor(*setup.model);
  double targets = 0;
  std::vector<torch::Tensor> inputs, outputs;
  for (std::int64_t i = 0; i < task.batches->evaluation_batches(Split::validation); ++i) {
    const auto batch = task.batches->evaluation_batch(Split::validation, i, torch::kCPU);
    inputs.push_back(batch.ids_bc);
    outputs.push_back(batch.targets_bc);
    targets += batch.weight.item<double>();
  }
  const auto logits_bcv = setup.model->evaluate({.ids_bc = torch::cat(inputs, 1)});
  const double loss = at::cross_entropy_loss(logits_bcv.flatten(0, 1), torch::cat(outputs, 1).flatten(), {},
                                             at::Reduction::Sum, /*ignore_index=*/-1)
                          .item<double>();
  const auto found = evaluate_split({predictor, task}, Split::validation);
  CHECK(found.at("loss").get<double>() == Approx(loss / targets).epsilon(1e-5));
}

TEST_CASE("recurrent and feed-forward models sort lists", "[language_models][sort]") {
  const Workplace place;
  const std::string model =
      GENERATE("{kind: lstm, width: 32, layers: 1, context: 8}", "{kind: gru, width: 32, layers: 1, context: 8}",
               "{kind: feed_forward, window: 8, width: 16, hidden: 64, context: 8}");
  const auto summary = place.train(
      "run", {"task={kind: sort, length: 4, digits: 3}", "model=" + model, "train.steps=600", "train.batch_size=32",
              "train.learning_rate=1e-2", "train.eval_interval=600", "train.checkpoint_interval=600"});
  CHECK(summary.at("validation").at("accuracy").get<double>() > 0.9);
}

TEST_CASE("diagnostics of recurrent and feed-forward models name their parts", "[language_models]") {
  const Workplace place;
  const auto [model, part] = GENERATE(
      table<std::string, std::string>({{"lstm", "block_1"}, {"gru", "block_0"}, {"feed_forward", "hidden_layer"}}));
  place.train("run", {"model=" + model, "train.diagnostics_interval=4"});
  bool found = false;
  std::istringstream lines(read_text(place / "run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::ordered_json::parse(line);
    if (json.at("split") != "diagnostics") continue;
    found = true;
    CHECK(json.at(part).at("gradient_norm").get<double>() > 0);
    CHECK(json.at(part).at("update_ratio").get<double>() > 0);
    CHECK(json.at("token_embedding").at("gradient_norm").get<double>() > 0);
  }
  CHECK(found);
}

TEST_CASE("the schedule of 2017 takes the width of any language model", "[language_models]") {
  const Workplace place;
  const auto rate = [&](const std::string& model) {
    const auto experiment = place.experiment({"model=" + model, "train.schedule={kind: noam, warmup_steps: 10}"});
    return scheduled_rate(experiment.config.train, width_of(experiment.config.model), 3);
  };
  CHECK(rate("{kind: lstm, width: 16}") == Approx(2 * rate("{kind: lstm, width: 64}")));
  CHECK(rate("{kind: feed_forward, width: 16}") == Approx(rate("{kind: lstm, width: 16}")));
}

}  // namespace metaformer
