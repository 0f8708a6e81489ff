#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/platform.h"
#include "base/signals.h"
#include "cli/command_line.h"

// Runs before the libraries' constructors, which take most of the time until main, so that a signal waits for its
// handler.
static void begin_program(int, char**, char**) {
  metaformer::note_program_start();
  metaformer::hold_signals();
}
[[gnu::section(".preinit_array"), gnu::used]] static void (*const first_function)(int, char**, char**) = begin_program;

// OpenMP's threads spin while they wait for one another. If other programs use the processors, a spinning thread can
// keep the thread that it waits for from running. So ours sleep after 5,000 spins, some microseconds. The library reads
// this number when it is loaded, before any function of the program, so commands that compute execute the program again
// with it.
static void shorten_spins(int argc, char** argv) {
  constexpr std::array<std::string_view, 7> computing = {"train",   "evaluate", "predict", "sample",
                                                         "inspect", "report",   "bench"};
  if (argc < 2 || std::find(computing.begin(), computing.end(), argv[1]) == computing.end()) return;
  for (const char* choice : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"})
    if (std::getenv(choice) != nullptr) return;
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads != nullptr && std::string_view(threads) == "1") return;
  ::setenv("GOMP_SPINCOUNT", "5000", /*overwrite=*/0);
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) ::execv(program.c_str(), argv);  // continues if that fails
}

int main(int argc, char** argv) {
  shorten_spins(argc, argv);
  return metaformer::run_command_line(argc, argv);
}
