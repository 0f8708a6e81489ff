#include <algorithm>

#include "base/download.h"
#include "base/files.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/command_line.h"
#include "data/corpus.h"
#include "data/labelled.h"
#include "data/recall.h"
#include "data/statistics.h"
#include "data/token_folder.h"
#include "data/tokenized_text.h"

namespace metaformer {

namespace {

struct StatsArguments {
  ConfigChoice choice;
  bool offline = false, json = false;
};

std::string percentage(std::int64_t part, std::int64_t all) {
  return all == 0 ? "-" : fmt::format("{:.2f}%", 100 * static_cast<double>(part) / static_cast<double>(all));
}

// A table with a column for each split that has texts.
template <class Stats>
struct SplitTable {
  const Stats& stats;
  std::vector<Split> splits;
  std::string text;

  template <class HasTexts>
  SplitTable(const Stats& all, HasTexts has_texts) : stats(all), text(fmt::format("{:<24}", "")) {
    for (const auto split : every_split)
      if (has_texts(split)) splits.push_back(split);
    for (const auto split : splits) text += fmt::format(" {:>18}", to_string(split));
    text += "\n";
  }

  // Adds a row with `value` of each split's statistics.
  template <class Value>
  void add(const std::string& what, Value value) {
    text += fmt::format("{:<24}", what);
    for (const auto split : splits) text += fmt::format(" {:>18}", fmt::format("{}", value(stats[split])));
    text += "\n";
  }

