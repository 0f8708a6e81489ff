#pragma once
// Injects faults, so that tests can check what survives them. METAFORMER_FAULT=NAME:COUNT makes the
// COUNT-th arrival at the point NAME fail; without it a point costs one comparison.

namespace metaformer {

// Whether this arrival is the one that fails.
bool fault_strikes(const char* point);

// Ends the process at once, as a power cut would, if this arrival is the one that fails.
void fault_point(const char* point);

// Raises SIGTERM if this arrival is the one that fails.
void stop_point(const char* point);

}  // namespace metaformer
