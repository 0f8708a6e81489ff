// The estimated memory of a training, from its config.

#include "model/memory_estimate.h"
#include "support/catch.h"
#include "support/threads.h"

namespace metaformer::test_memory_estimate {

TEST_CASE("with a large vocabulary the estimate is that of an evaluation, which takes more than a step", "[memory]") {
  ExperimentConfig config;
  const auto small = estimate_memory(config, {.vocabulary = 100});
  const auto large = estimate_memory(config, {.vocabulary = 50'000});
  const double logits = 8192.0 * 50'000 * 4;
  CHECK(static_cast<double>(large.activations) > 2 * logits);
  CHECK(static_cast<double>(large.activations) < 4 * logits);
  CHECK(small.activations < large.activations / 20);
  CHECK(large.vocabulary == 50'000);
  CHECK(estimate_memory(config).vocabulary == 128);
}

TEST_CASE("activations grow with the batch, and take fewer bytes with bf16 and fp16", "[memory]") {
  ExperimentConfig config;
  config.train.batch_size = 1000;
  const auto one = estimate_memory(config).activations;
  config.train.batch_size = 2000;
  const auto two = estimate_memory(config).activations;
  config.train.precision = GENERATE(Precision::bf16, Precision::fp16);
  const auto narrow = estimate_memory(config).activations;
  CHECK(static_cast<double>(two) == Approx(2.0 * static_cast<double>(one)).epsilon(0.01));
  CHECK(narrow < two);
  CHECK(narrow >= two / 2);
}

TEST_CASE("the estimate includes the copy of the weights for products in bf16 and fp16", "[memory]") {
  ExperimentConfig config;
  const auto plain = estimate_memory(config);
  config.train.precision = GENERATE(Precision::bf16, Precision::fp16);
  const auto copied = estimate_memory(config);
  CHECK(copied.weights == plain.weights + plain.weights / 2);
  CHECK(copied.gradients == plain.gradients);
  CHECK(copied.optimizer == plain.optimizer);
}

TEST_CASE("the estimate includes the optimiser's state, an average of the weights and the gradients of slices",
          "[memory]") {
  ExperimentConfig config;
  const auto weights = estimate_memory(config).weights;
  CHECK(estimate_memory(config).optimizer == 2 * weights);
  config.train.weight_average.decay = 0.999;
  CHECK(estimate_memory(config).optimizer == 3 * weights);
  config.train.optimizer = MuonConfig{};
  CHECK(estimate_memory(config).optimizer == 3 * weights);
  SgdConfig sgd;
  config.train.optimizer = sgd;
  CHECK(estimate_memory(config).optimizer == weights);
  sgd.momentum = 0.9;
  config.train.optimizer = sgd;
  CHECK(estimate_memory(config).optimizer == 2 * weights);
  CHECK(estimate_memory(config).gradients == weights);
  config.train.cpu_slices = 4;
  CHECK(estimate_memory(config).gradients == 5 * weights);
}

TEST_CASE("a thread that computes several slices in turn needs the activations of one", "[memory]") {
  ExperimentConfig config;
  config.train.batch_size = 2000;
  const Threads scope(2);
  const auto whole = static_cast<double>(estimate_memory(config).activations);
  for (const std::int64_t slices : {2, 4, 8}) {
    config.train.cpu_slices = slices;
    CHECK(static_cast<double>(estimate_memory(config).activations) ==
          Approx(whole * 2 / static_cast<double>(slices)).epsilon(0.01));
  }
}

TEST_CASE("reversible blocks need the activations of one block, chunks a part of them, and a memory adds tokens",
          "[memory]") {
  ExperimentConfig config;
  auto& model = transformer(config);
  config.train.batch_size = 500;
  const auto activations = [&] {
    return static_cast<double>(estimate_memory(config, {.vocabulary = 5000}).activations);
  };
  const double plain = activations();
  model.layers = 40;
  const double deep = activations();
  CHECK(deep > 4 * plain);
  model.blocks = BlockKind::reversible;
  const double reversible = activations();
  CHECK(reversible < plain);
  model.layers = 4;
  CHECK(activations() == reversible);
  model.blocks = BlockKind::plain;
  std::get<MlpConfig>(model.feed_forward).chunks = 16;
  CHECK(activations() < 0.9 * plain);
  std::get<MlpConfig>(model.feed_forward).chunks = 1;
  config.train.loss_chunks = 16;
  CHECK(activations() < 0.5 * plain);
  config.train.loss_chunks = 1;
  model.memory = 64;
  CHECK(activations() > 1.1 * plain);
}

TEST_CASE("the estimate of the largest valid config is huge and does not overflow", "[memory]") {
  ExperimentConfig config;
  transformer(config).layers = 1024;
  transformer(config).width = 65536;
  transformer(config).context = 1 << 20;
  std::get<MlpConfig>(transformer(config).feed_forward).ratio = 64;
  config.train.batch_size = 1 << 20;
  const auto estimate = estimate_memory(config, {.vocabulary = 1 << 20});
  CHECK(estimate.activations >= std::uint64_t{1} << 62);  // 2^66 floats exceed any number of bytes
  CHECK(estimate.total() >= estimate.activations);
  CHECK(clearly_exceeds(estimate, std::uint64_t{1} << 45));
  const auto small = estimate_memory(ExperimentConfig{});
  CHECK(small.total() == small.state() + small.activations + small.program);
}

TEST_CASE("the state of a linear model is only its weights", "[memory]") {
  ExperimentConfig config;
  config.task.emplace<ClassificationConfig>();
  config.model = LinearConfig{};
  const auto estimate = estimate_memory(config, {.vocabulary = 100, .classes = 3});
  CHECK(estimate.weights == static_cast<std::uint64_t>(std::get<LinearConfig>(config.model).buckets + 1) * 3 * 4);
  CHECK(estimate.state() == estimate.weights);
  CHECK(estimate.activations == 4 * estimate.weights);  // liblinear's, in double, and copies for the checkpoint
}

TEST_CASE("only an estimate that is much larger than the memory clearly exceeds it", "[memory]") {
  const MemoryEstimate estimate{
      .weights = 100, .gradients = 100, .optimizer = 200, .activations = 600, .program = 5000};
  CHECK_FALSE(clearly_exceeds(estimate, 900));
  CHECK(clearly_exceeds(estimate, 700));
}

}  // namespace metaformer::test_memory_estimate
