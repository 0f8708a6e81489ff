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

  // With --processes starts them, which do the work; throws ProcessesFailed if one fails. Otherwise this process does
  // the work: alone, or in the group that a launcher has started. A process that fails tells its group why.
  // Errors (exit code 2): --processes under a launcher; (exit code 6): the others are not there within the time.
  void run(const std::function<void(ProcessGroup&)>& work) const;
};

// The device of that name, "auto" or "cuda" of several processes being one for each: "cuda:1" of the second on a
// machine. Errors (exit code 2): there are fewer.
std::string device_for(const ProcessGroup& group, const std::string& name);

}  // namespace metaformer
