// Launchers' environment variables.

#include <map>

#include "base/error.h"
#include "distributed/launch.h"
#include "support/catch.h"

namespace metaformer {

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

TEST_CASE("without a launcher, or with one process, a process works alone", "[launch]") {
  CHECK_FALSE(launch_of({}));
  CHECK_FALSE(
      launch_of(with(torchrun, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}})));
  CHECK_FALSE(launch_of({{"SLURM_JOB_ID", "5"}, {"SLURM_NTASKS", "4"}}));
}

TEST_CASE("one process needs no address, whatever a container sets besides", "[launch]") {
  const auto [variables] = GENERATE(table<Variables>({
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "8"}}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", ""}, {"MASTER_PORT", ""}}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "none"}}},
      {{{"RANK", ""}, {"WORLD_SIZE", ""}}},
      {{{"RANK", "0"}}},
      {{{"LOCAL_RANK", "0"}}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"MASTER_PORT", "none"}}},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}}},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}, {"MASTER_PORT", "none"}}},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_NODELIST", "a[1-2]"}}},
  }));
  auto given = variables;
  std::erase_if(given, [](const auto& variable) { return variable.second.empty(); });  // as process_environment does
  CHECK_FALSE(launch_of(given));
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  CHECK_FALSE(find_launch());
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
}

TEST_CASE("torchrun's variables", "[launch]") {
  const auto launch = launch_of(torchrun);
  REQUIRE(launch);
  CHECK(launch->launcher == "torchrun");
  CHECK(launch->rank == 3);
  CHECK(launch->size == 4);
  CHECK(launch->local_rank == 1);
  CHECK(launch->local_size == 2);
  CHECK(launch->address == "node7");
  CHECK(launch->port == 29400);
  CHECK(launch->store_is_there);
  CHECK(launch->attempt == "2");
  CHECK_FALSE(launch_of(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))->store_is_there);
}

TEST_CASE("srun's variables", "[launch]") {
  const auto launch = launch_of(srun);
  REQUIRE(launch);
  CHECK(launch->launcher == "srun");
  CHECK(launch->rank == 5);
  CHECK(launch->size == 8);
  CHECK(launch->local_rank == 1);
  CHECK(launch->address == "gpu03");
  CHECK_FALSE(launch->store_is_there);
  CHECK(launch->attempt == "1");
  CHECK(launch->local_size < launch->size);
  CHECK(launch_of(with(srun, {{"SLURM_PROCID", "0"}}))->port == launch->port);
  CHECK(launch_of(with(srun, {{"SLURM_JOB_ID", "123457"}}))->port != launch->port);
  CHECK(launch_of(with(srun, {{"MASTER_PORT", "1234"}}))->port == 1234);
  CHECK(launch_of(with(srun, {{"SLURM_JOB_NODELIST", "alone"}}))->address == "127.0.0.1");

  auto script = srun;  // a batch script, not started by srun
  script.erase("SLURM_STEP_ID");
  CHECK_FALSE(launch_of(script));
}

TEST_CASE("Open MPI's variables", "[launch]") {
  const auto launch = launch_of(mpirun);
  REQUIRE(launch);
  CHECK(launch->launcher == "mpirun");
  CHECK(launch->rank == 1);
  CHECK(launch->size == 2);
  CHECK(launch->address == "127.0.0.1");
  CHECK(launch_of(with(mpirun, {{"OMPI_COMM_WORLD_RANK", "0"}}))->port == launch->port);
  const auto two_machines = with(mpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  CHECK_THROWS_WITH(launch_of(two_machines), ContainsSubstring("mpirun: MASTER_ADDR is not set"));
  CHECK(launch_of(with(two_machines, {{"MASTER_ADDR", "head"}}))->address == "head");
}

TEST_CASE("variables that make no sense are named", "[launch]") {
  CHECK_THROWS_WITH(launch_of(with(torchrun, {{"RANK", "4"}})),
                    ContainsSubstring("torchrun: RANK=4: expected a whole number from 0 to 3"));
  CHECK_THROWS_WITH(launch_of(with(torchrun, {{"WORLD_SIZE", "two"}})), ContainsSubstring("WORLD_SIZE=two"));
  auto nowhere = torchrun;
  nowhere.erase("MASTER_PORT");
  CHECK_THROWS_WITH(launch_of(nowhere), ContainsSubstring("torchrun: MASTER_PORT is not set"));
  try {
    launch_of(nowhere);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::usage);
  }
}

TEST_CASE("the first host of a Slurm list", "[launch]") {
  CHECK(first_host("alone") == "alone");
  CHECK(first_host("a,b[1-3]") == "a");
  CHECK(first_host("node[07-09,12],login") == "node07");
  CHECK(first_host("rack[3,5]-x,other") == "rack3-x");
  CHECK(first_host("n[12]") == "n12");
}

}  // namespace metaformer
