#include "base/platform.h"
#include "cli/command_line.h"

namespace metaformer {

namespace {

// The functions after the path of this program: they start the program that printed them.
std::string sweep_script() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    throw Error(ExitCode::failure, "/proc/self/exe: " + error.message() + "; the path of this program is unknown");
  return fmt::format(
      "# Functions for sweeps, printed by metaformer {}; to be sourced by a bash script.\nsweep_program={}\n{}",
      build_info().version, shell_word(program.string()), embedded::sweep_functions);
}

}  // namespace

void add_sweep_functions_command(CLI::App& app) {
  auto& command =
      *app.add_subcommand("sweep-functions", "print the shell functions for a sweep, a script of many runs");
  command.footer(
      "Examples:\n"
      "  metaformer sweep-functions | less            the functions are described at the beginning\n"
      "\n"
      "A sweep is a bash script, for example sizes.sh:\n"
      "  #!/usr/bin/env bash\n"
      "  source <(metaformer sweep-functions)\n"
      "  for seed in $SEEDS; do\n"
      "    for width in 64 128; do run my.yaml --set \"model.width=$width\" --set \"train.seed=$seed\"; done\n"
      "  done\n"
      "  finish\n"
      "It writes results/sizes.csv and runs/sizes beside the script; docs/your_own_sweep.md describes it.");
  command.callback([] { print(sweep_script()); });
}

}  // namespace metaformer
