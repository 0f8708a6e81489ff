// How a step is divided over processes, and the sums of their gradients, which are sent while backward goes on.

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
  PendingSum start_sum(const torch::Tensor& x) override {
    x.mul_(2);
    sent += x.numel();
    ++sums;
    return [] {};
  }
  PendingSum start_sum_on(const torch::Tensor& x, int root) override {
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

// "0 1.0/2": the micro-batch 0, and the first half of 1.
std::string text_of(const std::vector<Piece>& pieces) {
  std::string text;
  for (const auto& [micro, part, parts] : pieces)
    text += (text.empty() ? "" : " ") + std::to_string(micro) +
            (parts == 1 ? "" : "." + std::to_string(part) + "/" + std::to_string(parts));
  return text;
}

std::int64_t elements_of(const std::vector<ParameterBuffer::View>& views) {
  std::int64_t count = 0;
  for (const auto& view : views)
    if (view.rate > 0) count += view.count;
  return count;
}

// A small model, and beside it a process that computes the same.
struct TwinPlace {
  explicit TwinPlace(const Overrides& overrides = {}) : parts(place.experiment(overrides)) {}
  const Workplace place;
  Parts parts;
  Twin twin;
};

}  // namespace

TEST_CASE("gradients are sent while backward goes on, once and complete, in every step", "[processes]") {
  TwinPlace at({"model.layers=3"});
  auto& [place, parts, twin] = at;
  const auto shards = shards_of(*parts.parameters, parts.experiment.config.train, 2);
  const bool is_sharded = GENERATE(false, true), freezes = GENERATE(false, true);
  const std::int64_t bucket_bytes = GENERATE(1, 4096, 25 << 20);
  if (freezes) parts.parameters->set_rates([](const auto& view) { return view.decay == Decay::matrices ? 1.0 : 0.0; });
  const auto expected = 2 * gradients_of(parts);
  GradientSum sum(twin, *parts.parameters, is_sharded ? &shards : nullptr, bucket_bytes);
  for (int step = 0; step < 3; ++step) {
    const auto sent = twin.sent, sums = twin.sums;
    parts.parameters->clear_gradients();
    sum.start_with_backward();
    loss_of(parts).backward();
    const auto early = twin.sums - sums;
    sum.finish();
    CHECK(torch::equal(parts.parameters->gradients(), expected));
    CHECK(twin.sent - sent >= elements_of(parts.parameters->views()));
    CHECK(twin.sent - sent <= parts.parameters->gradients().numel());
    CHECK(early > (bucket_bytes == 1 ? 10 : 0));
    CHECK(std::ssize(twin.roots) == (is_sharded ? twin.sums : 0));
  }
}

TEST_CASE("of several backward passes the last is sent, and a gradient that is added to later is an error",
          "[processes]") {
  TwinPlace at;
  auto& [place, parts, twin] = at;
  const auto once = gradients_of(parts);
  {
    GradientSum sum(twin, *parts.parameters, nullptr, 1);
    parts.parameters->clear_gradients();
    loss_of(parts).backward();
    CHECK(twin.sums == 0);
    sum.start_with_backward();
    loss_of(parts).backward();
    sum.finish();
    CHECK(torch::equal(parts.parameters->gradients(), 4 * once));
    sum.start_with_backward();
    loss_of(parts).backward();
    CHECK_THROWS_WITH(loss_of(parts).backward(), ContainsSubstring("after it had been sent: transformer."));
  }
  { GradientSum(twin, *parts.parameters, nullptr, 1).start_with_backward(); }
  const auto sums = twin.sums;  // backward is watched no longer than the sum exists
  CHECK(torch::equal(gradients_of(parts), once));
  CHECK(twin.sums == sums);
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

TEST_CASE("processes compute whole micro-batches as far as possible", "[pieces]") {
  CHECK(text_of(pieces_of(0, 1, 3)) == "0 1 2");
  CHECK(text_of(pieces_of(1, 2, 4)) == "2 3");
  CHECK(text_of(pieces_of(0, 4, 2)) == "0.0/2");
  CHECK(text_of(pieces_of(3, 4, 2)) == "1.1/2");
  CHECK(text_of(pieces_of(0, 2, 3)) == "0.0/2 0.1/2 1.0/2");
  CHECK(text_of(pieces_of(1, 2, 3)) == "1.1/2 2.0/2 2.1/2");
}

TEST_CASE("all pieces together are the step, each once and in order", "[pieces]") {
  for (const std::int64_t accumulate : {1, 2, 3, 4, 6})
    for (const int size : {1, 2, 3, 4, 8}) {
      std::int64_t next = 0, parts = 0;
      for (int rank = 0; rank < size; ++rank)
        for (const auto& piece : pieces_of(rank, size, accumulate)) {
          parts = piece.parts;
          CHECK(piece.micro * parts + piece.part == next++);
        }
      CHECK(next == accumulate * parts);
    }
}

TEST_CASE("rows or batches that cannot be divided evenly are an error that names the numbers", "[pieces]") {
  ExperimentConfig config;
  config.train.batch_size = 6;
  config.train.accumulate = 2;
  for (const int processes : {2, 4}) CHECK_NOTHROW(require_equal_pieces(config, processes));
  CHECK_THROWS_WITH(require_equal_pieces(config, 8), ContainsSubstring("train.batch_size 6 x train.accumulate 2") &&
                                                         ContainsSubstring("a multiple of 4"));
  // Batches of tokens are never divided.
  config.task = SequenceToSequenceConfig{.batch_unit = BatchUnit::token};
  config.train.batch_size = 4096;
  config.train.accumulate = 4;
  for (const int processes : {1, 4}) CHECK_NOTHROW(require_equal_pieces(config, processes));
  CHECK_THROWS_WITH(require_equal_pieces(config, 8),
                    ContainsSubstring("task.batch_unit token") && ContainsSubstring("a multiple of 8"));
}

}  // namespace metaformer
