// Trainings whose weights are averaged.

#include <cmath>
#include <map>

#include "ops/linear.h"
#include "run/safetensors.h"
#include "support/torch_catch.h"
#include "support/workplace.h"
#include "tasks/evaluation.h"
#include "tasks/task_examples.h"
#include "train/optim/optimizer.h"

namespace metaformer {

namespace {

std::map<std::string, torch::Tensor> tensors(const std::filesystem::path& run, int step, const std::string& file) {
  const auto path = run / "checkpoints" / ("step-" + std::to_string(step)) / (file + ".safetensors");
  const auto named = from_safetensors(read_text(path), path.string());
  return {named.begin(), named.end()};
}

}  // namespace

TEST_CASE("checkpoints hold the average of float64, which is evaluated, and the weights of a training without it",
          "[average]") {
  const Workplace place;
  const Overrides plain = {"train.checkpoint_interval=1", "train.keep_checkpoints=12", "train.learning_rate=0.01"};
  const auto summary = place.train("averaged", joined(plain, {"train.weight_average.decay=0.8"}));
  CHECK(place.train("plain", plain)["val_loss"] != summary["val_loss"]);
  std::map<std::string, torch::Tensor> sums;
  for (int step = 1; step <= 12; ++step) {
    const auto average = tensors(place / "averaged", step, "model"), state = tensors(place / "averaged", step, "state");
    for (const auto& [name, weight] : tensors(place / "plain", step, "model")) {
      INFO("step " << step << ", " << name);
      CHECK(torch::equal(state.at("trained." + name), weight));
      auto& sum = sums[name];
      sum = 0.2 * weight.to(torch::kDouble) + (sum.defined() ? 0.8 * sum : torch::zeros_like(weight, torch::kDouble));
      CHECK(torch::allclose(average.at(name).to(torch::kDouble), sum / (1 - std::pow(0.8, step)), 1e-5, 1e-6));
    }
  }
  const auto run = load_run(place / "averaged", "last", "cpu");
  const auto task = make_task(run.experiment.config, true);
  CHECK(evaluate_split({*run.predictor, task}, Split::validation)["loss"] == summary["val_loss"]);
}

TEST_CASE("a recalibrated classifier shifts the logits of its average", "[average][classification]") {
  const Workplace place;
  place.train("run", classifier(place, {"train.steps=8", "train.eval_interval=4", "task.head.recalibrate=true",
                                        "train.learning_rate=0.01", "train.weight_average.decay=0.8"}));
  const auto run = load_run(place / "run", "last", "cpu");
  auto shift = run.model->named_buffers()["logit_shift"];
  const auto saved = shift.clone();
  CHECK(saved.abs().sum().item<double>() > 0);
  shift.zero_();
  make_task(run.experiment.config, true).before_evaluation(*run.model, torch::kCPU);
  CHECK(torch::allclose(shift, saved, 1e-5, 1e-7));
}

TEST_CASE("the average of weights is that of float64, and is only lent", "[average]") {
  torch::manual_seed(0);
  const double decay = GENERATE(0.5, 0.999);
  Linear layer(7, 5, /*bias=*/true);
  ParameterBuffer parameters(*layer);
  WeightAverage average(parameters, decay);
  auto sum = torch::zeros_like(parameters.values(), torch::kDouble);
  for (int step = 1; step <= 50; ++step) {
    parameters.values().normal_();
    average.update(step);
    sum = decay * sum + (1 - decay) * parameters.values().to(torch::kDouble);
    const auto expected = sum / (1 - std::pow(decay, step));
    const auto in_training = parameters.values().clone();
    {
      const WeightAverage::Use use(average);
      CHECK(torch::allclose(parameters.values().to(torch::kDouble), expected, 1e-5, 1e-6));
      for (const auto& [name, value] : average.state())
        CHECK(torch::equal(value, ParameterBuffer::part(in_training, parameters.views()[name == "trained.bias"])));
    }
    CHECK(torch::equal(parameters.values(), in_training));
  }
  average.reset();
  const auto again = parameters.values().clone();
  const WeightAverage::Use use(average);
  CHECK(torch::equal(parameters.values(), again));
  WeightAverage without(parameters, /*decay=*/0);
  without.update(1);
  const WeightAverage::Use unchanged(without);
  CHECK(torch::equal(parameters.values(), again));
  CHECK(without.state().empty());
}

}  // namespace metaformer
