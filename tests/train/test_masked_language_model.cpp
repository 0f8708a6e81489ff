// Whole trainings of masked language models.

#include "tasks/task_examples.h"

namespace metaformer {

namespace {

Overrides masked(const Workplace& place, const Overrides& more, bool packs) {
  const auto all = joined({"task=masked_language_model"}, more);
  return packs ? joined(all, {"data.path=" + documents(place), "data.packing=spfhp", "data.tokenizer=byte"}) : all;
}

}  // namespace

TEST_CASE("a masked language model falls below the entropy of its tokens", "[masking]") {
  const Workplace place;
  const auto summary = place.train(
      "run", masked(place,
                    {"train.steps=500", "train.eval_interval=500", "train.learning_rate=5e-3", "train.batch_size=16",
                     "model.width=32", "model.mixer=scaled_dot_product", "model.positions=rotary"},
                    GENERATE(false, true)));
  const auto& validation = summary["validation"];
  CHECK(validation["loss"].get<double>() < 0.5 * validation["unigram_entropy"].get<double>());
  CHECK(validation["perplexity"].get<double>() == Approx(std::exp(validation["loss"].get<double>())));
  CHECK(validation["accuracy"].get<double>() > 0.5);
  CHECK(validation["targets"].get<double>() > 20);
}

TEST_CASE("accumulated, sliced and chunked batches give the gradient of the big batch", "[masking]") {
  const Workplace place;
  const bool packs = GENERATE(false, true);
  const std::string loss = GENERATE("token", "sequence"), tie = GENERATE("true", "false");
  const auto parts_with = [&](const Overrides& more) {
    const Overrides common = {"train.clip=0", "task.loss=" + loss, "model.embedding.tie=" + tie};
    return Parts(place.experiment(masked(place, joined(more, common), packs)));
  };
  auto big = parts_with({"train.batch_size=12"});
  for (const auto& more : std::vector<Overrides>{
           {"train.batch_size=3", "train.accumulate=4"},
           {"train.batch_size=12", "train.cpu_slices=5"},
           {"train.batch_size=12", "train.loss_chunks=3"},
           {"train.batch_size=6", "train.accumulate=2", "train.cpu_slices=6", "train.loss_chunks=2"}}) {
    auto other = parts_with(more);
    const auto expected = big.run(2, 0), given = other.run(2, 0);
    CHECK(given.loss.item<double>() == Approx(expected.loss.item<double>()).epsilon(1e-6));
    CHECK(torch::allclose(other.parameters->gradients(), big.parameters->gradients(), 1e-4, 1e-6));
  }
}

}  // namespace metaformer
