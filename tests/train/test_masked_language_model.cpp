// Whole trainings of masked language models.

#include "support/graph_by_hand.h"
#include "support/threads.h"
#include "tasks/task_examples.h"

namespace metaformer {

namespace {

std::vector<std::string> masked(const Workplace& place, std::vector<std::string> more, bool packs) {
  more.insert(more.begin(), "task=masked_language_model");
  if (packs) more.insert(more.end(), {"data.path=" + documents(place), "data.packing=spfhp", "data.tokenizer=byte"});
  return more;
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
  const auto parts_with = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"train.clip=0", "task.loss=" + loss, "model.embedding.tie=" + tie});
    return Parts(place.experiment(masked(place, more, packs)));
  };
  auto big = parts_with({"train.batch_size=12"});
  for (const auto& more : std::vector<std::vector<std::string>>{
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

TEST_CASE("a replayed masked step is the eager one", "[masking][graph]") {
  const Workplace place;
  // At most 32 targets in a batch, whose places are padded to 32.
  const auto experiment = place.experiment(masked(place, {"train.batch_size=2", "train.accumulate=2"}, false));
  Parts eager(experiment), parts(experiment);
  GraphCounts counts;
  parts.replay_by(std::make_unique<GraphByHand>(counts));
  for (std::int64_t step = 0; step < 9; ++step) {
    const auto expected = eager.run(step, 1e-3), given = parts.run(step, 1e-3);
    CHECK(given.loss.item<double>() == Approx(expected.loss.item<double>()).epsilon(1e-6));
  }
  CHECK(torch::allclose(parts.parameters->values(), eager.parameters->values(), 1e-6, 1e-9));
  CHECK(counts.replays == 6);
}

TEST_CASE("an evaluation is the mean over single predictions, whatever the batches and threads", "[masking]") {
  const Workplace place;
  const bool packs = GENERATE(false, true);
  const auto overrides = masked(place, {"model.context=64"}, packs);
  Parts parts(place.experiment(overrides));
  const auto report = [&](Parts& of) { return evaluate_split({of.predictor(), of.task}, Split::validation); };
  const auto metrics = report(parts);
  double sum = 0, correct = 0, count = 0;
  for (std::int64_t i = 0; i < parts.task.batches->evaluation_batches(Split::validation); ++i) {
    const auto batch = parts.task.batches->evaluation_batch(Split::validation, i, torch::kCPU);
    for (std::int64_t row = 0; row < batch.ids_bc.size(0); ++row) {
      auto one = rows_of(batch, row, 1);
      one.places_t = torch::Tensor();
      const auto logits_cv = parts.model->evaluate(one)[0].to(torch::kDouble);
      for (std::int64_t c = 0; c < logits_cv.size(0); ++c) {
        const auto target = one.targets_bc[0][c].item<std::int64_t>();
        if (target < 0) continue;
        sum -= torch::log_softmax(logits_cv[c], 0)[target].item<double>();
        correct += logits_cv[c].argmax().item<std::int64_t>() == target;
        ++count;
      }
    }
  }
  CHECK(metrics["targets"].get<double>() == count);
  CHECK(metrics["loss"].get<double>() == Approx(sum / count).epsilon(1e-6));
  CHECK(metrics["accuracy"].get<double>() == Approx(correct / count));
  auto others = overrides;
  others.insert(others.end(), {"train.batch_size=5", "train.seed=99"});
  Parts other(place.experiment(others));
  other.parameters->values().copy_(parts.parameters->values());
  CHECK(report(other) == metrics);
  for (const int threads : {2, 3}) {
    const Threads scope(threads);
    CHECK(report(parts) == metrics);
  }
}

}  // namespace metaformer
