// Logits of slices that threads share, against those of a model that is given the whole batch.

#include "ops/autocast.h"
#include "support/threads.h"
#include "tasks/classification_task.h"
#include "tasks/task_examples.h"

namespace metaformer {

namespace {

// 90 rows of up to 64 tokens: several slices.
Batch random_batch(bool is_ragged) {
  torch::manual_seed(3);
  constexpr std::int64_t rows = 90, length = 64;
  Batch batch{.ids_bc = torch::randint(4, {rows, length}, torch::kLong)};
  if (!is_ragged) return batch;
  const auto length_b1 = torch::arange(rows).unsqueeze(1) % 31 + 1;  // of no row is it the whole length
  batch.segments_bc = torch::where(torch::arange(length) < length_b1, 0, -1);
  batch.labels_l = torch::zeros(rows, torch::kLong);
  return batch;
}

Experiment experiment_of(const Workplace& place, bool classifies) {
  const std::vector<std::string> changes = {"model.context=64", "model.positions=rotary"};
  return place.experiment(classifies ? classifier(place, changes) : changes);
}

}  // namespace

TEST_CASE("slices have the logits of their batch, with any number of threads", "[predictor]") {
  const Workplace place;
  const bool classifies = GENERATE(true, false);
  const auto precision = GENERATE(Precision::fp32, Precision::bf16);
  Parts parts(experiment_of(place, classifies));
  const auto batch = random_batch(classifies);
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(precision, torch::kCPU);
  const auto whole = parts.model->evaluate(batch);
  const auto logits = [&](int threads) {
    const Threads scope(threads);
    return NetworkPredictor(*parts.model).logits(batch);
  };
  const auto with_one = logits(1);
  CHECK(with_one.scalar_type() == whole.scalar_type());
  CHECK_FALSE(with_one.requires_grad());
  REQUIRE(with_one.sizes() == whole.sizes());
  const double tolerance = precision == Precision::fp32 ? 1e-5 : 2e-2;
  CHECK(torch::allclose(with_one, whole, tolerance, tolerance));
  for (const int threads : {2, 3, 5}) CHECK(torch::equal(logits(threads), with_one));
}

TEST_CASE("padded rows of texts without labels have what the model says of each token of the batch", "[predictor]") {
  const Workplace place;
  Parts parts(experiment_of(place, /*classifies=*/false));
  auto batch = random_batch(/*is_ragged=*/true);
  batch.labels_l = torch::Tensor();
  const torch::NoGradGuard no_grad;
  const auto logits_bcv = NetworkPredictor(*parts.model).logits(batch), whole_bcv = parts.model->evaluate(batch);
  REQUIRE(logits_bcv.sizes() == whole_bcv.sizes());
  const auto is_token_bc1 = (batch.segments_bc >= 0).unsqueeze(2);
  CHECK(torch::allclose(logits_bcv * is_token_bc1, whole_bcv * is_token_bc1, 1e-5, 1e-5));
}

TEST_CASE("an error in one of the slices is that of the prediction", "[predictor]") {
  const Workplace place;
  Parts parts(experiment_of(place, /*classifies=*/false));
  const Batch too_long{.ids_bc = torch::zeros({40, 65}, torch::kLong)};
  CHECK_THROWS_AS(NetworkPredictor(*parts.model).logits(too_long), Error);
}

}  // namespace metaformer
