#include "base/json.h"

#include <fmt/format.h>

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

constexpr std::size_t longest_line = 16 << 20;

// Reads the object of a line. Returns "", or the reason why the line has none.
std::string read_object(std::string_view line, nlohmann::json& object) {
  if (line.size() > longest_line)
    return fmt::format("the line has {}; at most {} make sense", human_bytes(line.size()), human_bytes(longest_line));
  if (line.find('\0') != std::string_view::npos) return "the line has NUL bytes";
  object = parse_json(line);
  if (object.is_object()) return "";
  if (!object.is_discarded()) return fmt::format("{}, not an object", object.type_name());
  const auto defect = utf8_defect(line);
  if (!defect.empty()) return "the line is " + defect;
  return fmt::format("not JSON (one object on every line, nested at most {} deep)", deepest_json);
}

}  // namespace

void for_each_json_object(std::string_view content, const std::vector<std::string>& names, const std::string& source,
                          const UseMembers& use, const RefuseLine& refuse) {
  std::vector<bool> seen(names.size());  // in any object
  std::int64_t first_line = 0;           // line of the first object; 0: no object so far
  std::vector<std::string> first_members;
  for (std::int64_t number = 1; !content.empty(); ++number) {
    throw_if_stopped();
    const auto line = trim(take_line(content));
    if (line.empty()) continue;
    nlohmann::json object;
    if (auto defect = read_object(line, object); !defect.empty()) {
      refuse(number, std::move(defect));
      continue;
    }
    if (first_line == 0) {
      first_line = number;
      for (const auto& [name, value] : object.items()) first_members.push_back(name);
    }
    std::vector<nlohmann::json*> found;
    const std::string* missing = nullptr;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto at = object.find(names[i]);
      if (at == object.end()) {
        if (missing == nullptr) missing = &names[i];
        continue;
      }
      seen[i] = true;
      found.push_back(&*at);
    }
    missing == nullptr ? use(found, number) : refuse(number, fmt::format("no member {}", in_quotes(*missing)));
  }
  for (std::size_t i = 0; i < names.size() && first_line > 0; ++i)
    if (!seen[i])
      throw Error(ExitCode::data, fmt::format("{}: no object has a member {}; the first, on line {}, has {}{}", source,
                                              in_quotes(names[i]), first_line, quoted_list(first_members),
                                              did_you_mean(names[i], first_members)));
}

std::string defect_of_text_member(const nlohmann::json& value, const std::string& name) {
  return value.is_string() ? "" : fmt::format("{} is {}, not a string", in_quotes(name), value.type_name());
}

}  // namespace metaformer
