// Draws from a search space of configs.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "config/search_space.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer::test_search_space {

namespace {

std::vector<SearchDimension> space_of(const std::string& yaml) {
  const TemporaryFolder folder;
  return read_search_space(folder.write("space.yaml", yaml));
}

std::vector<double> numbers(const std::string& yaml, std::uint64_t count) {
  const auto space = space_of(yaml);
  std::vector<double> values;
  for (std::uint64_t i = 0; i < count; ++i) values.push_back(std::stod(draw(space, 0, i).front().second));
  return values;
}

// The largest distance of the empirical distribution function from the uniform one on [0, 1].
double kolmogorov_smirnov(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto size = static_cast<double>(values.size()), place = static_cast<double>(i);
    largest = std::max({largest, std::abs(values[i] - place / size), std::abs(values[i] - (place + 1) / size)});
  }
  return largest;
}

constexpr std::uint64_t many = 20000;
const double ks_bound = 1.95 / std::sqrt(static_cast<double>(many));  // 0.1% of samples exceed it

}  // namespace

TEST_CASE("numbers or their logarithms are uniformly distributed", "[search_space]") {
  auto values = numbers("model.dropout: {uniform: [0.1, 0.5]}", many);
  for (auto& value : values) value = (value - 0.1) / 0.4;
  CHECK(kolmogorov_smirnov(values) < ks_bound);
  values = numbers("train.learning_rate: {log_uniform: [1e-4, 1e-1]}", many);
  for (auto& value : values) value = std::log10(value / 1e-4) / 3;
  CHECK(kolmogorov_smirnov(values) < ks_bound);
}

TEST_CASE("integers and choices have the right probabilities, the bounds included", "[search_space]") {
  std::map<double, int> counts;
  for (const double value : numbers("model.layers: {uniform_integer: [2, 5]}", many)) ++counts[value];
  CHECK(counts.size() == 4);
  for (const auto& [value, count] : counts) CHECK(std::abs(count - 5000.0) < 6 * std::sqrt(5000 * 0.75));
  const auto logarithmic = numbers("train.batch_size: {log_uniform_integer: [1, 64]}", many);
  const std::set<double> distinct(logarithmic.begin(), logarithmic.end());
  CHECK(*distinct.begin() == 1);
  CHECK(*distinct.rbegin() == 64);
  // An integer i has the probability of [i, i + 1): ln 2 / ln 65 of the draws are 1.
  const auto ones = std::count(logarithmic.begin(), logarithmic.end(), 1.0);
  const double expected = std::log(2) / std::log(65) * many;
  CHECK(std::abs(static_cast<double>(ones) - expected) < 6 * std::sqrt(expected));
  std::map<std::string, int> names;
  const auto space = space_of("model.mixer.kind: {choice: [metric, quadratic]}");
  for (std::uint64_t i = 0; i < many; ++i) ++names[draw(space, 0, i).front().second];
  CHECK(std::abs(names["metric"] - 10000.0) < 6 * std::sqrt(5000.0));
}

TEST_CASE("a draw depends on seed and index, and keeps its values in a larger space", "[search_space]") {
  const std::string rate = "train.learning_rate: {log_uniform: [1e-4, 1e-2]}\n";
  const auto small = space_of(rate), large = space_of("model.dropout: {uniform: [0, 0.5]}\n" + rate);
  for (std::uint64_t i = 0; i < 20; ++i) CHECK(draw(small, 7, i)[0] == draw(large, 7, i)[1]);
  CHECK(draw(small, 7, 0) != draw(small, 8, 0));
  CHECK(draw(small, 7, 0) != draw(small, 7, 1));
}

TEST_CASE("the error for an invalid space is one line with the place", "[search_space]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"train.learning_rat: {uniform: [0, 1]}", "space.yaml:1:1: train.learning_rat:|did you mean"},
      {"model.dropout: {uniform: [1, 0]}", "space.yaml:1:26: model.dropout:|lower|1|0"},
      {"model.dropout: {log_uniform: [0, 1]}", "logarithm|above 0"},
      {"model.dropout: {uniform: [0]}", "two bounds|list of 1"},
      {"model.dropout: {uniform: [0, x]}", "space.yaml:1:30: model.dropout:|number|'x'"},
      {"model.layers: {uniform_integer: [1, 2.5]}", "whole number|'2.5'"},
      {"model.dropout: {gauss: [0, 1]}", "space.yaml:1:17: model.dropout: 'gauss':|distribution"},
      {"model.dropout: 0.1", "one distribution|'0.1'"},
      {"model.mixer.kind: {choice: []}", "list of values|0"},
      {"model.mixer.kind: {choice: [a b]}", "'a b':|shell"},
      {"model.dropout: {uniform: [0, 1], choice: [1]}", "one distribution|section of 2"},
      {"{}", "the space is empty"},
      {"", "space.yaml:1:1: has no key"}};
  for (const auto& [yaml, expected] : cases) {
    INFO(yaml);
    CHECK_THAT(failure([&] { space_of(yaml); }).second, Mentions(expected));
  }
}

}  // namespace metaformer::test_search_space
