// Gradients of several processes, of which some are sent while backward goes on.

#include <array>

#include "support/together.h"
#include "tasks/task_examples.h"
#include "train/gradient_sum.h"
#include "train/step.h"

namespace metaformer {

namespace {

// One of two processes that compute the same: a sum is twice what the other one sends too.
class Twin : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::unique_ptr<PendingSum> start_sum(const torch::Tensor& x) override {
    x.mul_(2);
    sent += x.numel();
    ++sums;
    return std::make_unique<PendingSum>(PendingSum{[] {}});
  }
  std::unique_ptr<PendingSum> start_sum_on(const torch::Tensor& x, int root) override {
    roots.push_back(root);
    return start_sum(x);
  }
  void broadcast(const torch::Tensor&, int) override {}
  std::vector<std::string> gather(const std::string& bytes) override { return {bytes, bytes}; }
  bool announce_failure(const std::string&) override { return true; }

  std::int64_t sent = 0, sums = 0;  // elements, messages
  std::vector<int> roots;
};

torch::Tensor loss_of(Parts& parts) {
  const auto batch = parts.batches(3).front();
  return parts.batch_loss(batch, batch.weight, StepPasses(0, torch::kCPU).pass(0), 0);
}

torch::Tensor gradients_of(Parts& parts) {
  parts.parameters->clear_gradients();
  loss_of(parts).backward();
  return parts.parameters->gradients().clone();
}

std::int64_t elements_of(const std::vector<ParameterBuffer::View>& views) {
  std::int64_t count = 0;
  for (const auto& view : views)
    if (view.rate > 0) count += view.count;
  return count;
}

}  // namespace

TEST_CASE("gradients are sent while backward goes on, once and complete", "[processes]") {
  const Workplace place;
  Parts parts(place.experiment({"model.layers=3"}));
  const auto shards = shards_of(*parts.parameters, parts.experiment.config.train, 2);
  const bool is_sharded = GENERATE(false, true), freezes = GENERATE(false, true);
  const std::int64_t bucket_bytes = GENERATE(1, 4096, 25 << 20);
  if (freezes) parts.parameters->set_rates([](const auto& view) { return view.decay == Decay::matrices ? 1.0 : 0.0; });
  const auto expected = 2 * gradients_of(parts);

  Twin twin;
  GradientSum sum(twin, *parts.parameters, is_sharded ? &shards : nullptr, bucket_bytes);
  parts.parameters->clear_gradients();
  sum.start_with_backward();
  loss_of(parts).backward();
  const auto early = twin.sums;
  sum.finish();
  CHECK(torch::equal(parts.parameters->gradients(), expected));
  CHECK(twin.sent >= elements_of(parts.parameters->views()));
  CHECK(twin.sent <= parts.parameters->gradients().numel());
  CHECK(early > (bucket_bytes == 1 ? 10 : 0));
  CHECK(std::ssize(twin.roots) == (is_sharded ? twin.sums : 0));
}

TEST_CASE("a further step is sent as the first one was", "[processes]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  Twin twin;
  const auto expected = 2 * gradients_of(parts);
  GradientSum sum(twin, *parts.parameters, nullptr, 1);
  for (int step = 0; step < 3; ++step) {
    parts.parameters->clear_gradients();
    sum.start_with_backward();
    loss_of(parts).backward();
    sum.finish();
    CHECK(torch::equal(parts.parameters->gradients(), expected));
  }
}

TEST_CASE("only the last of several backward passes is sent", "[processes]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  Twin twin;
  const auto once = gradients_of(parts);
  GradientSum sum(twin, *parts.parameters, nullptr, 1);
  parts.parameters->clear_gradients();
  loss_of(parts).backward();
  CHECK(twin.sums == 0);
  sum.start_with_backward();
  loss_of(parts).backward();
  sum.finish();
  CHECK(torch::equal(parts.parameters->gradients(), 4 * once));
}

TEST_CASE("a gradient that is added to after it was sent is an error, not a wrong sum", "[processes]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  Twin twin;
  GradientSum sum(twin, *parts.parameters, nullptr, 1);
  sum.start_with_backward();
  loss_of(parts).backward();
  CHECK_THROWS_WITH(loss_of(parts).backward(),
                    Catch::Matchers::StartsWith("a gradient was added to after it had been sent: transformer."));
}

TEST_CASE("backward is watched no longer than the sum exists", "[processes]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  const auto expected = gradients_of(parts);
  Twin twin;
  {
    GradientSum sum(twin, *parts.parameters, nullptr, 1);
    sum.start_with_backward();
  }
  CHECK(torch::equal(gradients_of(parts), expected));
  CHECK(twin.sums == 0);
}

TEST_CASE("processes whose losses have other parameters send in the same order", "[processes]") {
  const Workplace place;
  const auto experiment = place.experiment({"model.layers=2"});
  const bool is_sharded = GENERATE(false, true);
  std::array<int, 3> wrong = {};  // by rank
  together(3, [&](ProcessGroup& group) {
    Parts parts(experiment);
    const auto shards = shards_of(*parts.parameters, experiment.config.train, 3);
    GradientSum sum(group, *parts.parameters, is_sharded ? &shards : nullptr, 64);
    // Rank 1 lacks every third parameter.
    torch::Tensor loss = torch::zeros({});
    const auto& views = parts.parameters->views();
    for (std::size_t i = 0; i < views.size(); ++i)
      if (group.rank() != 1 || i % 3 != 0) loss = loss + (group.rank() + 1) * views[i].parameter.sum();
    sum.start_with_backward();
    loss.backward();
    sum.finish();
    const auto own = shards[static_cast<std::size_t>(group.rank())];
    for (std::size_t i = 0; i < views.size(); ++i) {
      auto begin = views[i].offset, end = begin + views[i].count;
      if (is_sharded) begin = std::max(begin, own.first), end = std::min(end, own.first + own.count);
      if (begin >= end) continue;
      const auto sums = parts.parameters->gradients().narrow(0, begin, end - begin);
      wrong[static_cast<std::size_t>(group.rank())] += (sums != (i % 3 == 0 ? 4 : 6)).sum().item<int>();
    }
  });
  CHECK(wrong == std::array<int, 3>{});
}

}  // namespace metaformer
