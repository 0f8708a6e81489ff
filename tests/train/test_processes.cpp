// Trainings with several processes, which are threads here (tests/cli starts real ones): the division of a step, the
// sums of gradients, which are sent during backward, and whole trainings.

#include <array>

#include "run/checkpoint_surgery.h"
#include "support/graph_by_hand.h"
#include "support/together.h"
#include "tasks/task_examples.h"
#include "train/gradient_sum.h"

namespace metaformer::test_processes {

namespace {

// One of two processes with the same values, so that every sum is twice its own value.
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

// Pieces as a text: "0 1.0/2" is the micro-batch 0 and the first half of 1.
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

// A small model, and a second process that computes the same.
struct TwinPlace {
  explicit TwinPlace(const Overrides& overrides = {}) : parts(place.experiment(overrides)) {}
  const Workplace place;
  Parts parts;
  Twin twin;
};

void train_as_part(const Workplace& place, ProcessGroup& group, const std::string& out, const Overrides& overrides,
                   bool resume = false) {
  metaformer::train({.experiment = place.experiment(overrides),
                     .out = place / out,
                     .resume = resume,
                     .offline = true,
                     .device = "cpu",
                     .command_line = {"test"},
                     .group = &group});
}

void train_together(const Workplace& place, int processes, const std::string& out, const Overrides& overrides,
                    bool resume = false) {
  together(processes, [&](ProcessGroup& group) { train_as_part(place, group, out, overrides, resume); });
}

const Overrides noisy = {"model.dropout=0.1",     "train.batch_size=4",          "train.accumulate=2",  "train.steps=6",
                         "train.eval_interval=3", "train.checkpoint_interval=3", "train.log_interval=1"};

// Sources and targets with common words.
std::string marked_pairs(int rows) {
  std::string table = "source\ttarget\n";
  for (int i = 0; i < rows; ++i) {
    const auto words = std::to_string(i * 7 % 31) + " w" + std::to_string(i * 11 % 23);
    table += "w" + words + (i % 3 ? " and" : "") + "\tv" + words + (i % 2 ? " too" : "") + "\n";
  }
  return table;
}

void require_same_bytes(const Workplace& place, const Overrides& overrides, int processes = 2) {
  place.train("one", overrides);
  train_together(place, processes, "many", overrides);
  CHECK((model_bytes(place / "one") == model_bytes(place / "many")));
  CHECK((state_bytes(place / "one") == state_bytes(place / "many")));
  CHECK(metrics_without_time(place / "one") == metrics_without_time(place / "many"));
}

Overrides steps_of(const Overrides& overrides, int count) {
  return joined(joined(noisy, overrides),
                {"train.schedule={kind: constant, warmup_steps: 0}", "train.eval_interval=100",
                 "train.checkpoint_interval=100", "train.steps=" + std::to_string(count)});
}

Checkpoint last_of(const Workplace& place, const std::string& run) {
  return load_checkpoint(RunDirectory::open(place / run), "last", WithOptimizer::yes);
}

void check_close(const NamedTensors& given, const NamedTensors& expected, double relative, double absolute) {
  const std::map<std::string, torch::Tensor> by_name(given.begin(), given.end());
  CHECK(given.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    INFO(name);
    CHECK(torch::allclose(by_name.at(name), tensor, relative, absolute));
  }
}

}  // namespace

TEST_CASE("gradients are sent during backward, once and complete, in every step", "[processes]") {
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

TEST_CASE("gradients are sent during the last of several backward passes, and a later addition is an error",
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
    CHECK_THROWS_WITH(loss_of(parts).backward(), ContainsSubstring("sent: transformer."));
  }
  { GradientSum(twin, *parts.parameters, nullptr, 1).start_with_backward(); }
  const auto sums = twin.sums;  // without the sum, backward sends nothing
  CHECK(torch::equal(gradients_of(parts), once));
  CHECK(twin.sums == sums);
}

TEST_CASE("a step that was broken off leaves neither sums nor nodes of the graph behind", "[processes]") {
  TwinPlace at;
  auto& [place, parts, twin] = at;
  const auto expected = 2 * gradients_of(parts);
  GradientSum sum(twin, *parts.parameters, nullptr, 1);
  sum.start_with_backward();
  loss_of(parts).backward();
  const std::weak_ptr<torch::autograd::Node> node =
      torch::autograd::impl::grad_accumulator(parts.parameters->views().front().parameter);
  CHECK_FALSE(node.expired());
  sum.reset();
  CHECK(node.expired());
  parts.parameters->clear_gradients();
  sum.start_with_backward();
  loss_of(parts).backward();
  sum.finish();
  CHECK(torch::equal(parts.parameters->gradients(), expected));
}

TEST_CASE("processes replay their steps with the sums, or all of them run eagerly if one cannot record",
          "[processes]") {
  const Workplace place;
  const auto more = GENERATE(values<Overrides>(
      {{"train.clip=0.01"}, {"train.accumulate=1"}, {"train.precision=fp16"}, {"train.shard_optimizer=true"}}));
  const bool fails = GENERATE(false, true);
  CAPTURE(more.front(), fails);
  const auto experiment = place.experiment(joined(noisy, more));
  constexpr double rate = 1.0 / 1024;  // the same in a tensor of floats
  std::array<GraphCounts, 2> counts;   // by rank, as the others
  std::array<bool, 2> are_close = {}, replay = {};
  together(2, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    Parts eager(experiment, group), replayed(experiment, group);
    replayed.replay_by(std::make_unique<GraphByHand>(counts[rank], fails && group.rank() == 1));
    are_close[rank] = true;
    for (std::int64_t step = 0; step < 8; ++step) {
      const auto expected = eager.run(step, rate), given = replayed.run(step, rate);
      are_close[rank] = are_close[rank] && torch::allclose(given.loss, expected.loss, 1e-5, 0) &&
                        torch::allclose(given.gradient_norm, expected.gradient_norm, 1e-4, 0);
    }
    are_close[rank] =
        are_close[rank] && torch::allclose(replayed.parameters->values(), eager.parameters->values(), 1e-5, 1e-7);
    replay[rank] = replayed.replays();
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    CHECK(are_close[rank]);
    CHECK(replay[rank] == !fails);
    CHECK(counts[rank].captures == 1);
    CHECK(counts[rank].replays == (fails ? 0 : 5));  // after three eager steps of warm-up
  }
}

TEST_CASE("processes whose losses depend on different parameters send in the same order", "[processes]") {
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

TEST_CASE("processes compute whole micro-batches if possible, and together all of a step once and in order",
          "[pieces]") {
  CHECK(text_of(pieces_of(0, 1, 3)) == "0 1 2");
  CHECK(text_of(pieces_of(1, 2, 4)) == "2 3");
  CHECK(text_of(pieces_of(3, 4, 2)) == "1.1/2");
  CHECK(text_of(pieces_of(0, 2, 3)) == "0.0/2 0.1/2 1.0/2");
  const std::int64_t accumulate = GENERATE(1, 2, 3, 4, 6);
  const int size = GENERATE(1, 2, 3, 4, 8);
  std::int64_t next = 0, parts = 0;
  for (int rank = 0; rank < size; ++rank)
    for (const auto& piece : pieces_of(rank, size, accumulate)) {
      parts = piece.parts;
      CHECK(piece.micro * parts + piece.part == next++);
    }
  CHECK(next == accumulate * parts);
}

TEST_CASE("rows or batches that cannot be divided evenly are an error that names the numbers", "[pieces]") {
  ExperimentConfig config;
  config.train.batch_size = 6;
  config.train.accumulate = 2;
  for (const int processes : {2, 4}) CHECK_NOTHROW(require_equal_pieces(config, processes));
  CHECK_THROWS_WITH(require_equal_pieces(config, 8),
                    Mentions("train.batch_size 6|train.accumulate 2") && ContainsSubstring("a multiple of 4"));
  // Batches of tokens are never divided.
  config.task = SequenceToSequenceConfig{.batch_unit = BatchUnit::token};
  config.train.batch_size = 4096;
  config.train.accumulate = 4;
  for (const int processes : {1, 4}) CHECK_NOTHROW(require_equal_pieces(config, processes));
  CHECK_THROWS_WITH(require_equal_pieces(config, 8),
                    ContainsSubstring("task.batch_unit token") && ContainsSubstring("a multiple of 8"));
}

TEST_CASE("two processes train like one process with two micro-batches, to the byte", "[processes]") {
  const Workplace place;
  const auto more = GENERATE(values<Overrides>({{"train.cpu_slices=2"},
                                                {"train.loss_chunks=3"},
                                                {"model.blocks=reversible"},
                                                {"train.optimizer=muon"},
                                                {"train.optimizer=adagrad"},
                                                {"train.precision=bf16"},
                                                {"train.precision=fp16"},
                                                {"train.weight_average.decay=0.9"},
                                                {"train.clip=0.01"},
                                                {"train.evaluation=random"},
                                                {"train.evaluation={kind: limited, tokens: 200}"},
                                                {"model.memory=8", "model.positions=transformer_xl"},
                                                {"model={kind: lstm, width: 16, carry_state: true}"},
                                                {"model={kind: gru, width: 16}"},
                                                {"model={kind: feed_forward, window: 4, width: 8, hidden: 16}"},
                                                {"task=masked_language_model"}}));
  INFO(more.front());
  require_same_bytes(place, joined(noisy, more));
}

TEST_CASE("two processes train adapters like one process", "[processes][lora]") {
  const Workplace place;
  place.train("source", {"train.steps=2"});
  const std::string shards = GENERATE("false", "true"), optimiser = GENERATE("adamw", "muon");
  CAPTURE(shards, optimiser);
  const auto options = joined(noisy, {"train.init_from='" + (place / "source").string() + "'", "train.lora.rank=2",
                                      "train.lora.full=[transformer.final_norm]", "train.optimizer=" + optimiser,
                                      "train.optimizer.epsilon=1e-3", "train.clip=0.1"});
  place.train("one", options);
  train_together(place, 2, "many", joined(options, {"train.shard_optimizer=" + shards}));
  const auto one = last_of(place, "one"), many = last_of(place, "many");
  check_close(many.model, one.model, 1e-4, 1e-6);
  check_close(many.optimizer, one.optimizer, 1e-3, 1e-5);
}

TEST_CASE("two processes train every mixer like one process, to the byte", "[processes]") {
  const auto kind = GENERATE(from_range(kinds_of<MixerConfig>()));
  const Workplace place;
  INFO(kind);
  auto more = joined(noisy, {"model.mixer=" + kind, "train.cpu_slices=1"});
  if (!can_be_causal(*make_kind<MixerConfig>(kind))) more = joined(more, {"task=masked_language_model"});
  require_same_bytes(place, more);
}

TEST_CASE("two processes train sorters, classifiers and sequence-to-sequence models like one process, to the byte",
          "[processes]") {
  const Workplace place;
  place.folder().write("pairs.tsv", marked_pairs(300));
  const Overrides of_pairs = {"task=sequence_to_sequence",
                              "data.path='" + (place / "pairs.tsv").string() + "'",
                              "data.tokenizer=word",
                              "model.kind=encoder_decoder",
                              "model.layers=1",
                              "model.cross_mixer=metric"};
  const std::map<std::string, Overrides> tasks = {
      {"sorting", sorter(joined(noisy, {"model.context=7"}))},
      {"ragged", classifier(place, noisy)},
      {"bucketing", classifier(place, joined(noisy, {"task.bucketing=5"}))},
      {"packed", classifier(place, joined(noisy, {"data.packing=spfhp", "model.context=24"}))},
      {"pairs", joined(of_pairs, noisy)},
      {"pairs by tokens", joined(joined(of_pairs, noisy), {"task.batch_unit=token", "train.batch_size=24"})}};
  const std::string task = GENERATE("sorting", "ragged", "bucketing", "packed", "pairs", "pairs by tokens");
  CAPTURE(task);
  require_same_bytes(place, tasks.at(task));
}

TEST_CASE("several processes train like one process with as many micro-batches, to the byte", "[processes]") {
  const Workplace place;
  const int processes = GENERATE(2, 3, 4);
  // Enough parameters for the sums of large tensors; tables of regions have gradients in few rows.
  const auto model =
      GENERATE(true, false)
          ? joined(noisy, {"model.width=32", "train.cpu_slices=2"})
          : classifier(place, joined(noisy, {"model.layers=0", "model.heads=4", "model.positions=none",
                                             "model.dropout=0", "train.optimizer=adagrad", "train.clip=0",
                                             "task.head=max_pooled", "model.embedding.region=sequence"}));
  require_same_bytes(place, joined(model, {"train.accumulate=" + std::to_string(processes)}), processes);
}

TEST_CASE("more processes than micro-batches train the same except for rounding", "[processes]") {
  const Workplace place;
  const int processes = GENERATE(2, 4);
  const std::string accumulate = GENERATE("1", "3");
  const Overrides overrides = {"model.dropout=0.2", "train.batch_size=4",    "train.accumulate=" + accumulate,
                               "train.steps=3",     "train.eval_interval=3", "train.checkpoint_interval=3"};
  place.train("one", overrides);
  train_together(place, processes, "many", overrides);
  check_close(last_of(place, "one").model, last_of(place, "many").model, 1e-5, 3e-6);
}

TEST_CASE("processes with a sharded optimiser train the same except for rounding", "[processes][shards]") {
  const Workplace place;
  const std::string optimizer =
      GENERATE("adamw", "adam", "{kind: sgd, momentum: 0.9}", "adagrad", "muon", "{kind: adamw, weight_decay: 0.1}");
  const int processes = GENERATE(2, 3);
  const Overrides overrides = {"model.dropout=0.1",     "train.batch_size=6",          "train.steps=6",
                               "train.eval_interval=6", "train.checkpoint_interval=6", "train.optimizer=" + optimizer};
  INFO(optimizer << " of " << processes);
  train_together(place, processes, "plain", overrides);
  train_together(place, processes, "shards", joined(overrides, {"train.shard_optimizer=true"}));
  const auto plain = last_of(place, "plain"), shards = last_of(place, "shards");
  check_close(plain.model, shards.model, 1e-6, 1e-6);
  check_close(shards.optimizer, plain.optimizer, 1e-5, 1e-7);
}

TEST_CASE("shards are nearly equal parts of the parameters", "[shards]") {
  const Workplace place;
  const std::string optimizer = GENERATE("adamw", "muon");
  Parts parts(place.experiment({"model.layers=4", "train.optimizer=" + optimizer}));
  const auto total = parts.parameters->values().numel();
  for (const int size : {1, 2, 3, 4}) {
    std::int64_t next = 0;
    for (const auto& shard : shards_of(*parts.parameters, parts.experiment.config.train, size)) {
      CHECK(shard.first == next);
      next += shard.count;
      CHECK(static_cast<double>(shard.count) < 1.35 * static_cast<double>(total) / size);
    }
    CHECK(next == total);
  }
}

TEST_CASE("a run can be resumed with another number of processes, also with a carried state or shards", "[processes]") {
  const Workplace place;
  const auto more = GENERATE(values<Overrides>({{"model={kind: lstm, width: 16, carry_state: true}"},
                                                {"model.width=16"},
                                                {"train.shard_optimizer=true", "train.clip=0"}}));
  const bool shares = more.size() == 2;
  const auto steps = [&](int count) { return steps_of(more, count); };
  if (shares)
    train_together(place, 2, "whole", steps(8));
  else
    place.train("whole", steps(8));
  train_together(place, 2, "changing", steps(3));
  place.train("changing", steps(5), /*resume=*/true);
  train_together(place, 2, "changing", steps(8), /*resume=*/true);
  CHECK((model_bytes(place / "whole") == model_bytes(place / "changing")));
  if (!shares) CHECK((state_bytes(place / "whole") == state_bytes(place / "changing")));
}

TEST_CASE("processes roll back together, and skip spikes together", "[processes][divergence]") {
  const Workplace place;
  const std::string more = GENERATE("train.divergence.action={kind: rollback, limit: 3}",
                                    "train.divergence.spikes={threshold: 0.1, action: skip}");
  require_same_bytes(place, joined(noisy, {more, "train.steps=40", "train.learning_rate=0.05"}));
}

TEST_CASE("processes with different configs, rows that cannot be divided, and a linear model are refused",
          "[processes]") {
  const Workplace place;
  const auto other_seeds = [&] {
    together(2, [&](ProcessGroup& group) {
      train_as_part(place, group, "run", {"train.seed=" + std::to_string(group.rank())});
    });
  };
  CHECK_THROWS_WITH(other_seeds(), Mentions("config.train.seed|1|rank 1|0|0"));
  CHECK_THROWS_WITH(train_together(place, 4, "run", {}), Mentions("train.batch_size|multiple of 4"));
  place.folder().write("table.tsv", marked_table(100));
  const Overrides linear = {"task=classification", "data.path='" + (place / "table.tsv").string() + "'",
                            "data.tokenizer=word", "data.validation_fraction=0.3",
                            "model={kind: linear, buckets: 4096}"};
  CHECK_THROWS_WITH(train_together(place, 2, "run", linear), ContainsSubstring("fitted by one process"));
  CHECK_FALSE(std::filesystem::exists(place / "run"));
}

}  // namespace metaformer::test_processes
