#pragma once
// JSON from untrusted files, and JSON lines.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/signals.h"

namespace metaformer {

// A number as people write it: 1, not 1.0.
nlohmann::ordered_json short_number(double number);

constexpr std::size_t deepest_json = 64;  // dumping recurses, so depth must be bounded

// ordered_json compares every key with all previous keys of its object: this many comparisons take about a second, as
// for 20,000 keys in one object.
constexpr std::int64_t most_key_comparisons = 200'000'000;

// Builds a value from the parser's events, in one pass; nlohmann's own parser with a callback searches a whole list at
// the end of every object in the list. Stops parsing where the text nests too deep or needs too many comparisons of
// keys.
template <class Json>
class JsonBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit JsonBuilder(std::int64_t most_comparisons) : comparisons_left_(most_comparisons) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(typename Json::number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(typename Json::number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(typename Json::number_float_t value, const std::string&) override { return add(value) != nullptr; }
  bool string(std::string& value) override { return add(std::move(value)) != nullptr; }
  bool binary(typename Json::binary_t&) override { return false; }  // JSON texts have no binary values
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    constexpr bool is_ordered = std::is_same_v<Json, nlohmann::ordered_json>;
    auto& object = *around_.back();
    if (is_ordered) comparisons_left_ -= static_cast<std::int64_t>(object.size());
    if (comparisons_left_ < 0) return false;
    member_ = &object[name];
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const typename Json::exception&) override { return false; }

 private:
  // Returns the address of the added value. Addresses stay valid, because a list or object does not grow while a list
  // or object in it is open.
  template <class Value>
  Json* add(Value&& value) {
    constexpr int values_between_looks = 1 << 16;
    if (++values_ % values_between_looks == 0) throw_if_stopped();
    if (around_.empty()) return &(root_ = std::forward<Value>(value));
    if (around_.back()->is_object()) return &(*member_ = std::forward<Value>(value));
    return &around_.back()->emplace_back(std::forward<Value>(value));
  }

  bool open(Json&& empty) {
    around_.push_back(add(std::move(empty)));
    return around_.size() <= deepest_json;
  }

  bool close() {
    around_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> around_;  // the lists and objects that are open, from the outermost
  Json* member_ = nullptr;     // the member whose key was read last
  std::int64_t comparisons_left_;
  std::int64_t values_ = 0;
};

// Returns a discarded value (is_discarded()) if the text is not JSON, nests deeper than `deepest_json`, or needs more
// than `most_comparisons` comparisons of keys. Takes time in proportion to the text and these comparisons. Throws
// Interrupted when a signal asks to stop, and otherwise only for lack of memory.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, std::int64_t most_comparisons = most_key_comparisons) {
  JsonBuilder<Json> builder(most_comparisons);
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &builder);
  return parsed ? builder.take() : Json(Json::value_t::discarded);
}

// JSON as text. Bytes that are not UTF-8 become U+FFFD, where dump() would throw. `indent`: spaces per level; -1: one
// line.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// The member of an object; null where `json` is no object or has no such member.
const nlohmann::json& json_member(const nlohmann::json& json, const std::string& name);

// JSON lines: one object on every line, as in the Amazon reviews:
// {"reviewerID": "A2", "reviewText": "Fine.", "overall": 5.0, ...}
using UseMembers = std::function<void(const std::vector<nlohmann::json*>& members, std::int64_t line)>;
using RefuseLine = std::function<void(std::int64_t line, std::string why)>;

// Reads the lines of a file one after another. Calls `use` with the members called `names` of every object, in that
// order, and `refuse` for every malformed line: above 16 MiB, with NUL bytes, not UTF-8, not JSON, nested deeper than
// 64, not an object, without one of the members. If a member occurs twice in an object, the last one is used. Lines end
// with LF or CRLF and are counted from 1; blank lines are skipped.
class JsonLines {
 public:
  static constexpr std::size_t longest_line = 16 << 20;

  // `source` names the file.
  JsonLines(std::vector<std::string> names, std::string source, UseMembers use, RefuseLine refuse);

  // `size`: of the whole line, of which a too long one may be cut.
  void add(std::string_view line, std::size_t size);

  // After the last line. Errors (exit code 3): no object has one of the members; the message lists the members of the
  // first object.
  void finish() const;

 private:
  std::vector<std::string> names_;
  std::string source_;
  UseMembers use_;
  RefuseLine refuse_;
  std::int64_t number_ = 0;
  std::vector<bool> seen_;         // by name, in any object
  std::int64_t first_object_ = 0;  // its line; 0: no object so far
  std::vector<std::string> members_of_first_;
};

// The same for the whole content of a file.
void for_each_json_object(std::string_view content, const std::vector<std::string>& names, const std::string& source,
                          const UseMembers& use, const RefuseLine& refuse);

// The reason why the member is no text, which is a string; "" if it is one.
std::string defect_of_text_member(const nlohmann::json& value, const std::string& name);

}  // namespace metaformer
