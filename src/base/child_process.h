#pragma once
// A computation in a process of its own, for libraries that end the process where they find something wrong.

#include <functional>
#include <string>

namespace metaformer {

// What `compute` returns; its Error and Interrupted arrive as such. Errors: `failure` and the last line that the child
// wrote to stderr, where it ends in any other way (exit code 3); it is killed for want of memory (exit code 5). Throws
// Interrupted, and ends the child, when a signal asks to stop. Without a second process `compute` runs in this one.
std::string compute_in_child(const std::function<std::string()>& compute, const std::string& failure);

}  // namespace metaformer
