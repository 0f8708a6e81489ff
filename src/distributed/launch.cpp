#include "distributed/launch.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>

#include "base/error.h"

namespace metaformer {

namespace {

constexpr auto here = "127.0.0.1";
constexpr int lowest_port = 1, highest_port = 65535;

// The variables of one launcher.
class Variables {
 public:
  Variables(const Environment& environment, std::string launcher)
      : environment_(environment), launcher_(std::move(launcher)) {}

  std::string text(const std::string& name, const std::string& advice = "") const {
    if (auto value = environment_(name)) return *value;
    throw Error(ExitCode::usage, fmt::format("{}: {} is not set{}", launcher_, name, advice));
  }

  int number(const std::string& name, int lowest, int highest) const {
    const auto value = text(name);
    int number = 0;
    const auto* end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, number);
    if (read.ec != std::errc() || read.ptr != end || number < lowest || number > highest)
      throw Error(ExitCode::usage, fmt::format("{}: {}={}: expected a whole number from {} to {}", launcher_, name,
                                               value, lowest, highest));
    return number;
  }

  int number_or(const std::string& name, int lowest, int highest, int otherwise) const {
    return environment_(name) ? number(name, lowest, highest) : otherwise;
  }

  // By the variables of a process and of its machine; without the latter all processes are on one machine.
  Launch launch(const std::string& rank, const std::string& size, const std::string& local_rank,
                const std::string& local_size) const {
    constexpr int most_processes = 1 << 20;
    Launch found{.launcher = launcher_, .size = number(size, 1, most_processes)};
    found.rank = number(rank, 0, found.size - 1);
    if (found.size == 1) return found;  // which needs neither a place on its machine nor an address
    found.local_rank = number_or(local_rank, 0, found.size - 1, found.rank);
    found.local_size = number_or(local_size, 1, found.size, found.size);
    return found;
  }

  // MASTER_PORT, or one that is another for every job.
  int port(const std::string& job) const {
    constexpr int first = 20000, count = 10000;  // below those that systems give to outgoing connections
    const auto of_job = first + static_cast<int>(std::hash<std::string>()(job) % count);
    return number_or("MASTER_PORT", lowest_port, highest_port, of_job);
  }

 private:
  const Environment& environment_;
  std::string launcher_;
};

Launch by_torchrun(const Environment& environment) {
  const Variables variables(environment, "torchrun");
  auto launch = variables.launch("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  if (launch.size == 1) return launch;
  launch.address = variables.text(
      "MASTER_ADDR", "; set it to the address of the machine of rank 0, or unset WORLD_SIZE and RANK for one process");
  launch.port = variables.number("MASTER_PORT", lowest_port, highest_port);
  launch.store_is_there = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  launch.attempt = environment("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return launch;
}

Launch by_srun(const Environment& environment) {
  const Variables variables(environment, "srun");
  auto launch = variables.launch("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "");
  if (launch.size == 1) return launch;
  const auto nodes = environment("SLURM_STEP_NODELIST").value_or(environment("SLURM_JOB_NODELIST").value_or(""));
  const bool one_machine = nodes.find_first_of(",[") == std::string::npos;
  if (!one_machine) launch.local_size = 1;
  launch.address = environment("MASTER_ADDR").value_or(one_machine ? here : first_host(nodes));
  const auto job = environment("SLURM_JOB_ID").value_or("") + "." + environment("SLURM_STEP_ID").value_or("");
  launch.port = variables.port(job);
  launch.attempt = environment("SLURM_RESTART_COUNT").value_or("0");
  return launch;
}

Launch by_mpirun(const Environment& environment) {
  const Variables variables(environment, "mpirun");
  auto launch = variables.launch("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                 "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (launch.size == 1) return launch;
  launch.address =
      launch.local_size == launch.size
          ? environment("MASTER_ADDR").value_or(here)
          : variables.text("MASTER_ADDR", ": export the address of rank 0's machine (mpirun -x MASTER_ADDR)");
  const auto job = environment("PMIX_NAMESPACE").value_or("");
  launch.port = variables.port(job);
  return launch;
}

Launch by_this_program(const Environment& environment) {
  const Variables variables(environment, "--processes");
  auto launch = variables.launch("RANK", "WORLD_SIZE", "", "");
  launch.store_file = variables.text("METAFORMER_STORE");
  launch.parent = variables.number("METAFORMER_PARENT", 1, std::numeric_limits<int>::max());
  return launch;
}

// A batch script has the variables of its first task, which is not started by srun.
bool is_slurm_task(const Environment& environment) {
  if (!environment("SLURM_PROCID") || !environment("SLURM_NTASKS")) return false;
  return environment("SLURM_STEP_ID") || environment("ENVIRONMENT").value_or("") != "BATCH";
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
  };
}

std::string first_host(const std::string& hosts) {
  const auto end = hosts.find_first_of(",[");
  if (end == std::string::npos || hosts[end] == ',') return hosts.substr(0, end);
  const auto number_end = hosts.find_first_of(",-]", end), close = hosts.find(']', end);
  if (close == std::string::npos) return hosts.substr(0, end);
  const auto behind = hosts.substr(close + 1);
  return hosts.substr(0, end) + hosts.substr(end + 1, number_end - end - 1) + behind.substr(0, behind.find(','));
}

std::optional<Launch> find_launch(const Environment& environment) {
  std::optional<Launch> launch;
  if (environment("METAFORMER_STORE"))
    launch = by_this_program(environment);
  else if (environment("RANK") && environment("WORLD_SIZE"))
    launch = by_torchrun(environment);
  else if (environment("OMPI_COMM_WORLD_RANK"))
    launch = by_mpirun(environment);
  else if (is_slurm_task(environment))
    launch = by_srun(environment);
  return launch && launch->size > 1 ? launch : std::nullopt;
}

}  // namespace metaformer
