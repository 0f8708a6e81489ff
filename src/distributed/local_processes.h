#pragma once
// Starts the processes of a group on this machine.

#include <chrono>
#include <string>
#include <vector>

namespace metaformer {

// Runs this program `processes` times with these arguments; each copy finds the others by find_launch(). Passes SIGINT,
// SIGTERM, SIGHUP and SIGUSR1 on to all of them. Once one has failed, the others have `patience` to end by themselves.
// Returns the exit code of the process that failed first (128 + n for one that signal n has killed), or 0.
int run_local_processes(int processes, const std::vector<std::string>& arguments, std::chrono::seconds patience);

}  // namespace metaformer
