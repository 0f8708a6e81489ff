#include <fmt/format.h>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/command_line.h"
#include "config_reader/loader.h"
#include "data/statistics/tokenizer_report.h"

namespace metaformer {

namespace {

struct TokenizerArguments {
  ConfigChoice choice;
  std::string out;
  std::optional<std::string> text;
  bool offline = false;
  bool json = false;
};

std::string describe(const TokenizerReport& report) {
  const auto json = to_json(report);
  auto text = fmt::format("{} tokenizer, vocabulary {}\n", report.kind, report.tokenizer->vocabulary_size());
  for (const auto& [name, split] : json["splits"].items()) {
    text += fmt::format("{:<11} {} characters in {} tokens, {:.2f} per token", name, split["characters"].dump(),
                        split["tokens"].dump(), split["characters_per_token"].get<double>());
    if (split.contains("unknown_share"))
      text += fmt::format(", {:.2f}% unknown", 100 * split["unknown_share"].get<double>());
    text += "\n";
  }
  text += fmt::format("encodes {:.1f} MB/s on one thread, {:.1f} MB/s the second time\nlongest tokens:",
                      report.megabytes_per_second[0], report.megabytes_per_second[1]);
  for (const auto& token : report.longest_tokens) text += " " + in_quotes(token);
  return text + "\n";
}

// The tokens of a text, one by one.
nlohmann::ordered_json encode(const Tokenizer& tokenizer, std::string_view text) {
  auto tokens = nlohmann::ordered_json::array();
  for (const auto id : tokenizer.encode(text))
    tokens.push_back({{"id", id}, {"text", tokenizer.decode(std::vector{id})}});
  return tokens;
}

void run_tokenizer(const TokenizerArguments& arguments) {
  const auto config = load_experiment(arguments.choice.config, arguments.choice.overrides).config;
  const auto report = report_tokenizer(config, arguments.offline);
  auto json = to_json(report);
  if (arguments.text) json["encoded"] = encode(*report.tokenizer, without_byte_order_mark(*arguments.text));
  if (!arguments.out.empty()) {
    write_file_atomically(file_to_write(arguments.out), report.tokenizer->to_json().dump() + "\n");
    log::info("saved {}", arguments.out);
  }
  if (arguments.json) return print_json(json);
  print_lines(describe(report));
  if (!arguments.text) return;
  for (const auto& token : json["encoded"])
    print(fmt::format("{:>7} {}\n", token["id"].get<std::int32_t>(), in_quotes(token["text"].get<std::string>())));
}

}  // namespace

void add_data_tokenizer_command(CLI::App& data) {
  auto& command = *data.add_subcommand(
      "tokenizer", "learn a config's tokenizer from its training texts, or load it from the cache, and describe it");
  auto arguments = std::make_shared<TokenizerArguments>();
  arguments->choice.add_to(command);
  command.add_option("--out", arguments->out, "file to write, in the format of a checkpoint's tokenizer.json");
  may_be_empty(command.add_option("--encode", arguments->text, "show the tokens of this text"));
  command.add_flag("--offline", arguments->offline, "never download a corpus");
  command.add_flag("--json", arguments->json, "one line of JSON on stdout");
  command.footer(
      "Examples:\n"
      "  metaformer data tokenizer --config shakespeare_subword_metric.yaml --encode \"To be, or not to be\"\n"
      "  metaformer data tokenizer --config imdb_metric.yaml --set data.tokenizer.kind=bpe --out tokenizer.json");
  command.callback([arguments] { run_tokenizer(*arguments); });
}

}  // namespace metaformer
