// Launchers' environment variables, and communication of a process group.

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "base/files.h"
#include "distributed/launch.h"
#include "distributed/process_group.h"
#include "support/failure.h"
#include "support/together.h"
#include "support/torch_catch.h"

namespace metaformer::test_processes {

namespace {

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [=](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::optional<Launch> launch_of(const Variables& variables) { return find_launch(environment_of(variables)); }

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

// "torchrun 3/4 1/2 node7 2": the ranks among all and on the machine, the address and the attempt.
std::string text_of(const std::optional<Launch>& launch) {
  if (!launch) return "alone";
  return fmt::format("{} {}/{} {}/{} {} {}{}", launch->launcher, launch->rank, launch->size, launch->local_rank,
                     launch->local_size, launch->address, launch->attempt, launch->store_is_there ? " store" : "");
}

const Variables torchrun = {{"RANK", "3"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "node7"},
                            {"MASTER_PORT", "29400"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"}};

const Variables srun = {{"SLURM_PROCID", "5"},    {"SLURM_NTASKS", "8"},       {"SLURM_LOCALID", "1"},
                        {"SLURM_STEP_ID", "0"},   {"SLURM_JOB_ID", "123456"},  {"SLURM_JOB_NODELIST", "gpu[03-05,9]"},
                        {"ENVIRONMENT", "BATCH"}, {"SLURM_RESTART_COUNT", "1"}};

const Variables mpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_NAMESPACE", "1234.1"}};

}  // namespace

TEST_CASE("one process needs no launcher and no address, with any other variables of a container", "[launch]") {
  const Variables one_of_torchrun = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  const Variables one_of_srun = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}};
  const auto variables = GENERATE_COPY(
      values<Variables>({{},
                         {{"SLURM_JOB_ID", "5"}, {"SLURM_NTASKS", "4"}},
                         one_of_torchrun,
                         with(one_of_torchrun, {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}),
                         with(one_of_torchrun, {{"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "8"}}),
                         with(one_of_torchrun, {{"MASTER_ADDR", ""}, {"MASTER_PORT", ""}}),
                         with(one_of_torchrun, {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "none"}}),
                         {{"RANK", ""}, {"WORLD_SIZE", ""}},
                         {{"RANK", "0"}},
                         {{"LOCAL_RANK", "0"}},
                         {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"MASTER_PORT", "none"}},
                         with(one_of_srun, {{"SLURM_STEP_ID", "0"}}),
                         with(one_of_srun, {{"SLURM_STEP_ID", "0"}, {"MASTER_PORT", "none"}}),
                         with(one_of_srun, {{"SLURM_LOCALID", "0"}, {"SLURM_STEP_NODELIST", "a[1-2]"}})}));
  auto given = variables;
  std::erase_if(given, [](const auto& variable) { return variable.second.empty(); });  // as environment_variable does
  CHECK_FALSE(launch_of(given));
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  CHECK_FALSE(find_launch());
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
}

TEST_CASE("torchrun's variables give ranks, address, port and attempt", "[launch]") {
  CHECK(text_of(launch_of(torchrun)) == "torchrun 3/4 1/2 node7 2 store");
  CHECK(launch_of(torchrun)->port == 29400);
  CHECK_FALSE(launch_of(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))->store_is_there);
}

TEST_CASE("srun's variables give ranks, address, port and attempt", "[launch]") {
  const auto launch = launch_of(srun);
  REQUIRE(launch);
  CHECK(text_of(launch).starts_with("srun 5/8 1/"));
  CHECK(text_of(launch).ends_with(" gpu03 1"));
  CHECK(launch->local_size < launch->size);
  CHECK(launch_of(with(srun, {{"SLURM_PROCID", "0"}}))->port == launch->port);
  CHECK(launch_of(with(srun, {{"SLURM_JOB_ID", "123457"}}))->port != launch->port);
  CHECK(launch_of(with(srun, {{"MASTER_PORT", "1234"}}))->port == 1234);
  CHECK(launch_of(with(srun, {{"SLURM_JOB_NODELIST", "alone"}}))->address == "127.0.0.1");

  auto script = srun;  // a batch script, not started by srun
  script.erase("SLURM_STEP_ID");
  CHECK_FALSE(launch_of(script));
}

TEST_CASE("Open MPI's variables give ranks, address and port", "[launch]") {
  const auto launch = launch_of(mpirun);
  CHECK(text_of(launch).starts_with("mpirun 1/2 1/2 127.0.0.1"));
  CHECK(launch_of(with(mpirun, {{"OMPI_COMM_WORLD_RANK", "0"}}))->port == launch->port);
  const Variables two_machines = {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"MASTER_ADDR", "head"}};
  CHECK(launch_of(with(mpirun, two_machines))->address == "head");
}

TEST_CASE("the error for an invalid variable names it", "[launch]") {
  auto nowhere = torchrun;
  nowhere.erase("MASTER_PORT");
  const auto [variables, text] = GENERATE_COPY(
      table<Variables, std::string>({{with(torchrun, {{"RANK", "4"}}), "torchrun: RANK=4:|number|0|3"},
                                     {with(torchrun, {{"WORLD_SIZE", "two"}}), "WORLD_SIZE=two"},
                                     {nowhere, "torchrun: MASTER_PORT"},
                                     {with(mpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}), "mpirun: MASTER_ADDR"}}));
  CHECK_THAT(message_of(ExitCode::usage, [&, &given = variables] { launch_of(given); }), Mentions(text));
}

