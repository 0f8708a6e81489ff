#include "core/signals.h"

#include <signal.h>

namespace metaformer {

static volatile sig_atomic_t received = 0;

static void note_signal(int signal) {
  received = signal;
  // The next one takes the default action: a user who insists is not kept waiting.
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int stop_signal() { return received; }

}  // namespace metaformer
