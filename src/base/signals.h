#pragma once
// SIGINT, SIGTERM and SIGHUP ask the program to stop at the next safe point; a second one ends it at once. SIGUSR1 asks
// it to save and continue.

namespace metaformer {

void catch_signals();

// A line that the first of those signals writes to stderr at once. `line` must have static storage duration; nullptr
// writes nothing.
void set_stop_notice(const char* line);

// A reader of standard output or error that went away must not end what goes on without it.
void ignore_broken_pipes();

// The signal that asked to stop, or 0.
int stop_signal();

// Throws Interrupted once a signal has asked to stop. Long loops call it now and then.
void throw_if_stopped();

// As long as one lives, throw_if_stopped does not throw: for what must be finished before the program stops. Of the
// main thread.
class StopDeferral {
 public:
  StopDeferral();
  StopDeferral(const StopDeferral&) = delete;
  StopDeferral& operator=(const StopDeferral&) = delete;
  ~StopDeferral();
};

// Whether SIGUSR1 has arrived since the last call.
bool take_save_request();

}  // namespace metaformer
