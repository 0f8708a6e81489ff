// Launchers' environment variables.

#include <map>

#include "distributed/launch.h"
#include "support/catch.h"
#include "support/failure.h"

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

TEST_CASE("one process needs no launcher and no address, whatever a container sets besides", "[launch]") {
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
  std::erase_if(given, [](const auto& variable) { return variable.second.empty(); });  // as process_environment does
  CHECK_FALSE(launch_of(given));
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  CHECK_FALSE(find_launch());
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
}

TEST_CASE("torchrun's variables", "[launch]") {
  CHECK(text_of(launch_of(torchrun)) == "torchrun 3/4 1/2 node7 2 store");
  CHECK(launch_of(torchrun)->port == 29400);
  CHECK_FALSE(launch_of(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))->store_is_there);
}

TEST_CASE("srun's variables", "[launch]") {
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

TEST_CASE("Open MPI's variables", "[launch]") {
  const auto launch = launch_of(mpirun);
  CHECK(text_of(launch).starts_with("mpirun 1/2 1/2 127.0.0.1"));
  CHECK(launch_of(with(mpirun, {{"OMPI_COMM_WORLD_RANK", "0"}}))->port == launch->port);
  const Variables two_machines = {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"MASTER_ADDR", "head"}};
  CHECK(launch_of(with(mpirun, two_machines))->address == "head");
}

TEST_CASE("variables that make no sense are named", "[launch]") {
  auto nowhere = torchrun;
  nowhere.erase("MASTER_PORT");
  const auto [variables, text] = GENERATE_COPY(table<Variables, std::string>(
      {{with(torchrun, {{"RANK", "4"}}), "torchrun: RANK=4: expected a whole number from 0 to 3"},
       {with(torchrun, {{"WORLD_SIZE", "two"}}), "WORLD_SIZE=two"},
       {nowhere, "torchrun: MASTER_PORT is not set"},
       {with(mpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}), "mpirun: MASTER_ADDR is not set"}}));
  CHECK_THAT(message_of(ExitCode::usage, [&, &given = variables] { launch_of(given); }), ContainsSubstring(text));
}

TEST_CASE("the first host of a Slurm list", "[launch]") {
  const auto [hosts, first] = GENERATE(table<std::string, std::string>({{"alone", "alone"},
                                                                        {"a,b[1-3]", "a"},
                                                                        {"node[07-09,12],login", "node07"},
                                                                        {"rack[3,5]-x,other", "rack3-x"},
                                                                        {"n[12]", "n12"}}));
  CHECK(first_host(hosts) == first);
}

}  // namespace metaformer
