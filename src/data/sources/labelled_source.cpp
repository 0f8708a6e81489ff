#include "data/sources/labelled_source.h"

#include <fmt/format.h>

#include <set>

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
  if (table.malformed.empty()) return;
  const auto& first = table.malformed.front();
  log::warning("{}: {} of {} rows ({:.2g}%) are malformed and left out; the first is line {}: {}", table.path.string(),
               table.malformed.size(), table.all_rows(),
               100 * static_cast<double>(table.malformed.size()) / static_cast<double>(table.all_rows()), first.line,
               first.why);
}

std::vector<LabelledText> read_table(const std::string& path, const LabelledDataConfig& config, const std::string& name,
                                     nlohmann::ordered_json& description) {
  auto table = read_labelled_table(path, config);
  report(table);
  description[name] = {{"path", path},
                       {"sha256", table.sha256},
                       {"rows", table.rows.size()},
                       {"malformed", table.malformed.size()},
                       {"left_out", table.left_out}};
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

std::vector<LabelledSource> labelled_sources(const LabelledDataConfig& config, bool offline) {
  if (names_public_corpus(config)) return {{"train", locate_public_corpus(config, offline)}};
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

LabelledSplits load_labelled_splits(const LabelledDataConfig& config, bool offline) {
  const auto sources = labelled_sources(config, offline);
  if (names_public_corpus(config)) return load_imdb(sources.front().path, config);
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

std::string joined_texts(const std::vector<LabelledText>& texts) {
  std::string all;
  for (const auto& text : texts) {
    all += text.text;
    all += '\n';
  }
  return all;
}

}  // namespace metaformer
