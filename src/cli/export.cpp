#include <fmt/format.h>

#include "cli/command_line.h"
#include "config/loader.h"
#include "run/checkpoint.h"
#include "run/huggingface/export_model.h"

namespace metaformer {

namespace {

struct ExportArguments {
  RunChoice choice;
  std::string format = "huggingface";
  std::string out;
  bool json = false;
};

ExportFormat parse_format(const std::string& name) {
  std::vector<std::pair<std::string, ExportFormat>> formats;
  for (const auto format : {ExportFormat::huggingface, ExportFormat::safetensors})
    formats.emplace_back(to_string(format), format);
  return choose<ExportFormat>("--format", name, formats);
}

void run_export(const ExportArguments& arguments) {
  const auto format = parse_format(arguments.format);
  const auto directory = RunDirectory::open_trained(arguments.choice.run);
  const auto config = load_run_experiment(directory.config_file()).config;
  const auto checkpoint = load_checkpoint(directory, arguments.choice.checkpoint, WithOptimizer::no);
  const auto files = export_model(
      {.config = config, .tensors = checkpoint.model, .codec = checkpoint.codec, .step = checkpoint.progress.step},
      format, arguments.out);
  if (arguments.json)
    return print_json({{"checkpoint", checkpoint.folder.string()},
                       {"step", checkpoint.progress.step},
                       {"format", arguments.format},
                       {"folder", arguments.out},
                       {"files", files}});
  print_lines(fmt::format("{} (step {}) as {}: {}\n", checkpoint.folder.string(), checkpoint.progress.step,
                          arguments.format, arguments.out));
  for (const auto& file : files) print_lines(fmt::format("  {}\n", file));
}

}  // namespace

void add_export_command(CLI::App& app) {
  auto& command = *app.add_subcommand("export", "write a checkpoint's weights and tokenizer for other programs");
  auto arguments = std::make_shared<ExportArguments>();
  arguments->choice.add_checkpoint_to(command);
  command
      .add_option("--format", arguments->format,
                  "huggingface: a GPT-2 or LLaMA of the library transformers; safetensors: this program's names, any "
                  "model")
      ->type_name("huggingface|safetensors")
      ->capture_default_str();
  command.add_option("--out", arguments->out, "folder to write, which must not exist")->required();
  command.add_flag("--json", arguments->json, "one line of JSON on stdout");
  command.footer(
      "Examples:\n  metaformer export --out gpt2_shakespeare\n"
      "  metaformer export --run runs/x --checkpoint last --format safetensors --out weights");
  command.callback([arguments] { run_export(*arguments); });
}

}  // namespace metaformer
