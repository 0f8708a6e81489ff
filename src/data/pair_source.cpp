#include "data/pair_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/experiment_config.h"
#include "data/corpus.h"
#include "data/labelled_source.h"
#include "data/tables.h"

namespace metaformer {

namespace {

void add_pair(std::string&& source, std::string&& target, std::int64_t line, PairTable& table) {
  auto why = defect_of_field("source", source, longest_pair_text);
  if (why.empty()) why = defect_of_field("target", target, longest_pair_text);
  if (!why.empty()) return table.malformed.push_back({line, std::move(why)});
  const auto place = fmt::format("{}:{}", table.path.string(), line);
  table.pairs.push_back({std::move(source), std::move(target), place, place});
}

void add_json_pairs(std::string_view content, const TableColumns& columns, PairTable& table) {
  const auto source = table.path.string();
  check_json_columns(columns, source);
  const std::vector<std::string> names = {columns.first.field, columns.second.field};
  const auto refuse = [&](std::int64_t line, std::string why) { table.malformed.push_back({line, std::move(why)}); };
  const auto use = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (auto why = defect_of_text_member(*members[i], names[i]); !why.empty()) return refuse(line, std::move(why));
    add_pair(std::move(members[0]->get_ref<std::string&>()), std::move(members[1]->get_ref<std::string&>()), line,
             table);
  };
  for_each_json_object(content, names, source, use, refuse);
}

}  // namespace

TableColumns columns_of(const ParallelDataConfig& config, std::string_view advice) {
  const ParallelDataConfig usual;
  return {.first = {config.source_field, "data.source_field", "source"},
          .second = {config.target_field, "data.target_field", "target"},
          .are_usual = config.source_field == usual.source_field && config.target_field == usual.target_field,
          .header = config.header,
          .advice = advice,
          .longest_text = longest_pair_text};
}

PairTable read_pair_table(const std::filesystem::path& path, const ParallelDataConfig& config,
                          std::string_view target_key) {
  PairTable table;
  table.path = path;
  const auto content = read_packed_text(path, table.sha256);
  const auto format = table_format(path, config.format);
  const auto advice = fmt::format("; if the targets are the lines of another file, set {}", target_key);
  const auto columns = columns_of(config, advice);
  if (format == TableFormat::jsonl) {
    add_json_pairs(content, columns, table);
  } else {
    for_each_table_row(content, format, columns, table,
                       [&](std::string&& source, std::string&& target, std::int64_t line) {
                         add_pair(std::move(source), std::move(target), line, table);
                       });
  }
  refuse_malformed_table(table, table.all_rows(), config.malformed_limit);
  if (table.pairs.empty()) throw Error(ExitCode::data, path.string() + ": the table has no rows");
  return table;
}

namespace {

struct Lines {
  std::string path, sha256;
  std::vector<std::string> lines;

  std::string place(std::size_t index) const { return fmt::format("{}:{}", path, index + 1); }
};

// Why a line is no text, or "".
std::string defect_of(std::string_view line) {
  if (line.size() > longest_pair_text)
    return fmt::format("the line has {} bytes; at most {} make sense", line.size(), longest_pair_text);
  if (line.find('\0') != std::string_view::npos) return "the line has NUL bytes; a text is UTF-8";
  if (auto why = utf8_defect(line); !why.empty()) return "the line is " + why + "; convert the file to UTF-8";
  return "";
}

Lines read_lines(const std::filesystem::path& path) {
  Lines read{.path = path.string(), .sha256 = {}, .lines = {}};
  const auto content = read_packed_text(path, read.sha256);
  for (std::string_view rest = content; !rest.empty();) {
    throw_if_stopped();
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const auto why = defect_of(line); !why.empty())
      throw Error(ExitCode::data, fmt::format("{}: {}", read.place(read.lines.size()), why));
    read.lines.emplace_back(line);
  }
  return read;
}

void check_counts(const Lines& source, const Lines& target) {
  const auto sources = source.lines.size(), targets = target.lines.size();
  if (sources != targets)
    throw Error(ExitCode::data, fmt::format("{} has {} lines and {} has {}, but each line needs its partner in the "
                                            "other file: line {} of {} has none",
                                            source.path, sources, target.path, targets, 1 + std::min(sources, targets),
                                            sources > targets ? source.path : target.path));
  if (sources == 0) throw Error(ExitCode::data, fmt::format("{} and {} have no lines", source.path, target.path));
}

