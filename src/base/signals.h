#pragma once
// SIGINT, SIGTERM and SIGHUP ask the program to stop at the next safe point; a second one ends it at once. SIGUSR1 asks
// it to save and continue.

#include <signal.h>

namespace metaformer {

void catch_signals();

// The four signals above. While they are blocked, they wait until catch_signals unblocks them; a program that is
// started meanwhile inherits the blocking.
sigset_t caught_signals();
void hold_signals();  // blocks them; may be called before main

// Sets the line that the first of those signals writes to stderr at once. `line` must have static storage; nullptr
// writes nothing.
void set_stop_notice(const char* line);

// The program continues if a reader of its standard output or error has closed the pipe.
void ignore_broken_pipes();

// Writing to a pipe or socket without a reader does not end the program, but is an error, in this thread and in threads
// that it starts.
void hold_broken_pipes();

// The signal that asked to stop, or 0.
int stop_signal();

// Throws Interrupted once a signal has asked to stop. Long loops call it regularly.
void throw_if_stopped();

// Waits for so many seconds. Throws Interrupted once a signal has asked to stop.
void wait_unless_stopped(double seconds);

// While a StopDeferral exists, throw_if_stopped does not throw: for work that must be finished before the program
// stops.
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
