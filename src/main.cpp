#include "attention/mixers.h"
#include "base/process_time.h"
#include "base/signals.h"
#include "cli/command_line.h"

// Before the libraries' constructors, which take most of the time until main: a signal then waits for its handler.
static void begin_program(int, char**, char**) {
  metaformer::note_program_start();
  metaformer::hold_signals();
}
[[gnu::section(".preinit_array"), gnu::used]] static void (*const first_function)(int, char**, char**) = begin_program;

int main(int argc, char** argv) {
  metaformer::register_mixers();
  return metaformer::run_command_line(argc, argv);
}
