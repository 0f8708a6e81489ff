#pragma once
// How long this process has run.

namespace metaformer {

// Since the system started it, loading of libraries included; to a hundredth of a second. 0 where /proc does not tell.
double seconds_since_process_start();

}  // namespace metaformer