  std::string unknown(std::int64_t tokens, std::int64_t all) const {
    return stats.has_unknown ? percentage(tokens, all) : "-";
  }
};

std::string describe(const SharedTexts& shared, const char* what) {
  return fmt::format("{} in two splits: {} of validation in train, {} of test in train, {} of test in validation\n",
                     what, shared.validation_in_train, shared.test_in_train, shared.test_in_validation);
}

std::string describe(const std::optional<PackStats>& packs) {
  if (!packs) return "";
  return fmt::format(
      "packing: {} texts or pieces in {} rows, {:.2f} in each; {:.2f}% of the rows are tokens; speed-up over one row "
      "per text at most {:.2f}, without any padding {:.2f}\n",
      packs->sequences, packs->packs, packs->factor, 100 * packs->efficiency, packs->factor, packs->speed_up_limit);
}

std::string describe(const LabelledStats& stats, const ExperimentConfig& config) {
  SplitTable table(stats, [&](Split split) { return stats[split].texts > 0; });
  table.add("texts", [](const auto& of) { return of.texts; });
  constexpr std::size_t most_classes = 20;
  for (std::size_t i = 0; i < std::min(stats.labels.size(), most_classes); ++i)
    table.add("  " + printable(stats.labels[i]), [&](const auto& of) {
      return fmt::format("{} {:>7}", of.class_counts[i], percentage(of.class_counts[i], of.texts));
    });
  if (const auto all = stats.labels.size(); all > most_classes)
    table.add(fmt::format("  ... ({} classes in all)", all), [](const auto&) { return ""; });
  table.add("tokens", [](const auto& of) { return of.all_tokens; });
  table.add("tokens a text, mean", [](const auto& of) { return fmt::format("{:.1f}", of.tokens.mean); });
  for (const auto& [name, length] :
       {std::pair("  median", &LengthStats::median), std::pair("  90th percentile", &LengthStats::percentile_90),
        std::pair("  95th percentile", &LengthStats::percentile_95),
        std::pair("  99th percentile", &LengthStats::percentile_99), std::pair("  longest", &LengthStats::longest)})
    table.add(name, [length = length](const auto& of) { return of.tokens.*length; });
  table.add(fmt::format("cut at {} tokens", context_of(config.model)),
            [](const auto& of) { return percentage(of.cut, of.texts); });
  table.add("unknown tokens", [&](const auto& of) { return table.unknown(of.unknown_tokens, of.all_tokens); });
  table.add("copies in the split", [](const auto& of) { return of.copies; });
  std::string sources;
  for (const auto& source : stats.sources) {
    const auto left_out = source.value("left_out", 0);
    sources +=
        fmt::format("{}: {} texts, {} malformed rows{}\n", source.value("path", ""), source.value("rows", 0),
                    source.value("malformed", 0), left_out > 0 ? fmt::format(", {} ratings left out", left_out) : "");
  }
  return table.text + describe(stats.shared, "texts") +
         fmt::format(
             "padding in training batches: {:.1f}% without sorting by length, {:.1f}% with task.bucketing {}\n"
             "vocabulary: {}\n",
             100 * stats.padding_unsorted, 100 * stats.padding_bucketed, classification(config).bucketing,
             stats.vocabulary) +
         describe(stats.packs) + sources;
}

std::string describe(const TextStats& stats) {
  SplitTable table(stats, [](Split split) { return split != Split::test; });
  table.add("characters", [](const auto& of) { return of.characters; });
  table.add("tokens", [](const auto& of) { return of.tokens; });
  table.add("unknown tokens", [&](const auto& of) { return table.unknown(of.unknown_tokens, of.tokens); });
  table.add("unknown characters", [&](const auto& of) {
    return of.unknown_characters ? table.unknown(*of.unknown_characters, of.characters) : "-";
  });
  table.add("unigram entropy, nats", [](const auto& of) { return fmt::format("{:.4f}", of.unigram_entropy); });
  return table.text + describe(stats.packs) + fmt::format("vocabulary: {}\ntext: {}\n", stats.vocabulary, stats.path);
}

std::string describe_files(const nlohmann::ordered_json& sources) {
  std::string text;
  for (const auto split : every_split) {
    const auto found = sources.find(std::string(to_string(split)));
    if (found == sources.end()) continue;
    text += found->at("path").get<std::string>();
    if (found->contains("target_path")) text += " and " + found->at("target_path").get<std::string>();
    if (found->contains("malformed")) text += fmt::format(": {} malformed rows", found->at("malformed").get<int>());
    text += "\n";
  }
  return text;
}

std::string describe(const PairStats& stats, const ExperimentConfig& config) {
  SplitTable table(stats, [&](Split split) { return stats[split].pairs > 0; });
  table.add("pairs", [](const auto& of) { return of.pairs; });
  for (const auto& [name, of_side] :
       {std::pair("source", &PairSplitStats::source), std::pair("target", &PairSplitStats::target)}) {
    const auto side = of_side;
    table.add(fmt::format("tokens, {}", name), [&](const auto& of) { return (of.*side).all_tokens; });
    table.add("  of a text, mean", [&](const auto& of) { return fmt::format("{:.1f}", (of.*side).tokens.mean); });
    table.add("  95th percentile", [&](const auto& of) { return (of.*side).tokens.percentile_95; });
    table.add("  longest", [&](const auto& of) { return (of.*side).tokens.longest; });
    table.add(fmt::format("  cut at {} with a mark", context_of(config.model)),
              [&](const auto& of) { return percentage((of.*side).cut, of.pairs); });
    table.add("  unknown tokens",
              [&](const auto& of) { return table.unknown((of.*side).unknown_tokens, (of.*side).all_tokens); });
  }
  table.add("copies in the split", [](const auto& of) { return of.copies; });
  return table.text + describe(stats.shared, "sources") +
         fmt::format("padding in training batches: {:.1f}%, with task.bucketing {}\nvocabulary: {}\n",
                     100 * stats.padding, std::get<SequenceToSequenceConfig>(config.task).bucketing, stats.vocabulary) +
         describe_files(stats.sources);
}

void run_stats(const StatsArguments& arguments) {
  const auto config = arguments.choice.load().config;
  const auto* pairs = std::get_if<SequenceToSequenceConfig>(&config.task);
  if (count_of_numbers(config.task) || (pairs != nullptr && synthetic_options(pairs->data.synthetic) != nullptr))
    fail_usage("data stats: task {} generates its rows; there are no data to count", kind_of(config.task));
  const auto show = [&](const auto& stats, const std::string& text) {
    arguments.json ? print_json(to_json(stats)) : print_lines(text);
  };
  if (const auto* data = text_data_of(config.task)) {
    const auto stats = measure_text(load_text(*data, arguments.offline, nullptr), config);
    return show(stats, describe(stats));
  }
  if (pairs != nullptr) {
    const auto stats = measure_pairs(*load_pairs(config, arguments.offline, {}), config);
    return show(stats, describe(stats, config));
  }
  const auto stats = measure_labelled_texts(load_labelled_splits(labelled_data(config), arguments.offline), config);
  show(stats, describe(stats, config));
}

void add_stats_command(CLI::App& data) {
  auto& command = *data.add_subcommand(
      "stats", "count classes, lengths, unknown tokens, copies, padding and malformed rows in a config's data");
  auto arguments = std::make_shared<StatsArguments>();
  arguments->choice.add_to(command);
  add_offline(command, arguments->offline);
  add_json(command, arguments->json, "JSON on stdout");
  command.footer(
      "Examples:\n"
      "  metaformer data stats --config imdb_metric.yaml\n"
      "  metaformer data stats --config reviews_amazon.yaml --set data.path=reviews_Electronics_5.json.gz --json");
  command.callback([arguments] { run_stats(*arguments); });
}

struct RowsArguments {
  ConfigChoice choice;
  Split split = Split::train;
  std::int64_t count = 3;
  bool json = false;
};

void run_rows(const RowsArguments& arguments) {
  const auto config = arguments.choice.load().config;
  if (recall_rows(config.task) == nullptr)
    fail_usage("data rows: task {} draws no rows; tasks that do: recall, induction, ...", kind_of(config.task));
  const RecallDataset dataset(config.task);
  const auto seed = static_cast<std::uint64_t>(config.train.seed);
  const auto examples = recall_rows(config.task)->examples;  // 0: endless
  const auto count = examples > 0 ? std::min(arguments.count, examples) : arguments.count;
  const auto rows = arguments.split == Split::train ? dataset.training_rows(seed, 0, count)
                                                    : dataset.rows(arguments.split, seed, 0, arguments.count);
  auto json = nlohmann::ordered_json::array();
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    const auto of_row = [&](const std::vector<std::int64_t>& all) {
      const auto first = all.begin() + row * rows.length;
      return std::vector(first, first + rows.length);
    };
    const auto ids = of_row(rows.ids), targets = of_row(rows.targets);
    json.push_back({{"ids", ids}, {"targets", targets}});
    std::string line;
    for (std::size_t i = 0; i < ids.size(); ++i)
      line += (i > 0 ? " " : "") + fmt::format("{}", ids[i]) + (targets[i] >= 0 ? fmt::format("→{}", targets[i]) : "");
    if (!arguments.json) print(line + "\n");
  }
  if (arguments.json) print_json({{"rows", json}});
}

void add_rows_command(CLI::App& data) {
  auto& command = *data.add_subcommand("rows", "show generated rows of a task: tokens as numbers, targets after →");
  auto arguments = std::make_shared<RowsArguments>();
  arguments->choice.add_to(command);
  add_choice(command, "--split", arguments->split, "split to show");
  add_whole_number(command, "--count", arguments->count, 1, 1 << 20, "rows to show, at most those that the split has");
  add_json(command, arguments->json, "JSON on stdout; -1 stands for no target");
  command.footer(
      "Examples:\n"
      "  metaformer data rows --config recall_scaled_dot_product.yaml\n"
      "  metaformer data rows --config recall_base.yaml --set task=induction --split validation --json");
  command.callback([arguments] { run_rows(*arguments); });
}

struct TokenizerArguments {
  ConfigChoice choice;
  std::string out;
  std::optional<std::string> text;
  bool offline = false, json = false;
};

std::string describe_tokenizer(const nlohmann::ordered_json& json) {
  auto text = fmt::format("{} tokenizer, vocabulary {}\n", json["kind"].get<std::string>(), json["vocabulary"].dump());
  for (const auto& [name, split] : json["splits"].items()) {
    text += fmt::format("{:<11} {} characters in {} tokens, {:.2f} per token", name, split["characters"].dump(),
                        split["tokens"].dump(), split["characters_per_token"].get<double>());
    if (split.contains("unknown_share"))
      text += fmt::format(", {:.2f}% unknown", 100 * split["unknown_share"].get<double>());
    text += "\n";
  }
  text += fmt::format("encodes {:.1f} MB/s on one thread, {:.1f} MB/s the second time\nlongest tokens:",
                      json["megabytes_per_second"]["first_pass"].get<double>(),
                      json["megabytes_per_second"]["second_pass"].get<double>());
  for (const auto& token : json["longest_tokens"]) text += " " + in_quotes(token.get<std::string>());
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
  const auto config = arguments.choice.load().config;
  auto [tokenizer, json] = report_tokenizer(config, arguments.offline);
  if (arguments.text) json["encoded"] = encode(*tokenizer, without_byte_order_mark(*arguments.text));
  if (!arguments.out.empty()) {
    write_file_atomically(file_to_write(arguments.out), tokenizer->to_json().dump() + "\n");
    log::info("saved {}", arguments.out);
  }
  if (arguments.json) return print_json(json);
  print_lines(describe_tokenizer(json));
  if (!arguments.text) return;
  for (const auto& token : json["encoded"])
    print("{:>7} {}\n", token["id"].get<std::int32_t>(), in_quotes(token["text"].get<std::string>()));
}

void add_tokenizer_command(CLI::App& data) {
  auto& command = *data.add_subcommand(
      "tokenizer", "learn a config's tokenizer from its training texts, or load it from the cache, and describe it");
  auto arguments = std::make_shared<TokenizerArguments>();
  arguments->choice.add_to(command);
  command.add_option("--out", arguments->out, "file to write, in the format of a checkpoint's tokenizer.json");
  may_be_empty(command.add_option("--encode", arguments->text, "show the tokens of this text"));
  add_offline(command, arguments->offline);
  add_json(command, arguments->json);
  command.footer(
      "Examples:\n"
      "  metaformer data tokenizer --config shakespeare_subword_metric.yaml --encode \"To be, or not to be\"\n"
      "  metaformer data tokenizer --config imdb_metric.yaml --set data.tokenizer.kind=bpe --out tokenizer.json");
  command.callback([arguments] { run_tokenizer(*arguments); });
}

struct PrepareArguments {
  ConfigChoice choice;
  std::vector<std::string> corpora;
  std::optional<std::string> tokenizer, validation;
  std::string out;
  PrepareOptions options{.corpora = {}, .config = {}, .out = {}, .threads = encoding_threads()};
};

// The tokenizer of --tokenizer as a setting of the config: a kind, or the path of an existing tokenizer.
std::string tokenizer_setting(const std::string& tokenizer) {
  const auto kinds = kinds_of<TokenizerOptions>();
  const bool is_kind = std::ranges::find(kinds, tokenizer) != kinds.end();
  if (!is_kind && !std::filesystem::exists(tokenizer))
    fail_usage("--tokenizer {}: expected {} or a file or folder of an existing tokenizer{}", tokenizer,
               fmt::join(kinds, ", "), did_you_mean(tokenizer, {kinds.begin(), kinds.end()}));
  return is_kind ? "data.tokenizer=" + tokenizer
                 : fmt::format("data.tokenizer={{kind: pretrained, path: \"{}\"}}",
                               std::filesystem::absolute(tokenizer).string());
}

void run_prepare(const PrepareArguments& arguments) {
  auto choice = arguments.choice;
  if (arguments.tokenizer) choice.overrides.insert(choice.overrides.begin(), tokenizer_setting(*arguments.tokenizer));
  const auto config = choice.load().config;
  const auto* data = text_data_of(config.task);
  if (data == nullptr) fail_usage("task {}: only texts of language models are prepared", kind_of(config.task));
  auto options = arguments.options;
  options.config = *data;
  if (arguments.validation) options.config.validation_path = std::filesystem::absolute(*arguments.validation).string();
  if (options.config.path) fail_usage("data.path: has no effect here; the corpora are arguments");
  for (const auto& corpus : arguments.corpora)
    options.corpora.push_back(corpus == "-" ? std::filesystem::path(corpus) : std::filesystem::absolute(corpus));
  if (std::ranges::count(arguments.corpora, "-") > 1) fail_usage("-: standard input can be read only once");
  options.out = std::filesystem::absolute(arguments.out);
  prepare_tokens(options);
  print(options.out.string() + "\n");
}

void add_prepare_command(CLI::App& data) {
  auto& command = *data.add_subcommand(
      "prepare", "encode texts of any size once, into a folder of tokens from which training reads (data.path)");
  auto arguments = std::make_shared<PrepareArguments>();
  add_text(command, "corpora", arguments->corpora, "CORPUS",
           "text, JSON lines, or a folder of them, compressed (gzip, zstd) or not; -: standard input")
      ->required();
  add_text(command, "--out", arguments->out, "FOLDER", "folder to write; a stopped preparation in it is continued")
      ->required();
  add_text(command, "--tokenizer", arguments->tokenizer, "KIND|PATH",
           "byte, character, word, unigram, bpe, or the file or folder of an existing tokenizer; default: that of the "
           "config, else character");
  add_text(command, "--validation", arguments->validation, "CORPUS",
           "texts held out for validation, in place of the last data.validation_fraction");
  add_whole_number(command, "--threads", arguments->options.threads, 1, 256, "threads that encode");
  add_whole_number(command, "--shard-tokens", arguments->options.shard_tokens, 1, std::int64_t{1} << 40,
                   "tokens of a file, after which a stopped preparation continues");
  arguments->choice.add_to(command, /*required=*/false);
  command.footer(
      "Examples:\n"
      "  metaformer data prepare corpus.jsonl.zst --tokenizer gpt2/tokenizer.json --out tokens\n"
      "  zcat texts/*.gz | metaformer data prepare - --tokenizer byte --out tokens\n"
      "  metaformer data prepare texts/ --tokenizer bpe --set data.tokenizer.vocabulary=4096 --out tokens\n"
      "  metaformer train --config shakespeare_subword_metric.yaml --set data.path=tokens");
  command.callback([arguments] { run_prepare(*arguments); });
}

void add_verify_command(CLI::App& data) {
  auto& command = *data.add_subcommand("verify", "read a folder of tokens and compare its files with their digests");
  auto folder = std::make_shared<std::string>();
  add_text(command, "folder", *folder, "FOLDER", "folder that `metaformer data prepare` has written")->required();
  command.callback([folder] {
    verify_token_folder(*folder);
    print_lines("{}: all files are as they were written\n", *folder);
  });
}

struct DataArguments {
  std::string name, folder;
};

void run_fetch(const DataArguments& arguments) {
  const auto& corpus = find_public_corpus(arguments.name);
  if (const auto found = locate_corpus(corpus); found && arguments.folder.empty()) {
    log::info("{} is already there", corpus.name);
    return print(found->string() + "\n");
  }
  const auto folder = arguments.folder.empty() ? cache_folder() : std::filesystem::path(arguments.folder);
  if (!folder) fail_usage("there is no cache to download into; name a folder with --to");
  const auto path = fetch_corpus(corpus, *folder);
  print(path.string() + "\n");
}

void run_list() {
  for (const auto& corpus : public_corpora()) {
    const auto found = locate_corpus(corpus);
    print_lines("{:<20} {:<12} {}\n", corpus.name, human_bytes(corpus.bytes()),
                found ? found->string() : "not fetched: " + corpus.url);
  }
}

}  // namespace

void add_data_command(CLI::App& app) {
  auto& data = *app.add_subcommand("data", "public corpora, and statistics of a config's data");
  data.require_subcommand(1);
  auto arguments = std::make_shared<DataArguments>();
  auto& fetch = *data.add_subcommand("fetch", "download a corpus, check its digest, print its path");
  add_text(fetch, "name", arguments->name, fmt::format("{}", fmt::join(corpus_names, "|")), "name of the corpus")
      ->required();
  fetch.add_option("--to", arguments->folder,
                   "folder to write; default: the cache ($XDG_CACHE_HOME/metaformer or ~/.cache/metaformer)");
  fetch.callback([arguments] { run_fetch(*arguments); });
  data.add_subcommand("list", "list the public corpora and their locations")->callback([] { run_list(); });
  add_stats_command(data);
  add_prepare_command(data);
  add_verify_command(data);
  add_rows_command(data);
  add_tokenizer_command(data);
  data.footer(
      "METAFORMER_DATA names a folder that already holds corpora; it is searched first.\n"
      "Examples:\n  metaformer data fetch tinyshakespeare\n  metaformer data fetch tinyshakespeare --to /mnt/corpora");
}

}  // namespace metaformer
