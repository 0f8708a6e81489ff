#include "data/labelled_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "data/corpus.h"
#include "data/imdb.h"
#include "data/tables.h"

namespace metaformer {

namespace {

void require_rows(const LabelledTable& table, double malformed_limit) {
  refuse_malformed_table(table, table.all_rows(), malformed_limit);
  if (!table.rows.empty()) return;
  throw Error(ExitCode::data,
              table.left_out == 0
                  ? table.path.string() + ": the table has no rows"
                  : fmt::format("{}: all {} ratings lie between data.rating.negative_to and data.rating.positive_from",
                                table.path.string(), table.left_out));
}

// A number as a label: whole ones without a fraction, others as short as they can be read back from.
std::string number_label(double value) {
  constexpr double exact = 0x1p53;
  if (value == std::trunc(value) && std::abs(value) < exact) return std::to_string(static_cast<std::int64_t>(value));
  return fmt::format("{}", value);
}

std::optional<std::string> as_label(const nlohmann::json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_float()) return number_label(value.get<double>());
  if (value.is_number()) return value.dump();
  return {};
}

// A header that is read as a row would add a class. Not checked if data.header or data.rating is set.
void refuse_header_as_row(const LabelledTable& table, const LabelledDataConfig& config) {
  constexpr std::size_t fewest = 5;
  if (table.has_header || config.header != TableHeader::automatic || config.rating.positive_from) return;
  if (table.rows.size() < fewest) return;
  std::map<std::string_view, int> counts;
  for (const auto& row : table.rows) ++counts[row.label];
  // Its label occurs only once, while every other label is repeated.
  const auto& first = table.rows.front();
  const auto singles = std::count_if(counts.begin(), counts.end(), [](const auto& entry) { return entry.second == 1; });
  if (singles != 1 || counts[first.label] != 1) return;
  throw Error(ExitCode::data,
              fmt::format("{}:{}: looks like a header: no other row has the label {}. Name its columns by "
                          "data.text_field and data.label_field, or set data.header to present or absent",
                          table.path.string(), first.line, in_quotes(first.label)));
}

}  // namespace

TableColumns columns_of(const LabelledDataConfig& config) {
  const LabelledDataConfig usual;
  return {.first = {config.text_field, "data.text_field", "text"},
          .second = {config.label_field, "data.label_field", "label"},
          .are_usual = config.text_field == usual.text_field && config.label_field == usual.label_field,
          .header = config.header};
}

void add_json_lines(std::string_view content, const LabelledDataConfig& config, const std::string& source,
                    TableBuilder& builder) {
  const auto &text_field = config.text_field, &label_field = config.label_field;
  check_json_columns(columns_of(config), source);
  const auto refuse = [&](std::int64_t line, std::string why) { builder.refuse(line, std::move(why)); };
  const auto use = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
    auto& text = *members[0];
    if (auto why = defect_of_text_member(text, text_field); !why.empty()) return refuse(line, std::move(why));
    const auto label = as_label(*members[1]);
    if (!label)
      return refuse(line, fmt::format("{} is {}; a label is a string, a number, true or false", in_quotes(label_field),
                                      members[1]->type_name()));
    builder.add(std::move(text.get_ref<std::string&>()), *label, line);
  };
  for_each_json_object(content, {text_field, label_field}, source, use, refuse);
}

LabelledTable read_labelled_table(const std::filesystem::path& path, const LabelledDataConfig& config) {
  LabelledTable table;
  table.path = path;
  const auto content = read_packed_text(path, table.sha256);
  const auto format = table_format(path, config.format);
  TableBuilder builder(table, config);
  if (format == TableFormat::jsonl) {
    add_json_lines(content, config, path.string(), builder);
  } else {
    const auto use = [&](std::string&& text, std::string&& label, std::int64_t line) {
      builder.add(std::move(text), label, line);
    };
    for_each_table_row(content, format, columns_of(config), table, use);
  }
  require_rows(table, config.malformed_limit);
  if (format != TableFormat::jsonl) refuse_header_as_row(table, config);
  return table;
}

LabelledTable read_text_table(std::string content, const std::filesystem::path& path, TableFormat format,
                              TableColumns columns) {
  LabelledTable table;
  table.path = path;
  table.sha256 = sha256(content);
  content = unpacked_text(std::move(content), path);
  const LabelledDataConfig no_ratings;
  TableBuilder builder(table, no_ratings, Labels::none, columns.longest_text);
  columns.needs_second = false;
  format = table_format(path, format);
  if (format != TableFormat::jsonl) {
    for_each_table_row(content, format, columns, table, [&](std::string&& text, std::string&&, std::int64_t line) {
      builder.add(std::move(text), "", line);
    });
    return table;
  }
  check_json_columns(columns, path.string());
  const auto refuse = [&](std::int64_t line, std::string why) { builder.refuse(line, std::move(why)); };
  const auto use = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
    auto& text = *members[0];
    if (auto why = defect_of_text_member(text, columns.first.field); !why.empty()) return refuse(line, std::move(why));
    builder.add(std::move(text.get_ref<std::string&>()), "", line);
  };
  for_each_json_object(content, {columns.first.field}, path.string(), use, refuse);
  return table;
}

