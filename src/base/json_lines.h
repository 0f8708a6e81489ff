#pragma once
// JSON lines: one object on every line, as the Amazon reviews come:
// {"reviewerID": "A2", "reviewText": "Fine.", "overall": 5.0, ...}

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

using UseMembers = std::function<void(const std::vector<nlohmann::json*>& members, std::int64_t line)>;
using RefuseLine = std::function<void(std::int64_t line, std::string why)>;

// Calls `use` with the members called `names` of every object in `content`, in that order, and `refuse` for every
// malformed line: above 16 MiB, with NUL bytes, not UTF-8, not JSON, nested deeper than 64, not an object, without one
// of the members. Of members that stand twice in an object the last counts. Lines end with LF or CRLF and are counted
// from 1; blank ones are passed over.
//
// Errors (exit code 3): a member that no object has, with those that the first object has. `source` names the file.
void for_each_json_object(std::string_view content, const std::vector<std::string>& names, const std::string& source,
                          const UseMembers& use, const RefuseLine& refuse);

// Why the member is no text, or "": a text is a string.
std::string defect_of_text_member(const nlohmann::json& value, const std::string& name);

}  // namespace metaformer
