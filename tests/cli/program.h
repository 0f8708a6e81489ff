#pragma once
// The executable in a temporary folder of its own, with a small text and config.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/temporary_folder.h"

extern char** environ;

using Arguments = std::vector<std::string>;

struct Result {
  int code = 0;
  std::string out, err;
  std::string last_line() const {
    const auto trimmed = out.substr(0, out.find_last_not_of('\n') + 1);
    return trimmed.substr(trimmed.find_last_of('\n') + 1);
  }
};

inline std::string small_text() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += std::string("to be, or not to be ") + static_cast<char>('a' + i % 20) + "\n";
  return text;
}

class Program {
 public:
  Program() {
    folder_.write("text.txt", small_text());
    folder_.write(
        "small.yaml",
        "data: {path: text.txt}\n"
        "model: {layers: 1, heads: 2, width: 16, context: 16}\n"
        "train: {steps: 4, batch_size: 2, eval_interval: 2, checkpoint_interval: 2, schedule: {warmup_steps: 0}}\n");
  }

  const TemporaryFolder& folder() const { return folder_; }

  // Starts the executable in the folder; stdin comes from a file, stdout and stderr go to files there. `blocked`:
  // signals that it is started with.
  pid_t start(const Arguments& arguments, const std::string& input = "/dev/null", const sigset_t& blocked = {}) const {
    std::vector<std::string> words = {METAFORMER_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder_.path().c_str());
    posix_spawn_file_actions_addopen(&actions, 0, input.c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, (folder_ / "out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_addopen(&actions, 2, (folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    pid_t pid = 0;
    REQUIRE(posix_spawn(&pid, METAFORMER_PROGRAM, &actions, &attributes, argv.data(), environ) == 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  Result wait(pid_t pid) const {
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_text(folder_ / "out"),
            read_text(folder_ / "err")};
  }

  Result run(const Arguments& arguments) const { return wait(start(arguments)); }

  Result run_with_input(const Arguments& arguments, const std::string& input) const {
    return wait(start(arguments, folder_.write("input", input)));
  }

  // Runs, and requires success.
  std::string succeed(const Arguments& arguments) const {
    const auto result = run(arguments);
    INFO(result.err);
    REQUIRE(result.code == 0);
    return result.out;
  }

 private:
  TemporaryFolder folder_;
};
