#include "tasks/classification_task.h"
#include "tasks/task_examples.h"

namespace metaformer {

TEST_CASE("the calibrating shift gives every class its share", "[classification]") {
  const std::int64_t classes = GENERATE(2, 5);
  torch::manual_seed(4);
  const auto logits_bv = 3 * torch::randn({400, classes}, torch::kDouble) + torch::arange(classes);
  const auto targets_bv = torch::softmax(torch::randn({400, classes}, torch::kDouble), 1);
  const auto weights_b = torch::rand(400, torch::kDouble) + 0.1;
  const auto shift_v = calibrating_shift(logits_bv, targets_bv, weights_b);
  const auto gradient_v = ((torch::softmax(logits_bv + shift_v, 1) - targets_bv) * weights_b.unsqueeze(1)).mean(0);
  CHECK(gradient_v.abs().max().item<double>() < 1e-6);
  const auto of_one = calibrating_shift(logits_bv, torch::one_hot(torch::zeros(400, torch::kLong), classes), weights_b);
  CHECK(of_one.isfinite().all().item<bool>());
}

TEST_CASE("a recalibrated classifier is at the minimum of its loss in the bias, without noise", "[classification]") {
  const Workplace place;
  const auto changes = classifier(
      place, {"train.steps=30", "train.eval_interval=30", "task.head.recalibrate=true", "model.embedding.dropout=0.5",
              "model.dropout=0.3", "task.token_removal=0.4", "task.class_weights=balanced", "task.label_smoothing=0.1",
              "train.batch_size=64", "data.tokenizer.kind=word"});
  place.train("run", changes);
  auto run = load_run(place / "run", "last", "cpu");
  CHECK(run.model->named_buffers()["logit_shift"].abs().max().item<double>() > 1e-3);
  const auto config = run.experiment.config;
  const auto task = make_task(config, /*offline=*/true, std::move(run.codec));
  const auto bias_v = run.model->named_parameters()["head.bias"];
  double sum = 0;
  // Fewer than 4,096: each of them counts once.
  for (std::int64_t i = 0; i < task.batches->evaluation_batches(Split::train); ++i) {
    const auto batch = task.batches->evaluation_batch(Split::train, i, torch::kCPU);
    task.objective->loss(run.model->evaluate(batch), batch).backward();
    sum += batch.weight.item<double>();
  }
  CHECK(sum > 900);
  CHECK(bias_v.grad().abs().max().item<double>() / sum < 1e-5);
}

TEST_CASE("a classifier is recalibrated on 4,096 different texts, or on all", "[classification]") {
  const Workplace place;
  Parts parts(place.experiment(classifier(
      place, {"task.head.recalibrate=true", "train.batch_size=100", "data.tokenizer.kind=word", "train.seed=7"})));
  auto& model = dynamic_cast<Classifier&>(*parts.model);
  const std::int64_t count = GENERATE(1, 99, 100, 1234, 4096, 10000);
  std::vector<std::int64_t> seen;
  const auto texts = [&](std::int64_t first, std::int64_t rows) {
    for (auto text = first; text < first + rows; ++text) seen.push_back(text);
    CHECK(rows <= 100);
    auto batch = parts.task.batches->evaluation_batch(Split::train, 0, torch::kCPU);
    return batch;
  };
  recalibrate(model, texts, count, parts.experiment.config, {}, torch::kCPU);
  REQUIRE(std::ssize(seen) == std::min<std::int64_t>(4096, count));
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == static_cast<std::int64_t>(i));
}

}  // namespace metaformer
