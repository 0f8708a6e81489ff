#pragma once
// Child processes: for libraries that end their process when they find an error, for other programs, and for copies of
// this one.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace metaformer {

// For a child: from now on it is killed when its parent, the process with the id `parent`, ends, and at once if that
// has already ended.
void end_with_parent(int parent);

// Runs `compute` in a child process and returns its result; its Error and Interrupted are passed on. If the child ends
// otherwise: Error, with `failure` and the last line that it wrote to stderr (exit code 3), or exit code 5 if it was
// killed for lack of memory. Throws Interrupted, and ends the child, if a signal asks to stop. If no process can be
// started, `compute` runs in this one.
std::string compute_in_child(const std::function<std::string()>& compute, const std::string& failure);

// Runs a program, which is looked up in PATH, without a shell, and returns what it wrote to stdout; nullopt if there is
// no such program. If it fails: Error (exit code 1), with `failure` and the last line that it wrote to stderr. Throws
// Interrupted, and ends the program, if a signal asks to stop.
std::optional<std::string> run_program(const std::vector<std::string>& words, const std::string& failure);

}  // namespace metaformer
