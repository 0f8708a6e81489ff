#include "config/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "config/explain.h"
#include "config/writer.h"
#include "config/yaml.h"

namespace metaformer {

namespace {

bool is_integer(Spread spread) { return spread == Spread::uniform_integer || spread == Spread::log_uniform_integer; }
bool is_logarithmic(Spread spread) { return spread == Spread::log_uniform || spread == Spread::log_uniform_integer; }

[[noreturn]] void fail(const Location& where, const std::string& key, const std::string& why) {
  throw Error(ExitCode::usage, fmt::format("{}: {}: {}", where.str(), key, why));
}

std::set<std::string> known_keys() {
  std::set<std::string> keys;
  for (const auto& field : explain_config()) {
    keys.insert(field.path);
    if (!field.kinds.empty()) keys.insert(field.path + ".kind");
  }
  return keys;
}

// Integers also as 1e3, as everywhere in configs.
double read_number(const ConfigNode& node, Spread spread, const std::string& key) {
  std::int64_t whole = 0;
  if (node.kind == ConfigNode::Kind::scalar && is_integer(spread)) {
    if (parse_whole_number(node.scalar, whole) == WholeNumber::valid) return static_cast<double>(whole);
    fail(node.location, key, fmt::format("expected a whole number, got {}", node.describe()));
  }
  const auto& text = node.scalar;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = node.kind == ConfigNode::Kind::scalar && error == std::errc() &&
                         end == text.data() + text.size() && std::isfinite(value);
  if (!is_number) fail(node.location, key, fmt::format("expected a number, got {}", node.describe()));
  return value;
}

void read_bounds(const ConfigNode& node, SearchDimension& dimension) {
  if (node.kind != ConfigNode::Kind::sequence || node.items.size() != 2)
    fail(node.location, dimension.key,
         fmt::format("expected two bounds, [low, high], got {}", node.kind == ConfigNode::Kind::sequence
                                                                     ? fmt::format("{} values", node.items.size())
                                                                     : node.describe()));
  dimension.low = read_number(node.items[0], dimension.spread, dimension.key);
  dimension.high = read_number(node.items[1], dimension.spread, dimension.key);
  if (dimension.low > dimension.high)
    fail(node.location, dimension.key, fmt::format("the lower bound {} is above {}", dimension.low, dimension.high));
  if (is_logarithmic(dimension.spread) && dimension.low <= 0)
    fail(node.location, dimension.key, fmt::format("a logarithm needs bounds above 0, and {} is not", dimension.low));
}

void read_choices(const ConfigNode& node, SearchDimension& dimension) {
  if (node.kind != ConfigNode::Kind::sequence || node.items.empty())
    fail(node.location, dimension.key,
         fmt::format("expected a list of values, got {}",
                     node.kind == ConfigNode::Kind::sequence ? "an empty list" : node.describe()));
  for (const auto& item : node.items) {
    if (item.kind != ConfigNode::Kind::scalar && item.kind != ConfigNode::Kind::null)
      fail(item.location, dimension.key, fmt::format("expected a plain value, got {}", item.describe()));
    if (item.scalar.find_first_of(" \t\n*?[") != std::string::npos)
      fail(item.location, dimension.key,
           fmt::format("{}: a shell would split or expand it; expected a value without blanks, *, ? and [",
                       in_quotes(item.scalar)));
    dimension.choices.push_back(item.kind == ConfigNode::Kind::null ? "null" : item.scalar);
  }
}

SearchDimension read_dimension(const ConfigEntry& entry) {
  SearchDimension dimension{.key = entry.key.name};
  const auto& node = entry.value;
  if (node.kind != ConfigNode::Kind::map || node.entries.size() != 1)
    fail(node.location, dimension.key,
         fmt::format(
             "expected one distribution, such as {{uniform: [0, 1]}}, got {}",
             node.kind == ConfigNode::Kind::map ? fmt::format("{} keys", node.entries.size()) : node.describe()));
  const auto& [key, value] = node.entries.front();
  const auto& name = key.name;
  const auto names = names_of<Spread>();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    fail(key.location, dimension.key,
         fmt::format("{}: no such distribution; expected {}", in_quotes(name), join_alternatives(names)));
  dimension.spread = static_cast<Spread>(found - names.begin());
  dimension.spread == Spread::choice ? read_choices(value, dimension) : read_bounds(value, dimension);
  return dimension;
}

// The number itself where four digits of it lie outside the bounds.
std::string rounded(double value, const SearchDimension& dimension) {
  const auto text = fmt::format("{:.4g}", value);
  const double read = std::stod(text);
  return yaml_value(read >= dimension.low && read <= dimension.high ? read : value);
}

double between(double low, double high, double fraction, bool is_logarithmic) {
  if (is_logarithmic) return std::exp(between(std::log(low), std::log(high), fraction, false));
  return low + (high - low) * fraction;
}

std::string draw_value(const SearchDimension& dimension, const Rng& random, std::uint64_t index) {
  const auto spread = dimension.spread;
  const auto low = dimension.low, high = dimension.high;
  if (spread == Spread::choice) return dimension.choices[random.below(index, dimension.choices.size())];
  const double fraction = random.uniform(index);
  const auto value = [&](double above) { return between(low, high + above, fraction, is_logarithmic(spread)); };
  // An integer stands for what rounds down to it.
  if (is_integer(spread)) return fmt::format("{:.0f}", std::clamp(std::floor(value(1)), low, high));
  return rounded(std::clamp(value(0), low, high), dimension);
}

}  // namespace

std::vector<SearchDimension> read_search_space(const std::filesystem::path& file) {
  const auto root = read_yaml_file(file);
  const auto keys = known_keys();
  std::vector<SearchDimension> space;
  for (const auto& entry : root.entries) {
    if (!keys.contains(entry.key.name))
      fail(entry.key.location, entry.key.name,
           "no such config key" + did_you_mean(entry.key.name, {keys.begin(), keys.end()}));
    space.push_back(read_dimension(entry));
  }
  if (space.empty())
    throw Error(ExitCode::usage, fmt::format("{}: the space is empty; expected keys with distributions, such as "
                                             "train.learning_rate: {{log_uniform: [1e-4, 1e-2]}}",
                                             file.string()));
  return space;
}

std::vector<std::pair<std::string, std::string>> draw(const std::vector<SearchDimension>& space, std::uint64_t seed,
                                                      std::uint64_t index) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const auto& dimension : space) {
    const auto random = Rng::with_key(Rng::mix(Rng::mix(seed) ^ hash_name("search space: " + dimension.key)));
    values.emplace_back(dimension.key, draw_value(dimension, random, index));
  }
  return values;
}

}  // namespace metaformer
