#include "cli/command_line.h"
#include "run/checkpoint.h"
#include "run/huggingface/model_folder.h"
#include "train/lora.h"

namespace metaformer {

namespace {

struct ExportArguments {
  RunChoice choice;
  ExportFormat format = ExportFormat::huggingface;
  std::string out;
  bool json = false;
};

void run_export(const ExportArguments& arguments) {
  const auto directory = RunDirectory::open_trained(arguments.choice.run);
  const auto config = load_run_experiment(directory.config_file()).config;
  const auto with_adapters = arguments.format == ExportFormat::peft ? WithOptimizer::yes : WithOptimizer::no;
  const auto checkpoint = load_checkpoint(directory, arguments.choice.checkpoint, with_adapters);
  const auto files = export_model({.config = config,
                                   .tensors = checkpoint.model,
                                   .codec = checkpoint.codec,
                                   .step = checkpoint.progress.step,
                                   .adapters = adapters_in(checkpoint.optimizer)},
                                  arguments.format, arguments.out);
  if (arguments.json)
    return print_json({{"checkpoint", checkpoint.folder.string()},
                       {"step", checkpoint.progress.step},
                       {"format", to_string(arguments.format)},
                       {"folder", arguments.out},
                       {"files", files}});
  print_lines("{} (step {}) as {}: {}\n", checkpoint.folder.string(), checkpoint.progress.step,
              to_string(arguments.format), arguments.out);
  for (const auto& file : files) print_lines("  {}\n", file);
}

}  // namespace

void add_export_command(CLI::App& app) {
  auto& command = *app.add_subcommand("export", "write a checkpoint's weights and tokenizer for other programs");
  auto arguments = std::make_shared<ExportArguments>();
  arguments->choice.add_checkpoint_to(command);
  add_choice(
      command, "--format", arguments->format,
      "huggingface: a language model of the library transformers, with Python code unless it is a GPT-2 or LLaMA; "
      "safetensors: this program's names, any model; "
      "peft: the adapters of train.lora for the package peft; gguf: a LLaMA with its tokenizer for llama.cpp");
  command.add_option("--out", arguments->out, "folder to write, which must not exist")->required();
  add_json(command, arguments->json);
  command.footer(
      "Examples:\n  metaformer export --out gpt2_shakespeare\n"
      "  metaformer export --run runs/x --checkpoint last --format safetensors --out weights\n"
      "  metaformer export --run runs/adapted --format peft --out adapter\n"
      "  metaformer export --run runs/llama --format gguf --out llama       writes llama/model.gguf");
  command.callback([arguments] { run_export(*arguments); });
}

}  // namespace metaformer
