#pragma once
// The program's commands, run in this process: one start of the libraries for all of them.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "support/temporary_folder.h"
#include "support/torch_catch.h"

namespace metaformer {

// What a command wrote, and its exit code.
struct Outcome {
  int code = 0;
  std::string out, err;
};

// In a working folder of its own, which holds what it is given.
class Commands {
 public:
  Commands() { std::filesystem::current_path(folder_.path()); }
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;
  ~Commands() { std::filesystem::current_path(working_folder_); }

  const TemporaryFolder& folder() const { return folder_; }

  Outcome run(std::vector<std::string> words) const {
    words.insert(words.begin(), "metaformer");
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    Outcome outcome;
    {
      const Redirected out(STDOUT_FILENO, folder_ / "stdout"), err(STDERR_FILENO, folder_ / "stderr");
      outcome.code = run_command_line(static_cast<int>(words.size()), argv.data());
    }
    outcome.out = read_text(folder_ / "stdout");
    outcome.err = read_text(folder_ / "stderr");
    return outcome;
  }

 private:
  // A stream that goes to a file for as long as this lives.
  class Redirected {
   public:
    Redirected(int stream, const std::filesystem::path& file) : stream_(stream), before_(::dup(stream)) {
      std::fflush(nullptr);
      const int opened = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
      ::dup2(opened, stream);
      ::close(opened);
    }
    Redirected(const Redirected&) = delete;
    Redirected& operator=(const Redirected&) = delete;
    ~Redirected() {
      std::fflush(nullptr);
      ::dup2(before_, stream_);
      ::close(before_);
    }

   private:
    int stream_, before_;
  };

  std::filesystem::path working_folder_ = std::filesystem::current_path();
  TemporaryFolder folder_;
};

}  // namespace metaformer
