#include "distributed/local_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/signals.h"

extern char** environ;

namespace metaformer {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Where processes meet.
fs::path temporary_folder() {
  const char* given = std::getenv("TMPDIR");
  return given == nullptr || *given == '\0' ? fs::path("/tmp") : fs::path(given);
}

// A folder that goes with it.
class StoreFolder {
 public:
  StoreFolder() : path_((temporary_folder() / "metaformer-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) {
      const int error = errno;
      throw Error(
          code_of_errno(error, ExitCode::usage),
          fmt::format("TMPDIR={}: no folder can be made in it, where processes meet: {}; set TMPDIR to a folder "
                      "that exists and may be written to",
                      temporary_folder().string(), std::strerror(error)));
    }
  }
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;
  ~StoreFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  std::string store() const { return path_ + "/store"; }

 private:
  std::string path_;
};

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In a process group of its own: Ctrl-C in the terminal reaches only this process, which passes it on. Signals wait
// until the copy can handle them.
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

class Copies {
 public:
  Copies(int processes, const std::vector<std::string>& arguments, const std::string& store) {
    try {
      for (int rank = 0; rank < processes; ++rank) children_.push_back(start_copy(rank, processes, arguments, store));
    } catch (...) {
      end_all(SIGKILL);
      while (!children_.empty() && ::waitpid(-1, nullptr, 0) > 0) {
      }
      throw;
    }
    running_ = processes;
  }

  int wait(std::chrono::seconds patience) {
    int passed_on = 0;
    while (running_ > 0) {
      reap();
      if (const int signal = stop_signal(); signal != passed_on) end_all(passed_on = signal);
      if (take_save_request()) end_all(SIGUSR1);
      if (first_failure_ && Clock::now() - *first_failure_ > patience) {
        gives_up_ = true;
        end_all(SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return code_;
  }

 private:
  void end_all(int signal) const {
    for (const auto child : children_)
      if (child != 0) ::kill(child, signal);
  }

  void reap() {
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      int status = 0;
      if (children_[rank] == 0 || ::waitpid(children_[rank], &status, WNOHANG) != children_[rank]) continue;
      children_[rank] = 0;
      --running_;
      const bool killed = WIFSIGNALED(status);
      const int code = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (code == 0 || !is_cause(code)) continue;
      if (!first_failure_) first_failure_ = Clock::now();
      code_ = code;
      if (killed && stop_signal() == 0)
        log::write_error(fmt::format("rank {} was killed by signal {}", rank, WTERMSIG(status)));
    }
  }

  // The first failure, but not what is only its consequence, though that process may end earlier.
  bool is_cause(int code) const {
    constexpr int lost = static_cast<int>(ExitCode::process_lost);
    return !first_failure_ || (code_ == lost && code != lost && !gives_up_);
  }

  std::vector<pid_t> children_;  // by rank; 0: has ended
  int running_ = 0, code_ = 0;
  bool gives_up_ = false;
  std::optional<Clock::time_point> first_failure_;
};

}  // namespace

int run_local_processes(int processes, const std::vector<std::string>& arguments, std::chrono::seconds patience) {
  const StoreFolder folder;
  return Copies(processes, arguments, folder.store()).wait(patience);
}

}  // namespace metaformer
