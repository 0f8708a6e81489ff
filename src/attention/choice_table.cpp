#include "attention/choice_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/text.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* format_name = "metaformer kernel choices";
constexpr int format_version = 1;
constexpr const char *inner_product = "inner_product", *distance = "distance";
constexpr const char *causal = "causal", *causal_with_segments = "causal_segments";

double distance_between(const ChoicePlace& a, const ChoicePlace& b) {
  const auto octaves = [](std::int64_t x, std::int64_t y) {
    return std::log2(static_cast<double>(x) / static_cast<double>(y));
  };
  return std::hypot(octaves(a.context, b.context), octaves(a.head_width, b.head_width));
}

Json to_json(const ChoiceCell& cell) {
  const auto& place = cell.place;
  return {{"type", to_string(place.type)},
          {"context", place.context},
          {"head_width", place.head_width},
          {"score", place.distance ? distance : inner_product},
          {"mask", place.segmented ? causal_with_segments : causal},
          {"fused_to_composed", cell.ratio}};
}

// What these throw about a value becomes one message of read_choice_table.
[[noreturn]] void not_understood(const std::string& value) { throw std::invalid_argument(value); }

bool is_second(const Json& word, const char* first, const char* second) {
  const auto text = word.get<std::string>();
  if (text != first && text != second) not_understood(in_quotes(text));
  return text == second;
}

std::int64_t positive(const Json& number) {
  if (!number.is_number_integer() || number.get<std::int64_t>() < 1) not_understood(number.dump());
  return number.get<std::int64_t>();
}

ChoiceType type_from(const Json& word) {
  const auto& types = EnumNames<ChoiceType>::values;
  const auto found = std::find(types.begin(), types.end(), word.get<std::string>());
  if (found == types.end()) not_understood(word.dump());
  return static_cast<ChoiceType>(found - types.begin());
}

ChoiceCell cell_from(const Json& json) {
  const auto& ratio = json.at("fused_to_composed");
  if (ratio.get<double>() <= 0 || !std::isfinite(ratio.get<double>())) not_understood(ratio.dump());
  return {.place = {.type = type_from(json.at("type")),
                    .context = positive(json.at("context")),
                    .head_width = positive(json.at("head_width")),
                    .distance = is_second(json.at("score"), inner_product, distance),
                    .segmented = is_second(json.at("mask"), causal, causal_with_segments)},
          .ratio = ratio.get<double>()};
}

ChoiceTable table_from(const Json& json) {
  ChoiceTable table{
      .device = json.at("device").get<std::string>(), .date = json.at("date").get<std::string>(), .cells = {}};
  const bool is_date = table.date.size() == 10 && table.date.find_first_not_of("0123456789-") == std::string::npos;
  if (!is_date) not_understood("date " + in_quotes(table.date));
  const auto& cells = json.at("cells");
  if (!cells.is_array() || cells.empty()) not_understood("no cells");
  for (const auto& cell : cells) table.cells.push_back(cell_from(cell));
  return table;
}

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw Error(ExitCode::usage, fmt::format("{}: {}; write it anew with bench attention --write-choices, or remove it",
                                           path.string(), escaped(why)));
}

}  // namespace

std::optional<double> ChoiceTable::ratio(const ChoicePlace& place) const {
  const ChoiceCell* nearest = nullptr;
  for (const auto& cell : cells) {
    const auto& at = cell.place;
    if (at.type != place.type || at.distance != place.distance || at.segmented != place.segmented) continue;
    if (nearest == nullptr || distance_between(at, place) < distance_between(nearest->place, place)) nearest = &cell;
  }
  return nearest != nullptr ? std::optional(nearest->ratio) : std::nullopt;
}

std::string to_json_text(const ChoiceTable& table) {
  Json json = {{"format", format_name}, {"version", format_version}, {"device", table.device}, {"date", table.date}};
  json["cells"] = Json::array();
  for (const auto& cell : table.cells) json["cells"].push_back(to_json(cell));
  return json_text(json, 1) + "\n";
}

ChoiceTable read_choice_table(const fs::path& path) {
  constexpr std::uintmax_t largest = 1 << 20;
  const auto json = parse_json<Json>(read_file(path, largest, ExitCode::usage));
  if (!json.is_object() || json.value("format", Json()) != format_name) refuse(path, "not a table of kernel choices");
  if (const auto version = json.value("version", Json()); version != format_version)
    refuse(path, fmt::format("a table of kernel choices of version {}, not {}", version.dump(), format_version));
  try {
    return table_from(json);
  } catch (const std::exception& error) {
    refuse(path, fmt::format("a damaged table of kernel choices ({})", error.what()));
  }
}

std::optional<fs::path> choice_table_path(const std::string& device) {
  const auto cache = cache_folder();
  if (!cache) return std::nullopt;
  std::string name = device;
  const auto is_unusual = [](unsigned char c) { return std::isalnum(c) == 0; };
  std::replace_if(name.begin(), name.end(), is_unusual, '_');
  return *cache / "kernel_choices" / (name + ".json");
}

FoundChoiceTable find_choice_table(const std::string& device) {
  const auto path = choice_table_path(device);
  std::error_code ignored;
  if (!path || !fs::exists(*path, ignored)) return {};
  try {
    auto table = read_choice_table(*path);
    if (table.device == device) return {.table = std::move(table), .problem = ""};
    return {.table = {},
            .problem = fmt::format("{}: measured on {}, not on {}", path->string(), printable(table.device), device)};
  } catch (const Error& error) {
    return {.table = {}, .problem = error.what()};
  }
}

}  // namespace metaformer