TEST_CASE("the first host of a Slurm list is found", "[launch]") {
  const auto [hosts, first] = GENERATE(table<std::string, std::string>({{"alone", "alone"},
                                                                        {"a,b[1-3]", "a"},
                                                                        {"node[07-09,12],login", "node07"},
                                                                        {"rack[3,5]-x,other", "rack3-x"},
                                                                        {"n[12]", "n12"}}));
  CHECK(first_host(hosts) == first);
}

TEST_CASE("sums, bytes and tensors of all processes reach all of them", "[group]") {
  const int size = GENERATE(2, 3, 4);
  std::vector<std::string> seen(static_cast<std::size_t>(size));
  together(size, [&](ProcessGroup& group) {
    auto x = torch::full({5}, group.rank() + 1, torch::kDouble);
    auto long_sum = group.start_sum(x);
    auto count = torch::tensor({group.rank()}, torch::kLong);
    group.sum(count);
    long_sum();
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
  std::vector<torch::Tensor> terms;  // drawn here, because all threads share the generator
  for (const auto count : counts)
    for (int rank = 0; rank < size; ++rank)
      terms.push_back((torch::randn({count}, torch::kDouble) * std::pow(10.0, rank)).to(dtype));
  std::vector<int> wrong(static_cast<std::size_t>(size));
  together(size, [&](ProcessGroup& group) {
    std::vector<torch::Tensor> sums, sums_on, expected;
    std::vector<PendingSum> pending;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const auto* of_count = &terms[i * static_cast<std::size_t>(size)];
      expected.push_back(of_count[0].clone());
      for (int rank = 1; rank < size; ++rank) expected.back().add_(of_count[rank]);
      // A part of a larger tensor, like a bucket of gradients.
      auto whole = torch::full({counts[i] + 2}, 7, dtype);
      sums.push_back(whole.narrow(0, 1, counts[i]));
      sums.back().copy_(of_count[group.rank()]);
      sums_on.push_back(of_count[group.rank()].clone());
      if (counts[i] == 0) continue;
      pending.push_back(group.start_sum(sums.back()));
      pending.push_back(group.start_sum_on(sums_on.back(), static_cast<int>(i) % size));
    }
    for (const auto& sum : pending) sum();
    auto& own = wrong[static_cast<std::size_t>(group.rank())];
    for (std::size_t i = 0; i < counts.size(); ++i) {
      own += !torch::equal(sums[i], expected[i]);
      if (static_cast<int>(i) % size == group.rank()) own += !torch::equal(sums_on[i], expected[i]);
    }
  });
  CHECK(wrong == std::vector<int>(wrong.size()));
}

TEST_CASE("the error for a value that differs between processes names it", "[group]") {
  std::array<std::pair<ExitCode, std::string>, 3> problems;
  together(3, [&](ProcessGroup& group) {
    require_same(group, {{"steps", 10}});
    const nlohmann::ordered_json own = {{"config", {{"train", {{"steps", group.rank() == 2 ? 20 : 10}}}}}};
    problems.at(static_cast<std::size_t>(group.rank())) = failure([&] { require_same(group, own); });
  });
  for (const auto& [code, problem] : problems) {
    CHECK(code == ExitCode::usage);
    CHECK_THAT(problem, Mentions("config.train.steps|20|rank 2|10|0"));
  }
}

TEST_CASE("a process that fails sends the reason to the others", "[group]") {
  std::pair<ExitCode, std::string> heard;
  together(2, [&](ProcessGroup& group) {
    wait_for_all(group);  // all have started
    if (group.rank() == 0)
      heard = failure([&] { wait_for_all(group); });
    else
      group.announce_failure("no space left");
  });
  CHECK(heard.first == ExitCode::process_lost);
  CHECK_THAT(heard.second, Mentions("0|2:|because|1:"));
}

TEST_CASE("the threads of a group block SIGPIPE, so the end of another process does not end them", "[group]") {
  const auto threads = [] {
    std::set<std::string> ids;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
      ids.insert(entry.path().filename().string());
    return ids;
  };
  auto known = threads();
  std::mutex mutex;
  together(2, [&](ProcessGroup& group) {
    {
      const std::lock_guard lock(mutex);
      known.insert(std::to_string(::gettid()));
    }
    wait_for_all(group);  // both threads are known
    wait_for_all(group);
    if (group.rank() == 1) return wait_for_all(group);
    int of_group = 0;
    for (const auto& id : threads()) {
      if (known.contains(id)) continue;
      const auto status = read_text("/proc/self/task/" + id + "/status");
      const auto blocked = std::stoull(status.substr(status.find("SigBlk:") + 7), nullptr, 16);
      CHECK((blocked >> (SIGPIPE - 1) & 1) == 1);
      ++of_group;
    }
    CHECK(of_group >= 2);
    wait_for_all(group);
  });
}

TEST_CASE("a process that never starts is an error after the time limit", "[group]") {
  const TemporaryFolder folder;
  Launch launch{.launcher = "a test", .rank = 0, .size = 2, .local_rank = 0, .local_size = 2};
  launch.store_file = (folder / "store").string();
  CHECK_THROWS_AS(make_c10d_group(launch, std::chrono::seconds(1)), Error);
}

}  // namespace metaformer::test_processes
