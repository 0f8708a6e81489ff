#include "data/sources/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "base/signals.h"
#include "base/text.h"
#include "text/utf8.h"

namespace metaformer {

namespace {

constexpr std::size_t longest_line = 16 << 20;

// A number as a label: whole ones without a fraction, others as short as they can be read back from.
std::string number_label(double value) {
  constexpr double exact = 0x1p53;
  if (value == std::trunc(value) && std::abs(value) < exact) return std::to_string(static_cast<std::int64_t>(value));
  return fmt::format("{}", value);
}

std::optional<std::string> as_label(const nlohmann::json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_float()) return number_label(value.get<double>());
  if (value.is_number()) return value.dump();
  return {};
}

std::vector<std::string> member_names(const nlohmann::json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

class JsonLinesReader {
 public:
  JsonLinesReader(const std::vector<std::string>& names, const std::string& source, const UseMembers& use,
                  const RefuseLine& refuse)
      : source_(source), use_(use), refuse_(refuse) {
    for (const auto& name : names) members_.push_back({name});
  }

  void read(std::string_view content) {
    for (std::int64_t number = 1; !content.empty(); ++number) {
      throw_if_stopped();
      auto line = content.substr(0, content.find('\n'));
      content.remove_prefix(std::min(content.size(), line.size() + 1));
      line = trim(line);
      if (!line.empty()) read_line(line, number);
    }
    for (const auto& member : members_) require_seen(member);
  }

 private:
  struct Member {
    const std::string& name;
    bool seen = false;  // in any object
  };

  void read_line(std::string_view line, std::int64_t number);
  void require_seen(const Member& member) const;

  const std::string& source_;
  const UseMembers& use_;
  const RefuseLine& refuse_;
  std::vector<Member> members_;
  std::int64_t first_line_ = 0;  // of the first object; 0: there was none
  std::vector<std::string> first_members_;
};

void JsonLinesReader::read_line(std::string_view line, std::int64_t number) {
  if (line.size() > longest_line)
    return refuse_(number, fmt::format("the line has {}; at most {} make sense", human_bytes(line.size()),
                                       human_bytes(longest_line)));
  if (line.find('\0') != std::string_view::npos) return refuse_(number, "the line has NUL bytes");
  auto object = parse_json(line);
  if (object.is_discarded()) {
    const auto defect = utf8_defect(line);
    return refuse_(number, !defect.empty() ? "the line is " + defect
                                           : "not JSON (one object on every line, nested at most " +
                                                 std::to_string(deepest_json) + " deep)");
  }
  if (!object.is_object()) return refuse_(number, fmt::format("{}, not an object", object.type_name()));
  if (first_line_ == 0) {
    first_line_ = number;
    first_members_ = member_names(object);
  }
  std::vector<nlohmann::json*> found;
  const std::string* missing = nullptr;
  for (auto& member : members_) {
    const auto at = object.find(member.name);
    if (at != object.end()) {
      member.seen = true;
      found.push_back(&*at);
    } else if (missing == nullptr) {
      missing = &member.name;
    }
  }
  if (missing != nullptr) return refuse_(number, fmt::format("no member {}", in_quotes(*missing)));
  use_(found, number);
}

void JsonLinesReader::require_seen(const Member& member) const {
  if (member.seen || first_line_ == 0) return;
  throw Error(ExitCode::data, fmt::format("{}: no object has a member {}; the first, on line {}, has {}{}", source_,
                                          in_quotes(member.name), first_line_, quoted_list(first_members_),
                                          did_you_mean(member.name, first_members_)));
}

}  // namespace

void for_each_json_object(std::string_view content, const std::vector<std::string>& names, const std::string& source,
                          const UseMembers& use, const RefuseLine& refuse) {
  JsonLinesReader(names, source, use, refuse).read(content);
}

std::string defect_of_text_member(const nlohmann::json& value, const std::string& name) {
  return value.is_string() ? "" : fmt::format("{} is {}, not a string", in_quotes(name), value.type_name());
}

void add_json_lines(std::string_view content, const DataConfig& config, const std::string& source,
                    TableBuilder& builder) {
  const auto &text_field = config.text_field, &label_field = config.label_field;
  if (builder.needs_labels() && text_field == label_field)
    throw Error(ExitCode::usage, fmt::format("data.text_field and data.label_field both mean the member {} of {}",
                                             in_quotes(text_field), source));
  if (config.header != TableHeader::automatic)
    throw Error(ExitCode::usage, fmt::format("data.header: {} holds JSON lines, which have no header", source));
  const auto refuse = [&](std::int64_t line, std::string why) { builder.refuse(line, std::move(why)); };
  const auto use = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
    auto& text = *members[0];
    if (auto why = defect_of_text_member(text, text_field); !why.empty()) return refuse(line, std::move(why));
    const auto label = builder.needs_labels() ? as_label(*members[1]) : std::optional<std::string>("");
    if (!label)
      return refuse(line, fmt::format("{} is {}; a label is a string, a number, true or false", in_quotes(label_field),
                                      members[1]->type_name()));
    builder.add(std::move(text.get_ref<std::string&>()), *label, line);
  };
  std::vector<std::string> names = {text_field};
  if (builder.needs_labels()) names.push_back(label_field);
  for_each_json_object(content, names, source, use, refuse);
}

}  // namespace metaformer
