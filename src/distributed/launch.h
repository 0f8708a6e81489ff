#pragma once
// How processes are started and find each other.

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace metaformer {

// The place of this process among several, from the environment variables of a launcher: torchrun, srun, mpirun, or
// this program with --processes.
struct Launch {
  std::string launcher;  // "torchrun", "srun", "mpirun" or "--processes"
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this machine
  // Where the processes find each other: a file, or a TCP store at an address.
  std::string store_file, address;
  int port = 0;
  bool store_is_there = false;  // the launcher runs the TCP store; otherwise rank 0 does
  int parent = 0;               // with --processes: the id of the process that started this one
  std::string attempt;          // distinguishes processes that a launcher has restarted
};

// The value of an environment variable; an empty one counts as not set.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
std::optional<std::string> environment_variable(const std::string& name);

// nullopt: a single process. Throws Error (exit code 2) if variables are missing or invalid.
std::optional<Launch> find_launch(const Environment& environment = environment_variable);

// The first host of a Slurm list such as "node[07-09,12],login".
std::string first_host(const std::string& hosts);

// Runs this program `processes` times with these arguments; each copy finds the others by find_launch(). Passes SIGINT,
// SIGTERM, SIGHUP and SIGUSR1 on to all of them. After the first failure the other processes are killed if they have
// not ended after `patience`. Returns the exit code of the process that failed first (128 + n if signal n has killed
// it), or 0.
int run_local_processes(int processes, const std::vector<std::string>& arguments, std::chrono::seconds patience);

}  // namespace metaformer
