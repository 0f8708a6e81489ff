#include "base/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <initializer_list>
#include <thread>

#include "base/error.h"

namespace metaformer {

static volatile sig_atomic_t stop_received = 0;
static volatile sig_atomic_t save_received = 0;
static volatile sig_atomic_t stderr_is_terminal = 0;
static std::atomic<const char*> stop_notice = nullptr;
static_assert(std::atomic<const char*>::is_always_lock_free);  // a signal handler reads it

// Runs in a signal handler, so it only copies bytes and calls write(2). A single write, so that the progress line of
// another thread cannot come between.
static void answer_stop() {
  const char* notice = stop_notice;
  if (notice == nullptr) return;
  char line[128];
  std::size_t size = 0;
  const auto append = [&](const char* text) {
    for (; *text != '\0' && size < sizeof line; ++text) line[size++] = *text;
  };
  if (stderr_is_terminal) append("\r\033[K");  // over the progress line
  append(notice);
  append("\n");
  const int before = errno;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, size);
  errno = before;
}

static void quit(int signal) { ::_exit(128 + signal); }

static void note_stop(int signal) {
  stop_received = signal;
  // The next signal has the default action, so that a user can end the program at once. Process 1, as in a container,
  // is not ended by the default action.
  struct sigaction action = {};
  action.sa_handler = ::getpid() == 1 ? quit : SIG_DFL;
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaction(each, &action, nullptr);
  answer_stop();
}

static void note_save(int) { save_received = 1; }

static void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

sigset_t caught_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&signals, each);
  return signals;
}

void hold_signals() {
  const auto signals = caught_signals();
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
}

void catch_signals() {
  stderr_is_terminal = ::isatty(STDERR_FILENO);
  handle(SIGINT, note_stop);
  handle(SIGTERM, note_stop);
  handle(SIGUSR1, note_save);
  handle(SIGXFSZ, SIG_IGN);  // a file over its limit is then a write error, as a full disk is
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) handle(SIGHUP, note_stop);  // nohup stays in effect
  const auto signals = caught_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void set_stop_notice(const char* line) { stop_notice = line; }

void ignore_broken_pipes() { handle(SIGPIPE, SIG_IGN); }

void hold_broken_pipes() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int stop_signal() { return stop_received; }

static std::atomic<int> deferrals = 0;

StopDeferral::StopDeferral() { ++deferrals; }
StopDeferral::~StopDeferral() { --deferrals; }

void throw_if_stopped() {
  if (const int signal = stop_received; signal != 0 && deferrals == 0) throw Interrupted(signal);
}

void wait_unless_stopped(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (; Clock::now() < end; std::this_thread::sleep_for(std::chrono::milliseconds(20))) throw_if_stopped();
}

bool take_save_request() {
  if (!save_received) return false;
  save_received = 0;
  return true;
}

}  // namespace metaformer
