#include "distributed/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"

namespace metaformer {

namespace {

namespace fs = std::filesystem;

constexpr auto here = "127.0.0.1";
constexpr int lowest_port = 1, highest_port = 65535;

// The environment of one launcher.
struct Variables {
  const Environment& environment;
  std::string launcher;

  std::string text(const std::string& name, const std::string& advice = "") const {
    if (auto value = environment(name)) return *value;
    fail_usage("{}: {} is not set{}", launcher, name, advice);
  }

  int number(const std::string& name, int lowest, int highest) const {
    const auto value = text(name);
    const auto number = as_number<int>(value);
    if (!number || *number < lowest || *number > highest)
      fail_usage("{}: {}={}: expected a whole number from {} to {}", launcher, name, value, lowest, highest);
    return *number;
  }

  int number_or(const std::string& name, int lowest, int highest, int otherwise) const {
    return environment(name) ? number(name, lowest, highest) : otherwise;
  }

  // MASTER_PORT, or a port that differs between jobs.
  int port(const std::string& job) const {
    constexpr int first = 20000, count = 10000;  // below the ports that systems use for outgoing connections
    const auto of_job = first + static_cast<int>(std::hash<std::string>()(job) % count);
    return number_or("MASTER_PORT", lowest_port, highest_port, of_job);
  }
};

// How processes find each other, by the variables of each launcher.

void meet_by_torchrun(const Variables& variables, Launch& launch) {
  launch.address = variables.text(
      "MASTER_ADDR", "; set it to the address of the machine of rank 0, or unset WORLD_SIZE and RANK for one process");
  launch.port = variables.number("MASTER_PORT", lowest_port, highest_port);
  launch.store_is_there = variables.environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  launch.attempt = variables.environment("TORCHELASTIC_RESTART_COUNT").value_or("0");
}

void meet_by_srun(const Variables& variables, Launch& launch) {
  const auto& environment = variables.environment;
  const auto nodes = environment("SLURM_STEP_NODELIST").value_or(environment("SLURM_JOB_NODELIST").value_or(""));
  const bool one_machine = nodes.find_first_of(",[") == std::string::npos;
  if (!one_machine) launch.local_size = 1;
  launch.address = environment("MASTER_ADDR").value_or(one_machine ? here : first_host(nodes));
  launch.port =
      variables.port(environment("SLURM_JOB_ID").value_or("") + "." + environment("SLURM_STEP_ID").value_or(""));
  launch.attempt = environment("SLURM_RESTART_COUNT").value_or("0");
}

void meet_by_mpirun(const Variables& variables, Launch& launch) {
  launch.address =
      launch.local_size == launch.size
          ? variables.environment("MASTER_ADDR").value_or(here)
          : variables.text("MASTER_ADDR", ": export the address of rank 0's machine (mpirun -x MASTER_ADDR)");
  launch.port = variables.port(variables.environment("PMIX_NAMESPACE").value_or(""));
}

void meet_by_this_program(const Variables& variables, Launch& launch) {
  launch.store_file = variables.text("METAFORMER_STORE");
  launch.parent = variables.number("METAFORMER_PARENT", 1, std::numeric_limits<int>::max());
}

// A launcher, and the names of its variables for the rank and number of all processes and of those on one machine.
// Without the latter, all processes are on one machine.
struct Launcher {
  const char *name, *rank, *size, *local_rank, *local_size;
  void (*meet)(const Variables&, Launch&);
};

constexpr Launcher torchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", meet_by_torchrun};
constexpr Launcher srun = {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", meet_by_srun};
constexpr Launcher mpirun = {"mpirun",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             meet_by_mpirun};
constexpr Launcher this_program = {"--processes", "RANK", "WORLD_SIZE", "", "", meet_by_this_program};

std::optional<Launch> launch_by(const Launcher& launcher, const Environment& environment) {
  constexpr int most_processes = 1 << 20;
  const Variables variables{environment, launcher.name};
  Launch launch{.launcher = launcher.name, .size = variables.number(launcher.size, 1, most_processes)};
  launch.rank = variables.number(launcher.rank, 0, launch.size - 1);
  if (launch.size == 1) return std::nullopt;  // one process needs neither a local rank nor an address
  launch.local_rank = variables.number_or(launcher.local_rank, 0, launch.size - 1, launch.rank);
  launch.local_size = variables.number_or(launcher.local_size, 1, launch.size, launch.size);
  launcher.meet(variables, launch);
  return launch;
}

// Whether srun started this process. A batch script has the variables of the first task, but is not started by srun.
bool is_slurm_task(const Environment& environment) {
  if (!environment("SLURM_PROCID") || !environment("SLURM_NTASKS")) return false;
  return environment("SLURM_STEP_ID") || environment("ENVIRONMENT").value_or("") != "BATCH";
}

// A folder for the file by which processes find each other; it is removed with the last pointer to it.
std::shared_ptr<const fs::path> make_store_folder() {
  const fs::path parent = environment_variable("TMPDIR").value_or("/tmp");
  auto path = (parent / "metaformer-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) {
    const int error = errno;
    throw Error(code_of_errno(error, ExitCode::usage),
                fmt::format("TMPDIR={}: no folder can be made in it, where processes meet: {}; set TMPDIR to a folder "
                            "that exists and may be written to",
                            parent.string(), std::strerror(error)));
  }
  return {new fs::path(path), [](const fs::path* folder) {
            std::error_code ignored;
            fs::remove_all(*folder, ignored);
            delete folder;
          }};
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Starts a copy in a process group of its own: Ctrl-C in the terminal reaches only this process, which passes it on.
// Signals wait until the copy can handle them.
pid_t start_copy(int rank, int processes, std::vector<std::string> arguments, const std::string& store) {
  std::vector<std::string> variables = {fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", processes),
                                        "METAFORMER_STORE=" + store, fmt::format("METAFORMER_PARENT={}", ::getpid())};
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  const auto signals = caught_signals();
  posix_spawnattr_setsigmask(&attributes, &signals);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (rank > 0) posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, "/proc/self/exe", &actions, &attributes, pointers_to(arguments).data(),
                                   pointers_to(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0)
    throw Error(ExitCode::failure, fmt::format("process {} of {}: {}", rank, processes, std::strerror(failed)));
  return child;
}

// The process ids of the copies, by rank; 0: has ended.
using Children = std::vector<pid_t>;

void send_to_all(const Children& children, int signal) {
  for (const auto child : children)
    if (child != 0) ::kill(child, signal);
}

Children start_copies(int processes, const std::vector<std::string>& arguments, const std::string& store) {
  Children children;
  try {
    for (int rank = 0; rank < processes; ++rank) children.push_back(start_copy(rank, processes, arguments, store));
  } catch (...) {
    send_to_all(children, SIGKILL);
    while (!children.empty() && ::waitpid(-1, nullptr, 0) > 0) continue;
    throw;
  }
  return children;
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
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
  if (environment("METAFORMER_STORE")) return launch_by(this_program, environment);
  if (environment("RANK") && environment("WORLD_SIZE")) return launch_by(torchrun, environment);
  if (environment("OMPI_COMM_WORLD_RANK")) return launch_by(mpirun, environment);
  return is_slurm_task(environment) ? launch_by(srun, environment) : std::nullopt;
}

int run_local_processes(int processes, const std::vector<std::string>& arguments, std::chrono::seconds patience) {
  using Clock = std::chrono::steady_clock;
  constexpr int lost = static_cast<int>(ExitCode::process_lost);
  const auto folder = make_store_folder();
  auto children = start_copies(processes, arguments, *folder / "store");
  int code = 0, passed_on = 0;
  bool gives_up = false;
  std::optional<Clock::time_point> first_failure;
  const auto note_end = [&](std::size_t rank, int status) {
    const bool killed = WIFSIGNALED(status);
    const int own_code = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    // The cause is the first failure, unless it was only a consequence of another one: such a process may end earlier.
    const bool is_cause = !first_failure || (code == lost && own_code != lost && !gives_up);
    if (own_code == 0 || !is_cause) return;
    if (!first_failure) first_failure = Clock::now();
    code = own_code;
    if (killed && stop_signal() == 0)
      log::write_error(fmt::format("rank {} was killed by signal {}", rank, WTERMSIG(status)));
  };
  while (std::ranges::any_of(children, [](pid_t child) { return child != 0; })) {
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
      int status = 0;
      if (children[rank] == 0 || ::waitpid(children[rank], &status, WNOHANG) != children[rank]) continue;
      children[rank] = 0;
      note_end(rank, status);
    }
    if (const int signal = stop_signal(); signal != passed_on) send_to_all(children, passed_on = signal);
    if (take_save_request()) send_to_all(children, SIGUSR1);
    if (first_failure && Clock::now() - *first_failure > patience) {
      gives_up = true;
      send_to_all(children, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return code;
}

}  // namespace metaformer
