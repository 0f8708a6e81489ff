#include "data/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/json_text.h"
#include "core/signals.h"
#include "core/text.h"
#include "data/utf8.h"

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
  JsonLinesReader(const DataConfig& config, const std::string& source, TableBuilder& builder)
      : source_(source), builder_(builder), text_{config.text_field}, label_{config.label_field} {}

  void read(std::string_view content) {
    for (std::int64_t number = 1; !content.empty(); ++number) {
      throw_if_stopped();
      auto line = content.substr(0, content.find('\n'));
      content.remove_prefix(std::min(content.size(), line.size() + 1));
      line = trim(line);
      if (!line.empty()) read_line(line, number);
    }
    require_seen(text_);
    require_seen(label_);
  }

 private:
  struct Member {
    const std::string& name;
    bool seen = false;  // in any object
  };

  void read_line(std::string_view line, std::int64_t number);
  static nlohmann::json* find(nlohmann::json& object, Member& member);
  void require_seen(const Member& member) const;

  const std::string& source_;
  TableBuilder& builder_;
  Member text_, label_;
  std::int64_t first_line_ = 0;  // of the first object; 0: there was none
  std::vector<std::string> first_members_;
};

void JsonLinesReader::read_line(std::string_view line, std::int64_t number) {
  if (line.size() > longest_line)
    return builder_.refuse(number, fmt::format("the line has {}; at most {} make sense", human_bytes(line.size()),
                                               human_bytes(longest_line)));
  if (line.find('\0') != std::string_view::npos) return builder_.refuse(number, "the line has NUL bytes");
  auto object = parse_json(line);
  if (object.is_discarded()) {
    const auto defect = utf8_defect(line);
    return builder_.refuse(number, !defect.empty() ? "the line is " + defect
                                                   : "not JSON (one object on every line, nested at most " +
                                                         std::to_string(deepest_json) + " deep)");
  }
  if (!object.is_object()) return builder_.refuse(number, fmt::format("{}, not an object", object.type_name()));
  if (first_line_ == 0) {
    first_line_ = number;
    first_members_ = member_names(object);
  }
  auto* text = find(object, text_);
  auto* label = find(object, label_);
  if (text == nullptr || label == nullptr)
    return builder_.refuse(number, fmt::format("no member {}", in_quotes(text == nullptr ? text_.name : label_.name)));
  if (!text->is_string())
    return builder_.refuse(number, fmt::format("{} is {}, not a string", in_quotes(text_.name), text->type_name()));
  const auto written = as_label(*label);
  if (!written)
    return builder_.refuse(number, fmt::format("{} is {}; a label is a string, a number, true or false",
                                               in_quotes(label_.name), label->type_name()));
  builder_.add(std::move(text->get_ref<std::string&>()), *written, number);
}

nlohmann::json* JsonLinesReader::find(nlohmann::json& object, Member& member) {
  const auto found = object.find(member.name);
  if (found == object.end()) return nullptr;
  member.seen = true;
  return &*found;
}

void JsonLinesReader::require_seen(const Member& member) const {
  if (member.seen || first_line_ == 0) return;
  throw Error(ExitCode::data, fmt::format("{}: no object has a member {}; the first, on line {}, has {}{}", source_,
                                          in_quotes(member.name), first_line_, quoted_list(first_members_),
                                          did_you_mean(member.name, first_members_)));
}

}  // namespace

void add_json_lines(std::string_view content, const DataConfig& config, const std::string& source,
                    TableBuilder& builder) {
  if (config.text_field == config.label_field)
    throw Error(ExitCode::usage, fmt::format("data.text_field and data.label_field both mean the member {} of {}",
                                             in_quotes(config.text_field), source));
  if (config.header != TableHeader::automatic)
    throw Error(ExitCode::usage, fmt::format("data.header: {} holds JSON lines, which have no header", source));
  JsonLinesReader(config, source, builder).read(content);
}

}  // namespace metaformer
