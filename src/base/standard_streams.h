#pragma once
// File descriptors 0, 1 and 2.

namespace metaformer {

// Opens /dev/null for each of them that the caller closed, so that no file opened later takes its number and receives
// the output of the stream. It is opened in the wrong direction: reading standard input and writing standard output
// still fail, as on a closed descriptor.
void reserve_standard_streams();

}  // namespace metaformer
