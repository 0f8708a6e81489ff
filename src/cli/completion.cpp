#include "cli/command_line.h"
#include "cli/completion_script.h"

namespace metaformer {

void add_completion_command(CLI::App& program) {
  auto& command = *program.add_subcommand("completion", "print a script that lets a shell complete command lines");
  auto name = std::make_shared<std::string>();
  command.add_option("shell", *name, "which shell the script is for")->type_name("bash|zsh")->required();
  command.footer(
      "cmake --install puts the scripts where bash-completion and zsh look for them.\n"
      "Examples:\n"
      "  source <(metaformer completion bash)                      in ~/.bashrc\n"
      "  metaformer completion zsh > ~/.zfunc/_metaformer          into a folder of zsh's fpath");
  command.callback([&program, name] {
    print(completion_script(program, choose<Shell>("completion", *name, {{"bash", Shell::bash}, {"zsh", Shell::zsh}})));
  });
}

}  // namespace metaformer
