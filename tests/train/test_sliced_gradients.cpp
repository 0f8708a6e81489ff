// Batches that threads share.

#include "support/threads.h"
#include "support/workplace.h"
#include "train/step.h"

namespace metaformer {

namespace {

struct Computed {
  torch::Tensor loss, gradients;
};

Computed gradients_of(const Workplace& place, std::vector<std::string> overrides, const std::string& slices) {
  overrides.push_back("train.cpu_slices=" + slices);
  Parts parts(place.experiment(overrides));
  for (const auto& view : parts.parameters->views()) view.parameter.mutable_grad().fill_(5);  // of the step before
  const auto loss = parts.compute_gradients(3);
  return {loss, parts.parameters->gradients().clone()};
}

}  // namespace

TEST_CASE("slices of a batch have the batch's gradients", "[slices]") {
  const auto overrides =
      GENERATE(values<std::vector<std::string>>({{"model.mixer=metric"},
                                                 {"model.mixer=scaled_dot_product"},
                                                 {"model.mixer=quadratic", "train.accumulate=3"},
                                                 {"model.mixer=average_pooling"},
                                                 {"model.mixer=identity", "model.embedding.tie=false"},
                                                 {"model.mixer=none"},  // its norms have no part in the loss
                                                 {"model.positions=t5"},
                                                 {"model.positions=sinusoidal"},
                                                 {"model.positions=rotary", "model.norm=rms_norm"}}));
  const Workplace place;
  const auto whole = gradients_of(place, overrides, "1");
  for (const std::string slices : {"2", "4", "6", "100"}) {  // a batch has six rows
    const auto cut = gradients_of(place, overrides, slices);
    CHECK(cut.loss.item<double>() == Approx(whole.loss.item<double>()).epsilon(1e-6));
    CHECK(torch::allclose(cut.gradients, whole.gradients, 1e-4, 1e-6));
  }
}

TEST_CASE("slices have the same bytes with any number of threads", "[slices]") {
  const auto precision = GENERATE(as<std::string>(), "fp32", "bf16", "fp16");
  const Workplace place;
  const auto train = [&](int threads) {
    const Threads scope(threads);
    const auto run = std::to_string(threads) + precision;
    place.train(run, {"train.cpu_slices=3", "model.dropout=0.2", "train.accumulate=2", "train.precision=" + precision});
    return model_bytes(place / run);
  };
  const auto bytes = train(1);
  for (const int threads : {2, 3, 4}) CHECK((train(threads) == bytes));
}

// The table of an encoder and decoder with shared_embedding gets three gradients: of the source, the target and the
// head.
TEST_CASE("slices have the same bytes whichever thread casts the head first", "[slices]") {
  const auto gradients_with = [](int threads) {
    const Threads scope(threads);
    Parts parts(default_experiment({"task=sequence_to_sequence", "data.synthetic=copy", "model=encoder_decoder",
                                    "model.layers=1", "model.heads=2", "model.width=32", "train.precision=bf16",
                                    "train.batch_size=16", "train.cpu_slices=8"}));
    parts.compute_gradients(1);
    return parts.parameters->gradients().clone();
  };
  const auto gradients = gradients_with(1);
  for (const int threads : {2, 4, 8}) CHECK(torch::equal(gradients_with(threads), gradients));
}

TEST_CASE("dropout takes the same entries of a step, however its rows are divided", "[slices]") {
  const auto mixer = GENERATE(as<std::string>(), "metric", "scaled_dot_product", "quadratic", "average_pooling");
  const Workplace place;
  const std::vector<std::string> overrides = {"model.dropout=0.5", "model.mixer=" + mixer};
  const auto whole = gradients_of(place, overrides, "1");
  for (const std::string slices : {"2", "3"}) {
    const auto cut = gradients_of(place, overrides, slices);
    CHECK(torch::allclose(cut.gradients, whole.gradients, 1e-4, 1e-6));
  }
  auto in_two_batches = overrides;
  in_two_batches.insert(in_two_batches.end(), {"train.batch_size=3", "train.accumulate=2"});
  const auto halves = gradients_of(place, in_two_batches, "1");
  CHECK(torch::allclose(halves.gradients, whole.gradients, 1e-4, 1e-6));
}

TEST_CASE("a fault in a slice is reported as one of the whole step", "[slices]") {
  const Workplace place;
  Parts parts(place.experiment({"train.cpu_slices=2", "train.precision=fp16"}));
  parts.loss_scale->factor().fill_(1e38);  // overflows float16
  const auto result = parts.run(0, 1e-3);
  CHECK(result.skipped.item<bool>());
}

}  // namespace metaformer
