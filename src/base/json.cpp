#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

namespace {

constexpr std::size_t longest_line = 16 << 20;

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

}  // namespace metaformer
