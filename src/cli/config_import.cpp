#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command_line.h"
#include "config/changes.h"
#include "config/check.h"
#include "config/writer.h"
#include "huggingface/pretrained_model.h"

namespace metaformer {

namespace {

struct ImportArguments {
  std::string folder;
  std::string out;
  bool json = false;
};

void require_folder(const std::string& folder) {
  std::error_code ignored;
  if (std::filesystem::is_directory(folder, ignored)) return;
  throw Error(
      ExitCode::data,
      fmt::format("{}: {}; expected the folder of a model, with config.json, model.safetensors and a tokenizer. "
                  "Nothing is downloaded: fetch it first, for instance with `hf download openai-community/gpt2 "
                  "--local-dir gpt2`",
                  folder, std::filesystem::exists(folder, ignored) ? "not a folder" : "no such folder"));
}

void run_import(const ImportArguments& arguments) {
  const auto& folder = arguments.folder;
  require_folder(folder);
  const auto model = describe_huggingface(folder);
  ExperimentConfig config;
  config.model = model.config;
  config.train.init_from = folder;
  if (model.tokenizer)
    language_model(config).data.tokenizer = PretrainedTokenizerOptions{.path = folder};
  else
    log::warning("{} has no tokenizer, without which it cannot be trained on", folder);
  check_config(config, {});
  const auto changes = config_changes(config);
  const auto text = arguments.json ? json_text(changes) + "\n"
                                   : fmt::format("# The model of {}, to train on: set data.path to your text.\n{}",
                                                 printable(folder), json_to_yaml(changes));
  if (arguments.out.empty()) return print(text);
  write_file_atomically(file_to_write(arguments.out), text);
  log::info("saved {}", arguments.out);
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
  command.add_option("--out", arguments->out,
                     "file to write in place of stdout, which stays as it is where the folder cannot be read");
  command.footer("Examples:\n  metaformer config import gpt2 --out my_gpt2.yaml");
  command.callback([arguments] { run_import(*arguments); });
}

}  // namespace metaformer
