#pragma once
// SIGINT and SIGTERM ask the program to stop at the next safe point; a second one ends it at once.

namespace metaformer {

void catch_stop_signals();

// The signal that asked to stop, or 0.
int stop_signal();

}  // namespace metaformer
