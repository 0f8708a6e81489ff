#include "data/labelled_source.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"
#include "core/random.h"
#include "data/labelled_table.h"

namespace metaformer {

namespace {

void report(const LabelledTable& table) {
  if (!table.has_header) log::info("{}: no header; the text is column 1, the label column 2", table.path.string());
  if (table.malformed.empty()) return;
  const auto& first = table.malformed.front();
  log::warning("{}: {} of {} rows are malformed and left out; the first is line {}: {}", table.path.string(),
               table.malformed.size(), table.malformed.size() + table.rows.size(), first.line, first.why);
}

std::vector<LabelledText> read_table(const std::string& path, const DataConfig& config, const std::string& name,
                                     nlohmann::ordered_json& description) {
  auto table = read_labelled_table(path, config);
  report(table);
  description[name] = {
      {"path", path}, {"sha256", table.sha256}, {"rows", table.rows.size()}, {"malformed", table.malformed.size()}};
  std::vector<LabelledText> texts;
  for (auto& row : table.rows)
    texts.push_back({std::move(row.text), std::move(row.label), fmt::format("{}:{}", path, row.line)});
  return texts;
}

bool is_held_out(const std::string& text, double fraction) {
  return static_cast<double>(Rng::mix(hash_name(text)) >> 11) * 0x1p-53 < fraction;
}

}  // namespace

LabelledSplits load_labelled_splits(const DataConfig& config) {
  if (!config.path)
    throw Error(ExitCode::usage,
                "data.path is not set; task classification needs a CSV or TSV table with texts and "
                "labels, such as --set data.path=reviews.csv");
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
  for (const auto split : {Split::train, Split::validation})
    if (splits[split].empty())
      throw Error(ExitCode::data, fmt::format("{}: data.validation_fraction {} leaves the {} split without a row",
                                              *config.path, config.validation_fraction, to_string(split)));
  return splits;
}

}  // namespace metaformer
