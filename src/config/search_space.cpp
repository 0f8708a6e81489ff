#include "config/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/random.h"
#include "base/text.h"
#include "config/explain.h"
#include "config/writer.h"
#include "config/yaml.h"

namespace metaformer {

namespace {

bool is_integer(Spread spread) { return spread == Spread::uniform_integer || spread == Spread::log_uniform_integer; }
bool is_logarithmic(Spread spread) { return spread == Spread::log_uniform || spread == Spread::log_uniform_integer; }

std::set<std::string> known_keys() {
  std::set<std::string> keys;
  for (const auto& field : explain_config()) {
    keys.insert(field.path);
    if (!field.kinds.empty()) keys.insert(field.path + ".kind");
  }
  return keys;
}

using Kind = ConfigNode::Kind;

// Integers may be written as 1e3, as everywhere in configs.
double read_number(const ConfigNode& node, const SearchDimension& dimension) {
  const bool whole = is_integer(dimension.spread);
  std::int64_t integer = 0;
  if (whole && parse_whole_number(node.scalar, integer) == WholeNumber::valid) return static_cast<double>(integer);
  const auto value = as_number<double>(node.scalar);  // empty if the node is not a scalar
  if (whole || !value || !std::isfinite(*value)) fail_type(node, dimension.key, whole ? "a whole number" : "a number");
  return *value;
}

void read_bounds(const ConfigNode& node, SearchDimension& dimension) {
  const auto& key = dimension.key;
  if (node.kind != Kind::sequence || node.items.size() != 2) fail_type(node, key, "two bounds, [low, high]");
  dimension.low = read_number(node.items[0], dimension);
  dimension.high = read_number(node.items[1], dimension);
  if (dimension.low > dimension.high)
    fail_at(node.location, "{}: the lower bound {} is above {}", key, dimension.low, dimension.high);
  if (is_logarithmic(dimension.spread) && dimension.low <= 0)
    fail_at(node.location, "{}: a logarithm needs bounds above 0, and {} is not", key, dimension.low);
}

void read_choices(const ConfigNode& node, SearchDimension& dimension) {
  const auto& key = dimension.key;
  if (node.kind != Kind::sequence || node.items.empty()) fail_type(node, key, "a list of values");
  for (const auto& item : node.items) {
    if (item.kind != Kind::scalar && item.kind != Kind::null) fail_type(item, key, "a plain value");
    if (item.scalar.find_first_of(" \t\n*?[") != std::string::npos)
      fail_at(item.location, "{}: {}: a shell would split or expand it; expected a value without blanks, *, ? and [",
              key, in_quotes(item.scalar));
    dimension.choices.push_back(item.kind == Kind::null ? "null" : item.scalar);
  }
}

SearchDimension read_dimension(const ConfigEntry& entry) {
  SearchDimension dimension{.key = entry.key.name};
  const auto& node = entry.value;
  if (node.kind != Kind::map || node.entries.size() != 1)
    fail_type(node, dimension.key, "one distribution, such as {uniform: [0, 1]}");
  const auto& [key, value] = node.entries.front();
  const auto names = names_of<Spread>();
  const auto found = std::ranges::find(names, key.name);
  if (found == names.end())
    fail_at(key.location, "{}: {}: no such distribution; expected {}", dimension.key, in_quotes(key.name),
            join_alternatives(names));
  dimension.spread = static_cast<Spread>(found - names.begin());
  dimension.spread == Spread::choice ? read_choices(value, dimension) : read_bounds(value, dimension);
  return dimension;
}

// The number rounded to four significant digits, or unrounded if that lies outside the bounds.
std::string rounded(double value, const SearchDimension& dimension) {
  const auto text = fmt::format("{:.4g}", value);
  const double read = std::stod(text);
  return yaml_value(read >= dimension.low && read <= dimension.high ? read : value);
}

std::string draw_value(const SearchDimension& dimension, const Rng& random, std::uint64_t index) {
  const auto spread = dimension.spread;
  const auto low = dimension.low, high = dimension.high;
  if (spread == Spread::choice) return dimension.choices[random.below(index, dimension.choices.size())];
  const double fraction = random.uniform(index);
  const auto value = [&](double above) {
    return is_logarithmic(spread) ? std::exp(std::log(low) + (std::log(high + above) - std::log(low)) * fraction)
                                  : low + (high + above - low) * fraction;
  };
  // The numbers that round down to an integer give this integer.
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
      fail_at(entry.key.location, "{}: no such config key{}", entry.key.name,
              did_you_mean(entry.key.name, {keys.begin(), keys.end()}));
    space.push_back(read_dimension(entry));
  }
  if (space.empty())
    fail_at({file.string()},
            "the space is empty; expected keys with distributions, such as train.learning_rate: {{log_uniform: [1e-4, "
            "1e-2]}}");
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
