#pragma once
// Options of commands whose work several processes may share.

#include <CLI/CLI.hpp>

#include "distributed/process_group.h"

namespace metaformer {

// The command line of this process.
std::vector<std::string> process_arguments();

struct ProcessChoice {
  int processes = 1, timeout_seconds = 600;

  void add_to(CLI::App& command);

  // With --processes, starts them and throws ProcessesFailed if one fails; nothing: they have done the work. Otherwise
  // the group that a launcher has made this process a part of, or that of a process alone. Errors (exit code 2): both;
  // (exit code 6): the others are not there within the time.
  std::shared_ptr<ProcessGroup> join() const;
};

// The device of that name, "auto" or "cuda" of several processes being one for each: "cuda:1" of the second on a
// machine. Errors (exit code 2): there are fewer.
std::string device_for(const ProcessGroup& group, const std::string& name);

}  // namespace metaformer