namespace {

void report(const LabelledTable& table) {
  if (table.has_guessed_columns)
    log::warning("{}: no header with 'text' and 'label'; taking column 1 as the text and column 2 as the label",
                 table.path.string());
  if (table.left_out > 0)
    log::info("{}: {} of {} ratings lie between data.rating.negative_to and data.rating.positive_from and are left out",
              table.path.string(), table.left_out, table.all_rows());
  report_malformed(table, table.all_rows());
}

std::vector<LabelledText> read_table(const std::string& path, LabelledDataConfig config, const std::string& name,
                                     nlohmann::ordered_json& description) {
  const auto format = table_format(path, config.format);
  if (description.contains("train")) config.header = header_beside(description["train"], config.header, format);
  auto table = read_labelled_table(path, config);
  report(table);
  description[name] = {{"path", path},
                       {"sha256", table.sha256},
                       {"rows", table.rows.size()},
                       {"malformed", table.malformed.size()},
                       {"left_out", table.left_out}};
  describe_header(description[name], table, format);
  std::vector<LabelledText> texts;
  for (auto& row : table.rows)
    texts.push_back({std::move(row.text), std::move(row.label), fmt::format("{}:{}", path, row.line)});
  return texts;
}

[[noreturn]] void refuse_one_sided_split(const LabelledSplits& splits, const LabelledDataConfig& config) {
  std::set<std::string_view> distinct;
  for (const auto& texts : splits.texts)
    for (const auto& text : texts) distinct.insert(text.text);
  throw Error(ExitCode::data,
              fmt::format("{}: {} distinct texts are too few for data.validation_fraction {} to leave some on either "
                          "side; set data.validation_path, or look whether column {} holds the texts",
                          *config.path, distinct.size(), config.validation_fraction, in_quotes(config.text_field)));
}

bool names_public_corpus(const LabelledDataConfig& config) { return config.corpus != LabelledDataConfig().corpus; }

std::filesystem::path locate_public_corpus(const LabelledDataConfig& config, bool offline) {
  const auto& corpus = find_public_corpus(config.corpus);
  if (corpus.task != ClassificationConfig::kind)
    throw Error(ExitCode::usage,
                fmt::format("data.corpus: {} has no labels; task classification takes imdb, or a table "
                            "that data.path names",
                            corpus.name));
  if (config.validation_path || config.test_path)
    throw Error(ExitCode::usage, fmt::format("data.{}: {} brings its own splits",
                                             config.validation_path ? "validation_path" : "test_path", corpus.name));
  if (config.rating.positive_from)
    throw Error(ExitCode::usage, fmt::format("data.rating.positive_from: {} brings its own classes", corpus.name));
  return config.path ? std::filesystem::path(*config.path) : obtain_corpus(corpus, offline);
}

}  // namespace

bool is_held_out(const std::string& key, double fraction) {
  return static_cast<double>(Rng::mix(hash_name(key)) >> 11) * 0x1p-53 < fraction;
}

static std::vector<LabelledSource> tables(const LabelledDataConfig& config) {
  if (!config.path)
    throw Error(
        ExitCode::usage,
        "data.path is not set; task classification needs a CSV, TSV or JSON-lines table with texts and labels, such as "
        "--set data.path=reviews.csv, or a corpus: --set data.corpus=imdb");
  std::vector<LabelledSource> sources = {{"train", *config.path}};
  if (config.validation_path) sources.push_back({"validation", *config.validation_path});
  if (config.test_path) sources.push_back({"test", *config.test_path});
  return sources;
}

std::vector<LabelledSource> labelled_sources(const LabelledDataConfig& config, bool offline) {
  auto sources = names_public_corpus(config)
                     ? std::vector<LabelledSource>{{"train", locate_public_corpus(config, offline)}}
                     : tables(config);
  if (config.extra_path) sources.push_back({"extra", *config.extra_path});
  return sources;
}

// Texts of the held-out splits are left out: a model must not learn what it is measured by.
static void add_extra_texts(const LabelledDataConfig& config, LabelledSplits& splits) {
  std::unordered_set<std::string_view> held_out;
  for (const auto split : held_out_splits)
    for (const auto& text : splits[split]) held_out.insert(text.text);
  std::set<std::string> labels;
  for (const auto& text : splits[Split::train]) labels.insert(text.label);
  std::int64_t copies = 0;
  for (auto& text : read_table(*config.extra_path, config, "extra", splits.description)) {
    if (!labels.contains(text.label))
      throw Error(ExitCode::data, fmt::format("{}: data.extra_path: the label {} is none of the training texts': {}",
                                              text.place, in_quotes(text.label), fmt::join(labels, ", ")));
    if (held_out.contains(text.text))
      ++copies;
    else
      splits[Split::train].push_back(std::move(text));
  }
  splits.description["extra"]["copies_of_held_out"] = copies;
  if (copies > 0)
    log::warning("{}: {} texts also stand in the validation or test split and are left out", *config.extra_path,
                 copies);
}

static LabelledSplits load_tables(const LabelledDataConfig& config) {
  LabelledSplits splits;
  auto texts = read_table(*config.path, config, "train", splits.description);
  if (config.validation_path) {
    splits[Split::train] = std::move(texts);
    splits[Split::validation] = read_table(*config.validation_path, config, "validation", splits.description);
  } else {
    for (auto& text : texts) {
      const bool held_out = is_held_out(text.text, config.validation_fraction);
      splits[held_out ? Split::validation : Split::train].push_back(std::move(text));
    }
  }
  if (config.test_path) splits[Split::test] = read_table(*config.test_path, config, "test", splits.description);
  if (splits[Split::train].empty() || splits[Split::validation].empty()) refuse_one_sided_split(splits, config);
  return splits;
}

LabelledSplits load_labelled_splits(const LabelledDataConfig& config, bool offline) {
  const auto sources = labelled_sources(config, offline);
  auto splits = names_public_corpus(config) ? load_imdb(sources.front().path, config) : load_tables(config);
  if (config.extra_path) add_extra_texts(config, splits);
  return splits;
}

std::string joined_texts(const std::vector<LabelledText>& texts) {
  std::string all;
  for (const auto& text : texts) {
    all += text.text;
    all += '\n';
  }
  return all;
}

}  // namespace metaformer
