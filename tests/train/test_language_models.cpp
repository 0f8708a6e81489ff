// Trainings of recurrent, feed-forward and masked language models.

#include "ops/named_tensors.h"
#include "run/checkpoint_surgery.h"
#include "tasks/evaluation.h"
#include "tasks/task_examples.h"
#include "train/optim/learning_rate.h"
#include "train/step.h"

namespace metaformer {

TEST_CASE("language models of every kind learn, in every precision", "[language_models]") {
  const Workplace place;
  const std::string model = GENERATE("{kind: lstm, width: 16}", "{kind: lstm, width: 16, carry_state: true}",
                                     "{kind: gru, width: 16, carry_state: true, embedding: {tie: false}}",
                                     "{kind: feed_forward, window: 4, width: 8, hidden: 16}");
  const std::string precision = GENERATE("fp32", "bf16", "fp16");
  INFO(model << ", " << precision);
  const auto summary =
      place.train("run", {"model=" + model, "train.steps=150", "train.learning_rate=1e-2", "train.eval_interval=150",
                          "train.checkpoint_interval=150", "train.schedule={kind: constant, warmup_steps: 5}",
                          "train.precision=" + precision});
  // A cycle of words with a letter between: without any context its characters have 2.8 nats.
  CHECK(summary.at("val_loss").get<double>() < 0.6);
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
  const auto tensors = setup.memory->tensors();
  const auto hidden = std::find_if(tensors.begin(), tensors.end(), [](auto& t) { return t.first.ends_with("hidden"); });
  REQUIRE(hidden != tensors.end());
  CHECK(torch::allclose(hidden->second, expected_lbd, 1e-5, 1e-6));

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

TEST_CASE("the schedule of 2017 takes the width of any language model", "[language_models]") {
  const Workplace place;
  const auto rate = [&](const std::string& model) {
    const auto experiment = place.experiment({"model=" + model, "train.schedule={kind: noam, warmup_steps: 10}"});
    return scheduled_rate(experiment.config.train, width_of(experiment.config.model), 3);
  };
  CHECK(rate("{kind: lstm, width: 16}") == Approx(2 * rate("{kind: lstm, width: 64}")));
  CHECK(rate("{kind: feed_forward, width: 16}") == Approx(rate("{kind: lstm, width: 16}")));
}

TEST_CASE("a masked language model falls below the entropy of its tokens", "[masking]") {
  const Workplace place;
  const bool packs = GENERATE(false, true);
  const Overrides packed = {"data.path=" + documents(place), "data.packing=spfhp", "data.tokenizer=byte"};
  const Overrides overrides = {"task=masked_language_model", "train.steps=500", "train.learning_rate=5e-3",
                               "train.batch_size=16",        "model.width=32",  "model.mixer=scaled_dot_product",
                               "model.positions=rotary"};
  const auto summary =
      place.train("run", joined(joined(overrides, evaluates_and_saves_once), packs ? packed : Overrides{}));
  const auto& validation = summary["validation"];
  CHECK(validation["loss"].get<double>() < 0.5 * validation["unigram_entropy"].get<double>());
  CHECK(validation["perplexity"].get<double>() == Approx(std::exp(validation["loss"].get<double>())));
  CHECK(validation["accuracy"].get<double>() > 0.5);
  CHECK(validation["targets"].get<double>() > 20);
}

}  // namespace metaformer
