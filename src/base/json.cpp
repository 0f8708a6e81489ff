#include "base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

const nlohmann::json& json_member(const nlohmann::json& json, const std::string& name) {
  static const nlohmann::json none;
  const auto found = json.find(name);  // the end if `json` is not an object
  return found == json.end() ? none : *found;
}

namespace {

// Reads the object of a line. Returns "", or the reason why the line has none.
std::string read_object(std::string_view line, std::size_t size, nlohmann::json& object) {
  constexpr auto longest = JsonLines::longest_line;
  if (size > longest)
    return fmt::format("the line has {}; at most {} make sense", human_bytes(size), human_bytes(longest));
  if (line.find('\0') != std::string_view::npos) return "the line has NUL bytes";
  object = parse_json(line);
  if (object.is_object()) return "";
  if (!object.is_discarded()) return fmt::format("{}, not an object", object.type_name());
  const auto defect = utf8_defect(line);
  if (!defect.empty()) return "the line is " + defect;
  return fmt::format("not JSON (one object on every line, nested at most {} deep)", deepest_json);
}

}  // namespace

JsonLines::JsonLines(std::vector<std::string> names, std::string source, UseMembers use, RefuseLine refuse)
    : names_(std::move(names)),
      source_(std::move(source)),
      use_(std::move(use)),
      refuse_(std::move(refuse)),
      seen_(names_.size()) {}

void JsonLines::add(std::string_view line, std::size_t size) {
  throw_if_stopped();
  ++number_;
  const auto trimmed = trim(line);
  if (trimmed.empty() && size <= longest_line) return;
  nlohmann::json object;
  if (auto defect = read_object(trimmed, size - line.size() + trimmed.size(), object); !defect.empty())
    return refuse_(number_, std::move(defect));
  if (first_object_ == 0) {
    first_object_ = number_;
    for (const auto& [name, value] : object.items()) members_of_first_.push_back(name);
  }
  std::vector<nlohmann::json*> found;
  const std::string* missing = nullptr;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const auto at = object.find(names_[i]);
    if (at == object.end()) {
      if (missing == nullptr) missing = &names_[i];
      continue;
    }
    seen_[i] = true;
    found.push_back(&*at);
  }
  missing == nullptr ? use_(found, number_) : refuse_(number_, fmt::format("no member {}", in_quotes(*missing)));
}

void JsonLines::finish() const {
  for (std::size_t i = 0; i < names_.size() && first_object_ > 0; ++i)
    if (!seen_[i])
      throw Error(ExitCode::data, fmt::format("{}: no object has a member {}; the first, on line {}, has {}{}", source_,
                                              in_quotes(names_[i]), first_object_, quoted_list(members_of_first_),
                                              did_you_mean(names_[i], members_of_first_)));
}

void for_each_json_object(std::string_view content, const std::vector<std::string>& names, const std::string& source,
                          const UseMembers& use, const RefuseLine& refuse) {
  JsonLines lines(names, source, use, refuse);
  while (!content.empty()) {
    const auto line = take_line(content);
    lines.add(line, line.size());
  }
  lines.finish();
}

nlohmann::ordered_json short_number(double number) {
  constexpr double largest = 1e15;
  const bool is_whole = number == std::trunc(number) && std::abs(number) < largest;
  return is_whole ? nlohmann::ordered_json(static_cast<std::int64_t>(number)) : nlohmann::ordered_json(number);
}

std::string defect_of_text_member(const nlohmann::json& value, const std::string& name) {
  return value.is_string() ? "" : fmt::format("{} is {}, not a string", in_quotes(name), value.type_name());
}

}  // namespace metaformer