void refuse_blank(const Lines& read, std::size_t index, const Lines& partner) {
  if (is_blank(read.lines[index]))
    throw Error(ExitCode::data, fmt::format("{}: the line is empty; its partner {} needs a text here, or must go too",
                                            read.place(index), partner.place(index)));
}

}  // namespace

LinePairs read_line_pairs(const std::filesystem::path& source_path, const std::filesystem::path& target_path) {
  auto source = read_lines(source_path), target = read_lines(target_path);
  check_counts(source, target);
  LinePairs read{.pairs = {}, .source_sha256 = source.sha256, .target_sha256 = target.sha256};
  for (std::size_t index = 0; index < source.lines.size(); ++index) {
    refuse_blank(source, index, target);
    refuse_blank(target, index, source);
    read.pairs.push_back(
        {std::move(source.lines[index]), std::move(target.lines[index]), source.place(index), target.place(index)});
  }
  return read;
}

namespace {

struct SplitPaths {
  Split split;
  std::string_view key, target_key;
  const std::optional<PathText>& path;
  const std::optional<PathText>& target_path;

  bool is_table() const { return path && !target_path; }
};

std::array<SplitPaths, 3> paths_of(const ParallelDataConfig& config) {
  return {{{Split::train, "data.path", "data.target_path", config.path, config.target_path},
           {Split::validation, "data.validation_path", "data.validation_target_path", config.validation_path,
            config.validation_target_path},
           {Split::test, "data.test_path", "data.test_target_path", config.test_path, config.test_target_path}}};
}

const PublicCorpus& find_parallel_corpus(const ParallelDataConfig& config) {
  if (config.corpus == ParallelDataConfig().corpus)
    throw Error(
        ExitCode::usage,
        fmt::format("data.path is not set; task {} needs pairs of texts: the lines of two files, such as --set "
                    "data.path=train.de --set data.target_path=train.en, a table of sources and targets (without "
                    "data.target_path), or a corpus: --set data.corpus=multi30k",
                    SequenceToSequenceConfig::kind));
  const auto& corpus = find_public_corpus(config.corpus);
  if (corpus.task != SequenceToSequenceConfig::kind)
    throw Error(ExitCode::usage, fmt::format("data.corpus: {} has no pairs of texts; task {} takes multi30k, or texts "
                                             "that data.path names",
                                             corpus.name, SequenceToSequenceConfig::kind));
  return corpus;
}

void refuse_lone_targets(const ParallelDataConfig& config) {
  for (const auto& paths : paths_of(config))
    if (paths.target_path && !paths.path)
      throw Error(ExitCode::usage,
                  fmt::format("{}: {} has the targets of no sources; set {} to the file of the sources",
                              paths.target_key, in_quotes(*paths.target_path), paths.key));
}

void refuse_other_splits(const ParallelDataConfig& config) {
  for (const auto& paths : paths_of(config))
    if (paths.path)
      throw Error(
          ExitCode::usage,
          fmt::format("{}: {} means nothing beside data.corpus {}, which brings its own splits; leave it out, or "
                      "set data.path in the place of data.corpus",
                      paths.key, in_quotes(*paths.path), config.corpus));
}

// Keys of tables, if no split is one.
void refuse_table_keys(const ParallelDataConfig& config) {
  const auto all = paths_of(config);
  if (std::any_of(all.begin(), all.end(), [](const auto& paths) { return paths.is_table(); })) return;
  const auto data = config.path ? std::string("lines of two files") : config.corpus;
  const auto refuse_if = [&](bool is_set, std::string_view key, const std::string& value) {
    if (is_set)
      throw Error(ExitCode::usage,
                  fmt::format("{}: {} means nothing for {}: it is for tables, which have no target path", key,
                              in_quotes(value), data));
  };
  const ParallelDataConfig usual;
  refuse_if(config.format != usual.format, "data.format", std::string(to_string(config.format)));
  refuse_if(config.header != usual.header, "data.header", std::string(to_string(config.header)));
  refuse_if(config.source_field != usual.source_field, "data.source_field", config.source_field);
  refuse_if(config.target_field != usual.target_field, "data.target_field", config.target_field);
  refuse_if(config.malformed_limit != usual.malformed_limit, "data.malformed_limit",
            fmt::format("{}", config.malformed_limit));
}

void report(const PairTable& table) {
  const ParallelDataConfig usual;
  if (table.has_guessed_columns)
    log::warning("{}: no header with '{}' and '{}'; taking column 1 as the source and column 2 as the target",
                 table.path.string(), usual.source_field, usual.target_field);
  report_malformed(table, table.all_rows());
}

void add_lines(const std::string& source, const std::string& target, Split split, PairSplits& splits) {
  auto read = read_line_pairs(source, target);
  splits.description[to_string(split)] = {{"path", source},
                                          {"sha256", read.source_sha256},
                                          {"target_path", target},
                                          {"target_sha256", read.target_sha256},
                                          {"pairs", read.pairs.size()}};
  splits[split] = std::move(read.pairs);
}

void add_table(const SplitPaths& paths, ParallelDataConfig config, PairSplits& splits) {
  const auto format = table_format(*paths.path, config.format);
  if (splits.description.contains("train"))
    config.header = header_beside(splits.description["train"], config.header, format);
  auto table = read_pair_table(*paths.path, config, paths.target_key);
  report(table);
  splits.description[to_string(paths.split)] = {{"path", *paths.path},
                                                {"sha256", table.sha256},
                                                {"pairs", table.pairs.size()},
                                                {"malformed", table.malformed.size()}};
  describe_header(splits.description[to_string(paths.split)], table, format);
  splits[paths.split] = std::move(table.pairs);
}

[[noreturn]] void refuse_one_sided_split(const PairSplits& splits, const ParallelDataConfig& config) {
  std::set<std::string_view> distinct;
  for (const auto& pairs : splits.pairs)
    for (const auto& pair : pairs) distinct.insert(pair.source);
  throw Error(ExitCode::data,
              fmt::format("{}: {} distinct sources are too few for data.validation_fraction {} to leave some on either "
                          "side; set data.validation_path",
                          *config.path, distinct.size(), config.validation_fraction));
}

// Moves a part of the training pairs to the validation split.
void hold_out(const ParallelDataConfig& config, PairSplits& splits) {
  auto all = std::exchange(splits[Split::train], {});
  for (auto& pair : all) {
    const bool held_out = is_held_out(pair.source, config.validation_fraction);
    splits[held_out ? Split::validation : Split::train].push_back(std::move(pair));
  }
  if (splits[Split::train].empty() || splits[Split::validation].empty()) refuse_one_sided_split(splits, config);
  splits.description["train"]["pairs"] = splits[Split::train].size();
  auto description = splits.description["train"];
  description["pairs"] = splits[Split::validation].size();
  description.erase("malformed");
  splits.description["validation"] = std::move(description);
}

PairSplits load_files(const ParallelDataConfig& config) {
  refuse_table_keys(config);
  PairSplits splits;
  for (const auto& paths : paths_of(config)) {
    if (paths.is_table()) add_table(paths, config, splits);
    if (paths.target_path) add_lines(*paths.path, *paths.target_path, paths.split, splits);
    if (paths.split == Split::train && !config.validation_path) hold_out(config, splits);
  }
  return splits;
}

void check_languages(const ParallelDataConfig& config) {
  const auto &source = config.source_language, &target = config.target_language;
  const auto is_known = [](const std::string& language) { return language == "de" || language == "en"; };
  const auto fail = [&](std::string_view key, const std::string& value) {
    throw Error(ExitCode::usage, fmt::format("{}: {}, but the languages of {} are 'de' and 'en', one for "
                                             "data.source_language and the other for data.target_language",
                                             key, in_quotes(value), config.corpus));
  };
  if (!is_known(source)) fail("data.source_language", source);
  if (!is_known(target) || source == target) fail("data.target_language", target);
}

PairSplits load_multi30k(const ParallelDataConfig& config, bool offline) {
  const auto& corpus = find_parallel_corpus(config);
  refuse_other_splits(config);
  refuse_table_keys(config);
  check_languages(config);
  const auto folder = obtain_corpus(corpus, offline);
  check_corpus_files(corpus, folder);
  PairSplits splits;
  splits.description = {{"corpus", corpus.name},
                        {"source_language", config.source_language},
                        {"target_language", config.target_language}};
  const auto file = [&](const char* name, const std::string& language) {
    return (folder / fmt::format("{}.{}.gz", name, language)).string();
  };
  for (const auto& [split, name] : {std::pair(Split::train, "train"), std::pair(Split::validation, "val"),
                                    std::pair(Split::test, "test_2016_flickr")})
    add_lines(file(name, config.source_language), file(name, config.target_language), split, splits);
  return splits;
}

}  // namespace

PairSplits load_pair_splits(const ParallelDataConfig& config, bool offline) {
  refuse_lone_targets(config);
  return config.path ? load_files(config) : load_multi30k(config, offline);
}

std::string joined_texts(const std::vector<TextPair>& pairs) {
  std::string all;
  for (const auto& pair : pairs) all += pair.source + '\n' + pair.target + '\n';
  return all;
}

}  // namespace metaformer
