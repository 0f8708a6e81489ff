#pragma once
// The one error type of the program. It carries the exit code of the process and is caught once, in
// cli/command_line.cpp.

#include <stdexcept>
#include <string>

namespace metaformer {

// Part of the contract of the command line; docs/commands.md lists them.
enum class ExitCode : int {
  ok = 0,
  failure = 1,        // anything else: disk full, no valid checkpoint
  usage = 2,          // command line, config, run directory
  data = 3,           // corpus missing, empty, invalid
  diverged = 4,       // loss, gradients or parameters are not finite
  out_of_memory = 5,  // host or device
  process_lost = 6,   // another process of the run has ended or does not answer
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// A signal asked the program to stop. Training has saved its state; the process exits with 128 + signal.
struct Interrupted : std::runtime_error {
  explicit Interrupted(int number) : std::runtime_error("interrupted"), signal(number) {}
  int signal;
};

// The process ends with this code; another process has reported the reason.
struct ProcessesFailed : std::runtime_error {
  explicit ProcessesFailed(int exit_code) : std::runtime_error("the processes failed"), code(exit_code) {}
  int code;
};

}  // namespace metaformer
