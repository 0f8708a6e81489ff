#pragma once
// YAML as a tree of plain values, each with the place where it was written, for error messages.

#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace metaformer {

// Where a value came from: a file with line and column (1-based), or a command-line argument (line 0).
struct Location {
  std::string source = "default";
  int line = 0;
  int column = 0;
  std::string str() const;  // "configs/a.yaml:4:3" or "--set train.steps=0"
};

// Throws an Error (exit code 2): "PLACE: what".
template <class... Values>
[[noreturn]] void fail_at(const Location& where, fmt::format_string<Values...> what, Values&&... values) {
  throw Error(ExitCode::usage, where.str() + ": " + fmt::format(what, std::forward<Values>(values)...));
}

// The place where the value of each key was written. A key is "train.steps", or "model.mixer.kind" for a kind. Keys
// that no source has set are absent.
using Provenance = std::map<std::string, Location>;

struct ConfigKey {
  std::string name;
  Location location;
};

struct ConfigEntry;

struct ConfigNode {
  enum class Kind { null, scalar, sequence, map };
  Kind kind = Kind::null;
  bool is_missing = false;  // a null that is not written: "key:" or --set key=
  std::string scalar;
  std::vector<ConfigNode> items;     // of a sequence
  std::vector<ConfigEntry> entries;  // of a map, in the order written, no name twice
  Location location;

  const ConfigNode* find(std::string_view name) const;  // in a map; nullptr when absent
  std::string describe() const;  // "'text'", "a list of 2", "a section of 3 keys", "null", "nothing"
  bool is_empty() const { return kind == Kind::null ? is_missing : kind == Kind::scalar && scalar.empty(); }
};

struct ConfigEntry {
  ConfigKey key;
  ConfigNode value;
};

// The tag of a scalar in which \xff stands for a byte and \\ for a backslash: a path need not be UTF-8, but YAML must
// be.
constexpr std::string_view escaped_tag = "!escaped";

// Throws an Error (exit code 2): "PLACE: KEY: expected EXPECTED, got 'text'".
[[noreturn]] void fail_type(const ConfigNode& node, const std::string& key, const std::string& expected);

// Parses one YAML document. Errors (exit code 2) name `source`, line and column: bad syntax, a key twice, more than one
// document, nesting deeper than 32, more than 10,000 values (aliases expanded). An empty document is null.
ConfigNode parse_yaml(const std::string& text, const std::string& source);

// Reads and parses a file of at most 1 MiB whose top level is a map, which may be {}. Errors: exit code 2.
ConfigNode read_yaml_file(const std::filesystem::path& path);

// One source from "a.b.c=value" arguments. Values are YAML. `mixer=metric` can be combined with `mixer.score_std=0.3`,
// and a list with `mixer.0.layers=2`. Errors: exit code 2.
ConfigNode tree_from_overrides(const std::vector<std::string>& overrides);

}  // namespace metaformer
