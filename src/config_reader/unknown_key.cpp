#include "config_reader/unknown_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "config_reader/key_notation.h"
#include "config_reader/key_suggestions.h"
#include "config_reader/moved_keys.h"

namespace metaformer {

namespace {

struct Moved {
  const Location& where;
  const ConfigNode& value;
  std::string path;
  std::vector<MovedKey> rows;
};

// The first old key in an unknown one.
std::optional<Moved> find_moved(const ConfigKey& key, const ConfigNode& value, const std::string& path) {
  auto rows = find_moved_keys(path);
  if (rows.empty()) return std::nullopt;
  for (const auto& [inner_key, inner] : value.entries)
    if (auto moved = find_moved(inner_key, inner, path + "." + inner_key.name)) return moved;
  const bool is_key_of_other_kind = kinds_with(path).has_value();
  return is_key_of_other_kind ? std::nullopt : std::optional(Moved{key.location, value, path, std::move(rows)});
}

// The arguments that set the new key, and its kind where the config does not have it yet.
std::string overrides_for(const Moved& moved, const std::vector<KindCondition>& unmet) {
  std::vector<std::string> keys;
  const auto& value = moved.rows.size() == 1 ? moved.value : ConfigNode{};
  for (const auto& row : moved.rows) keys.push_back(as_override(row.to, value));
  auto text = join_alternatives(keys);
  const auto& kind = moved.rows.front().kind;
  for (const auto& [section, kinds] : unmet)
    if (kind.starts_with(section + ": "))
      text = fmt::format("--set {}={} {}", section, kind.substr(section.size() + 2), text);
  return text;
}

std::string describe(const Moved& moved, const ExperimentConfig& config) {
  const auto& row = moved.rows.front();
  const auto unmet = unmet_conditions(std::string(row.to), config);
  auto text =
      "moved; write " + (is_override(moved.where) ? overrides_for(moved, unmet) : describe_new_keys(moved.rows));
  for (const auto& condition : unmet)
    if (!row.kind.starts_with(condition.section + ": ")) return fmt::format("{}; {} it", text, only_have(condition));
  return text;
}

// An argument "--set KEY=..." names the key already.
std::string place_of(const Moved& moved) {
  const auto where = moved.where.str();
  return where.starts_with("--set " + moved.path + "=") ? where : where + ": " + printable(moved.path);
}

std::string describe_dots(const UnknownKey& unknown) {
  const auto& path = unknown.path;
  if (is_override(unknown.key.location))
    return "a key in braces has no dots; write " + escaped(as_override(path, unknown.value));
  return "a key in a file has no dots; write " +
         escaped(as_yaml(section_of(path), fmt::format("{}: ...", last_part(path))));
}

std::string describe_unknown(const UnknownKey& unknown) {
  const auto& [key, value, path, context, known] = unknown;
  if (const auto kinds = kinds_with(path)) return fmt::format("unknown key{}; {} it", context, only_have(*kinds));
  if (const auto suggestion = suggest_key(path, known); !suggestion.empty()) return "unknown key" + suggestion;
  if (known.empty()) return fmt::format("unknown key{} (no keys here)", context);
  return fmt::format("unknown key{} (keys here: {})", context, fmt::join(known, ", "));
}

}  // namespace

void refuse_unknown_key(const UnknownKey& unknown, const ExperimentConfig& config) {
  const auto& [key, value, path, context, known] = unknown;
  if (const auto moved = find_moved(key, value, path))
    throw Error(ExitCode::usage, fmt::format("{}: {}", place_of(*moved), describe(*moved, config)));
  constexpr std::size_t longest = 60;  // no longer one is a nested key
  const bool has_dots = key.name.find('.') != std::string::npos && path.size() <= longest;
  throw Error(ExitCode::usage, fmt::format("{}: {}: {}", key.location.str(), printable(path),
                                           has_dots ? describe_dots(unknown) : describe_unknown(unknown)));
}

}  // namespace metaformer
