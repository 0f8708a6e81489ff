#pragma once
// File descriptors 0, 1 and 2.

namespace metaformer {

// Gives each of them that the caller closed to /dev/null, so that no file opened later takes its number and receives
// what is meant for the stream. Opened the wrong way round: reading standard input and writing standard output still
// fail, as on a closed descriptor.
void reserve_standard_streams();

}  // namespace metaformer
