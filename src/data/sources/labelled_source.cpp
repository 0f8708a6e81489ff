#include "data/sources/labelled_source.h"

#include <fmt/format.h>

#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "data/sources/corpus.h"
#include "data/sources/imdb.h"
#include "data/sources/labelled_table.h"

namespace metaformer {

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
