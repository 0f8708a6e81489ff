#pragma once
// Computes in a child process, for libraries that end their process when they find an error.

#include <functional>
#include <string>

namespace metaformer {

// The result of `compute`; its Error and Interrupted are passed on. If the child ends otherwise: Error, with `failure`
// and the last line that it wrote to stderr (exit code 3), or exit code 5 if it was killed for lack of memory. Throws
// Interrupted, and ends the child, if a signal asks to stop. If no process can be started, `compute` runs in this one.
std::string compute_in_child(const std::function<std::string()>& compute, const std::string& failure);

}  // namespace metaformer
