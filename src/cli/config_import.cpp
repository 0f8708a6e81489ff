#include <fmt/format.h>

#include "base/log.h"
#include "cli/command_line.h"
#include "config/changes.h"
#include "config/writer.h"
#include "huggingface/pretrained_model.h"

namespace metaformer {

namespace {

struct ImportArguments {
  std::string folder;
  bool json = false;
};

void run_import(const ImportArguments& arguments) {
  const auto& folder = arguments.folder;
  const auto model = describe_huggingface(folder);
  ExperimentConfig config;
  config.model = model.config;
  config.train.init_from = folder;
  if (model.tokenizer)
    language_model(config).data.tokenizer = PretrainedTokenizerOptions{.path = folder};
  else
    log::warning("{} has no tokenizer, without which it cannot be trained on", folder);
  const auto changes = config_changes(config);
  if (arguments.json) return print_json(changes);
  print_lines(
      fmt::format("# The model of {}, to train on: set data.path to your text.\n{}", folder, json_to_yaml(changes)));
}

}  // namespace

void add_config_import_command(CLI::App& config) {
  auto& command = *config.add_subcommand(
      "import",
      "print a config that describes the GPT-2 or LLaMA of a Hugging Face folder, and begins with its weights");
  auto arguments = std::make_shared<ImportArguments>();
  command.add_option("folder", arguments->folder, "folder with config.json, model.safetensors and a tokenizer")
      ->type_name("FOLDER")
      ->required();
  command.add_flag("--json", arguments->json, "JSON on stdout");
  command.footer("Examples:\n  metaformer config import gpt2 > my_gpt2.yaml");
  command.callback([arguments] { run_import(*arguments); });
}

}  // namespace metaformer
