#pragma once
// Tables read from a text, and what became of their rows.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "data/labelled_source.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer {

using Texts = std::vector<std::string>;

inline LabelledDataConfig columns(const std::string& text, const std::string& label, double malformed_limit = 0) {
  LabelledDataConfig config;
  config.text_field = text;
  config.label_field = label;
  config.malformed_limit = malformed_limit;
  return config;
}

inline LabelledDataConfig tolerant() { return columns("text", "label", 1); }

inline LabelledDataConfig of_format(TableFormat format) {
  LabelledDataConfig config;
  config.format = format;
  return config;
}

inline LabelledTable read_text(const std::string& name, const std::string& content,
                               const LabelledDataConfig& config = {}) {
  const TemporaryFolder folder;
  return read_labelled_table(folder.write(name, content), config);
}

// "LINE LABEL TEXT" of every row.
inline Texts rows_of(const LabelledTable& table) {
  Texts rows;
  for (const auto& row : table.rows) rows.push_back(fmt::format("{} {} {}", row.line, row.label, row.text));
  return rows;
}

// "LINE WHY" of every malformed row.
inline Texts malformed_of(const LabelledTable& table) {
  Texts malformed;
  for (const auto& row : table.malformed) malformed.push_back(fmt::format("{} {}", row.line, row.why));
  return malformed;
}

// The message of a data error, after the path of the file.
inline std::string refusal(const std::string& name, const std::string& content, const LabelledDataConfig& config = {}) {
  const TemporaryFolder folder;
  const auto path = folder.write(name, content);
  const auto [code, message] = failure([&] { read_labelled_table(path, config); });
  CHECK(code == ExitCode::data);
  REQUIRE(message.starts_with(path.string()));
  CHECK(message.find('\n') == std::string::npos);
  return message.substr(path.string().size());
}

}  // namespace metaformer
