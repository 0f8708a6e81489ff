// What processes of a group say to each other.

#include "base/error.h"
#include "distributed/agreement.h"
#include "distributed/gather_tensors.h"
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

TEST_CASE("what must be the same on all processes is named where it is not", "[group]") {
  std::vector<std::string> problems(3);
  together(3, [&](ProcessGroup& group) {
    require_same(group, {{"steps", 10}});
    try {
      require_same(group, {{"config", {{"train", {{"steps", group.rank() == 2 ? 20 : 10}}}}}});
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::usage);
      problems[static_cast<std::size_t>(group.rank())] = error.what();
    }
  });
  for (const auto& problem : problems)
    CHECK(problem == "the processes do not train the same: config.train.steps is 20 on rank 2 and 10 on rank 0");
}

TEST_CASE("a process that fails says why to the others", "[group]") {
  std::string heard;
  CHECK_THROWS_AS(together(2,
                           [&](ProcessGroup& group) {
                             wait_for_all(group);  // so that all are there
                             if (group.rank() == 1) {
                               group.announce_failure("no space left");
                               throw std::runtime_error("no space left");
                             }
                             try {
                               wait_for_all(group);
                             } catch (const Error& error) {
                               heard = error.what();
                               CHECK(error.code() == ExitCode::process_lost);
                               throw;
                             }
                           }),
                  Error);
  CHECK_THAT(heard, ContainsSubstring("rank 0 of 2: stops because of rank 1: no space left"));
}

TEST_CASE("a process that does not answer is lost after the time for it", "[group]") {
  std::string heard;
  CHECK_THROWS(together(
      2,
      [&](ProcessGroup& group) {
        if (group.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::seconds(4));
          return;
        }
        try {
          wait_for_all(group);
        } catch (const Error& error) {
          heard = error.what();
          throw;
        }
      },
      std::chrono::seconds(2)));
  CHECK_THAT(heard, ContainsSubstring("has not answered for 2 s"));
}

TEST_CASE("processes that never come are missed", "[group]") {
  const TemporaryFolder folder;
  Launch launch{.launcher = "a test", .rank = 0, .size = 2, .local_rank = 0, .local_size = 2};
  launch.store_file = (folder / "store").string();
  CHECK_THROWS_AS(make_c10d_group(launch, std::chrono::seconds(1)), Error);
}

}  // namespace metaformer
