#include <fmt/format.h>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command_line.h"
#include "data/sources/corpus.h"

namespace metaformer {

namespace {

struct DataArguments {
  std::string name;
  std::string folder;
};

void run_fetch(const DataArguments& arguments) {
  const auto& corpus = find_public_corpus(arguments.name);
  if (const auto found = locate_corpus(corpus); found && arguments.folder.empty()) {
    log::info("{} is already there", corpus.name);
    return print(found->string() + "\n");
  }
  const auto folder = arguments.folder.empty() ? cache_folder() : std::filesystem::path(arguments.folder);
  if (!folder) throw Error(ExitCode::usage, "there is no cache to download into; name a folder with --to");
  const auto path = fetch_corpus(corpus, *folder);
  print(path.string() + "\n");
}

void run_list() {
  for (const auto& corpus : public_corpora()) {
    const auto found = locate_corpus(corpus);
    print_lines(fmt::format("{:<20} {:<12} {}\n", corpus.name, human_bytes(corpus.bytes()),
                            found ? found->string() : "not fetched: " + corpus.url));
  }
}

}  // namespace

void add_data_command(CLI::App& app) {
  auto& data = *app.add_subcommand("data", "public corpora, and statistics of a config's data");
  data.require_subcommand(1);
  auto arguments = std::make_shared<DataArguments>();
  auto& fetch = *data.add_subcommand("fetch", "download a corpus, check its digest, print its path");
  fetch.add_option("name", arguments->name, "name of the corpus")
      ->type_name(fmt::format("{}", fmt::join(corpus_names, "|")))
      ->required();
  fetch.add_option("--to", arguments->folder,
                   "folder; default: the cache ($XDG_CACHE_HOME/metaformer or ~/.cache/metaformer)");
  fetch.callback([arguments] { run_fetch(*arguments); });
  data.add_subcommand("list", "list the corpora known by name, and where they are")->callback([] { run_list(); });
  add_data_stats_command(data);
  add_data_tokenizer_command(data);
  data.footer(
      "METAFORMER_DATA names a folder that already holds corpora; it is searched first.\n"
      "Examples:\n  metaformer data fetch tinyshakespeare\n  metaformer data fetch tinyshakespeare --to /mnt/corpora");
}

}  // namespace metaformer
