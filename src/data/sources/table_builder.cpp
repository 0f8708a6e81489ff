#include "data/sources/table_builder.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/text.h"

namespace metaformer {

namespace {

std::optional<double> as_rating(std::string_view label) {
  double rating = 0;
  const auto* end = label.data() + label.size();
  const auto [at, error] = std::from_chars(label.data(), end, rating);
  if (error != std::errc{} || at != end || !std::isfinite(rating)) return {};
  return rating;
}

}  // namespace

void TableBuilder::add(std::string&& text, std::string_view label, std::int64_t line) {
  label = trim(label);
  auto why = defect_of_field("text", text, longest_);
  if (why.empty() && needs_labels()) why = defect_of_field("label", label, longest_);
  if (!why.empty()) return refuse(line, std::move(why));
  if (needs_labels() && config_.rating.positive_from) {
    const auto rating = as_rating(label);
    if (!rating)
      return refuse(line, fmt::format("the label {} is not a number, as data.rating asks", in_quotes(label)));
    if (auto why = range_defect(*rating); !why.empty()) return refuse(line, std::move(why));
    label = class_of(*rating);
    if (label.empty()) {
      ++table_.left_out;
      return;
    }
  }
  table_.rows.push_back({.text = std::move(text), .label = std::string(label), .line = line});
}

void TableBuilder::refuse(std::int64_t line, std::string why) {
  table_.malformed.push_back({.line = line, .why = std::move(why)});
}

std::string TableBuilder::range_defect(double rating) const {
  const auto &lowest = config_.rating.lowest, &highest = config_.rating.highest;
  if (lowest && rating < *lowest) return fmt::format("the rating {} is below data.rating.lowest {}", rating, *lowest);
  if (highest && rating > *highest)
    return fmt::format("the rating {} is above data.rating.highest {}", rating, *highest);
  return "";
}

std::string_view TableBuilder::class_of(double rating) const {
  if (rating >= *config_.rating.positive_from) return "positive";
  if (!config_.rating.negative_to || rating <= *config_.rating.negative_to) return "negative";
  return "";
}

}  // namespace metaformer
