#pragma once
// How processes are started and find each other.

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace metaformer {

// Which of several processes this is, as a launcher says in the environment: torchrun, srun, mpirun, or this program
// with --processes.
struct Launch {
  std::string launcher;  // "torchrun", "srun", "mpirun" or "--processes"
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this machine
  // Where the processes find each other: a file, or a TCP store at an address.
  std::string store_file, address;
  int port = 0;
  bool store_is_there = false;  // the launcher runs it; otherwise rank 0 does
  int parent = 0;               // of --processes: the process that started this one
  std::string attempt;          // distinguishes processes that a launcher has restarted
};

// The value of an environment variable; an empty one counts as not set.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
std::optional<std::string> environment_variable(const std::string& name);

// Nothing: one process. Errors (exit code 2): variables are missing or make no sense.
std::optional<Launch> find_launch(const Environment& environment = environment_variable);

// The first host of a Slurm list such as "node[07-09,12],login".
std::string first_host(const std::string& hosts);

// Runs this program `processes` times with these arguments; each copy finds the others by find_launch(). Passes SIGINT,
// SIGTERM, SIGHUP and SIGUSR1 on to all of them. Once one has failed, the others have `patience` to end by themselves.
// Returns the exit code of the process that failed first (128 + n for one that signal n has killed), or 0.
int run_local_processes(int processes, const std::vector<std::string>& arguments, std::chrono::seconds patience);

}  // namespace metaformer
