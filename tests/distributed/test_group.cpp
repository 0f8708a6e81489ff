// Communication of a process group.

#include <cmath>

#include "distributed/process_group.h"
#include "support/failure.h"
#include "support/together.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("sums, bytes and tensors of all processes reach all of them", "[group]") {
  const int size = GENERATE(2, 3, 4);
  std::vector<std::string> seen(static_cast<std::size_t>(size));
  together(size, [&](ProcessGroup& group) {
    auto x = torch::full({5}, group.rank() + 1, torch::kDouble);
    auto long_sum = group.start_sum(x);
    auto count = torch::tensor({group.rank()}, torch::kLong);
    group.sum(count);
    long_sum->wait();
    auto said = torch::tensor({10 * group.rank()});
    group.broadcast(said, 1);
    std::string all;
    for (const auto& bytes : group.gather(std::string(static_cast<std::size_t>(group.rank()), 'a')))
      all += "[" + bytes + "]";
    NamedTensors own = {{"x", torch::full({group.rank(), 2}, group.rank())}, {"x", torch::tensor(group.rank())}};
    for (const auto& tensors : gather_tensors(group, own))
      all += fmt::format(" {}:{}:{}", tensors[0].first, tensors[0].second.size(0), tensors[1].second.item<int>());
    seen[static_cast<std::size_t>(group.rank())] = fmt::format(
        "{} {} {} {} {}", x.sum().item<double>(), count.item<int>(), said.item<int>(), all, of_first(group, "first"));
  });
  std::string all;
  for (int rank = 0; rank < size; ++rank) all += "[" + std::string(static_cast<std::size_t>(rank), 'a') + "]";
  for (int rank = 0; rank < size; ++rank) all += fmt::format(" x:{}:{}", rank, rank);
  const auto ranks = size * (size - 1) / 2;
  for (const auto& text : seen) CHECK(text == fmt::format("{} {} 10 {} first", 5 * (ranks + size), ranks, all));
}

TEST_CASE("terms are added in the order of the processes, to the bit", "[group]") {
  const int size = GENERATE(2, 3, 4, 5);
  const auto dtype = GENERATE(torch::kFloat, torch::kDouble, torch::kLong);
  const std::vector<std::int64_t> counts = {0, 1, 3, 1023, 1024, 1025, 100003};
  torch::manual_seed(7);
  std::vector<torch::Tensor> terms;  // made here: the generator is one for all threads
  for (const auto count : counts)
    for (int rank = 0; rank < size; ++rank)
      terms.push_back((torch::randn({count}, torch::kDouble) * std::pow(10.0, rank)).to(dtype));
  std::vector<int> wrong(static_cast<std::size_t>(size));
  together(size, [&](ProcessGroup& group) {
    std::vector<torch::Tensor> sums, sums_on, expected;
    std::vector<std::unique_ptr<PendingSum>> pending;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const auto* of_count = &terms[i * static_cast<std::size_t>(size)];
      expected.push_back(of_count[0].clone());
      for (int rank = 1; rank < size; ++rank) expected.back().add_(of_count[rank]);
      // A part of a larger tensor, as buckets of gradients are.
      auto whole = torch::full({counts[i] + 2}, 7, dtype);
      sums.push_back(whole.narrow(0, 1, counts[i]));
      sums.back().copy_(of_count[group.rank()]);
      sums_on.push_back(of_count[group.rank()].clone());
      if (counts[i] == 0) continue;
      pending.push_back(group.start_sum(sums.back()));
      pending.push_back(group.start_sum_on(sums_on.back(), static_cast<int>(i) % size));
    }
    for (const auto& sum : pending) sum->wait();
    auto& own = wrong[static_cast<std::size_t>(group.rank())];
    for (std::size_t i = 0; i < counts.size(); ++i) {
      own += !torch::equal(sums[i], expected[i]);
      if (static_cast<int>(i) % size == group.rank()) own += !torch::equal(sums_on[i], expected[i]);
    }
  });
  CHECK(wrong == std::vector<int>(wrong.size()));
}

TEST_CASE("a value that differs between processes is named", "[group]") {
  std::array<std::pair<ExitCode, std::string>, 3> problems;
  together(3, [&](ProcessGroup& group) {
    require_same(group, {{"steps", 10}});
    const nlohmann::ordered_json own = {{"config", {{"train", {{"steps", group.rank() == 2 ? 20 : 10}}}}}};
    problems.at(static_cast<std::size_t>(group.rank())) = failure([&] { require_same(group, own); });
  });
  for (const auto& [code, problem] : problems) {
    CHECK(code == ExitCode::usage);
    CHECK_THAT(problem, ContainsSubstring("config.train.steps is 20 on rank 2 and 10 on rank 0"));
  }
}

TEST_CASE("a process that fails sends its reason to the others", "[group]") {
  std::pair<ExitCode, std::string> heard;
  together(2, [&](ProcessGroup& group) {
    wait_for_all(group);  // so that all are there
    if (group.rank() == 0)
      heard = failure([&] { wait_for_all(group); });
    else
      group.announce_failure("no space left");
  });
  CHECK(heard.first == ExitCode::process_lost);
  CHECK_THAT(heard.second, ContainsSubstring("rank 0 of 2: stops because of rank 1: no space left"));
}

TEST_CASE("processes that never come are missed", "[group]") {
  const TemporaryFolder folder;
  Launch launch{.launcher = "a test", .rank = 0, .size = 2, .local_rank = 0, .local_size = 2};
  launch.store_file = (folder / "store").string();
  CHECK_THROWS_AS(make_c10d_group(launch, std::chrono::seconds(1)), Error);
}

}  // namespace metaformer
