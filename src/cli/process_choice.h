#pragma once
// Options of commands whose work several processes may share.

#include <CLI/CLI.hpp>
#include <functional>

#include "distributed/process_group.h"

namespace metaformer {

// The command line of this process.
std::vector<std::string> process_arguments();

struct ProcessChoice {
  int processes = 1, timeout_seconds = 600;

  void add_to(CLI::App& command);

  // With --processes: starts the processes that do the work, and throws ProcessesFailed if one fails. Otherwise this
  // process does the work, alone or in the group that a launcher has started. A process that fails sends its group the
  // reason. Errors: exit code 2, --processes under a launcher; exit code 6, the others do not come within the timeout.
  void run(const std::function<void(ProcessGroup&)>& work) const;
};

// The device of that name. "auto" and "cuda" give each of several processes on a machine its own: "cuda:1" to the
// second. Errors (exit code 2): there are fewer devices than processes.
std::string device_for(const ProcessGroup& group, const std::string& name);

}  // namespace metaformer
