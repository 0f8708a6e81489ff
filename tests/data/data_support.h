#pragma once
// Reading of tables from strings, and gzipped files.

#include <fmt/format.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "data/labelled.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/own_cache.h"

namespace metaformer {

using Texts = std::vector<std::string>;

// Compressed by zlib's file functions, in the format of gzip.
inline std::string gzip(const std::string& content) {
  const TemporaryFolder folder;
  const auto path = folder / "compressed.gz";
  auto* file = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(file, content.data(), static_cast<unsigned>(content.size())) == static_cast<int>(content.size()));
  REQUIRE(gzclose(file) == Z_OK);
  return read_text(path);
}

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

inline Table read_text(const std::string& name, const std::string& content, const LabelledDataConfig& config = {}) {
  const TemporaryFolder folder;
  return read_labelled_table(folder.write(name, content), config);
}

// "LINE LABEL TEXT" of every row, or "LINE  TEXT" if only texts were read.
inline Texts rows_of(const Table& table) {
  Texts rows;
  for (const auto& [line, fields] : table.rows)
    rows.push_back(fmt::format("{} {} {}", line, fields.size() > 1 ? fields[1] : "", fields[0]));
  return rows;
}

// "LINE WHY" of every malformed row.
inline Texts malformed_of(const Table& table) {
  Texts malformed;
  for (const auto& row : table.malformed) malformed.push_back(fmt::format("{} {}", row.line, row.why));
  return malformed;
}

// Checks that each malformed row mentions its expected parts (Mentions), which begin with its line.
inline void check_malformed(const Table& table, const Texts& expected) {
  const auto malformed = malformed_of(table);
  REQUIRE(malformed.size() == expected.size());
  for (std::size_t i = 0; i < malformed.size(); ++i)
    CHECK_THAT("line " + malformed[i], Mentions("line " + expected[i]));
}

// The message of a data error, after the path of the file.
inline std::string refusal(const std::string& name, const std::string& content, const LabelledDataConfig& config = {}) {
  const TemporaryFolder folder;
  const auto path = folder.write(name, content);
  const auto message = message_of(ExitCode::data, [&] { read_labelled_table(path, config); });
  REQUIRE(message.starts_with(path.string()));
  CHECK(message.find('\n') == std::string::npos);
  return message.substr(path.string().size());
}

}  // namespace metaformer
