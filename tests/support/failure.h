#pragma once
// The error of an action, and its interruption by a signal.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "base/error.h"
#include "base/signals.h"

namespace metaformer {

// The Error that `action` throws, or {ok, ""}.
template <class Action>
std::pair<ExitCode, std::string> failure(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ExitCode::ok, ""};
}

// The message of the Error that `action` throws with this code, otherwise the code of the outcome.
template <class Action>
std::string message_of(ExitCode expected, Action action) {
  const auto [code, message] = failure(action);
  return code == expected ? message : "exit code " + std::to_string(static_cast<int>(code));
}

// The signal that interrupts `action` after a SIGTERM, or 0 if it is not interrupted. It runs in a child process,
// because a process remembers a signal to its end.
template <class Action>
int interruption(Action action) {
  const auto child = ::fork();
  if (child == 0) {
    catch_signals();
    ::raise(SIGTERM);
    try {
      action();
    } catch (const Interrupted& interrupted) {
      ::_exit(interrupted.signal);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace metaformer
