#pragma once
// Faults on purpose, so that tests and campaigns can prove what survives them. METAFORMER_FAULT=NAME:COUNT makes the
// COUNT-th arrival at the point NAME fail; without it a point costs one comparison.

namespace metaformer {

// True on the arrival that is to fail.
bool fault_strikes(const char* point);

// Dies like a machine that lost its power, on the arrival that is to fail.
void fault_point(const char* point);

// Receives SIGTERM, on the arrival that is to fail.
void stop_point(const char* point);

}  // namespace metaformer
