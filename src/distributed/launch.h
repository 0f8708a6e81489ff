#pragma once
// Which of several processes this is, as a launcher says in the environment: torchrun, srun, mpirun, or this program
// with --processes.

#include <functional>
#include <optional>
#include <string>

namespace metaformer {

struct Launch {
  std::string launcher;  // "torchrun", "srun", "mpirun" or "--processes"
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this machine
  // Where the processes find each other: a file, or a TCP store at an address.
  std::string store_file, address;
  int port = 0;
  bool store_is_there = false;  // the launcher runs it; otherwise rank 0 does
  int parent = 0;               // of --processes: the process that started this one
  std::string attempt;          // tells the processes that a launcher has started again from those before
};

// The value of an environment variable; an empty one counts as not set.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment process_environment();

// Nothing: one process. Errors (exit code 2): variables are missing or make no sense.
std::optional<Launch> find_launch(const Environment& environment = process_environment());

// The first host of a Slurm list such as "node[07-09,12],login".
std::string first_host(const std::string& hosts);

}  // namespace metaformer
