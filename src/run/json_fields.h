#pragma once
// Structs as JSON objects. A struct has a function fields(value, field) beside it, which calls field(key, member) for
// each of its members, in the order of the file.

#include <algorithm>
#include <concepts>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "config/schema.h"

namespace metaformer {

// T or const T.
template <class Value, class T>
concept AnyOf = std::same_as<std::remove_const_t<Value>, T>;

template <class T>
concept HasFields = requires(T& value) {
  fields(value, [](const char*, auto&) {});
};

// An empty optional is null.
template <class T>
nlohmann::ordered_json json_of(const T& value) {
  if constexpr (HasFields<const T>) {
    auto json = nlohmann::ordered_json::object();
    fields(value, [&](const char* key, const auto& member) { json[key] = json_of(member); });
    return json;
  } else if constexpr (requires { value.has_value(); }) {
    return value ? json_of(*value) : nlohmann::ordered_json();
  } else if constexpr (std::is_enum_v<T>) {
    return to_string(value);
  } else {
    return value;
  }
}

// Throws: the value of a key is not what was expected.
using RefuseMember = std::function<void(const std::string& key, std::string_view expected)>;

// Sets `value` to a member of the object; a missing one is null. Whole numbers are counts: 0 to 2^53.
template <class T>
void read_member(const nlohmann::ordered_json& object, const std::string& key, T& value, const RefuseMember& refuse) {
  const auto member = object.value(key, nlohmann::ordered_json());
  const auto require = [&](bool fits, std::string_view expected) {
    if (!fits) refuse(key, expected);
  };
  if constexpr (requires { value.has_value(); }) {
    value.reset();
    if (!member.is_null()) read_member(object, key, value.emplace(), refuse);
  } else if constexpr (HasFields<T>) {
    require(member.is_object(), "an object");
    fields(value, [&](const char* name, auto& inner) { read_member(member, name, inner, refuse); });
  } else if constexpr (std::is_enum_v<T>) {
    const auto names = enum_names(T{});
    const auto found = std::find(names.begin(), names.end(), member.is_string() ? member.get<std::string>() : "");
    require(found != names.end(), "a known name");
    value = static_cast<T>(found - names.begin());
  } else if constexpr (std::same_as<T, nlohmann::ordered_json>) {
    require(member.is_null() || member.is_object(), "an object");
    value = member;
  } else {
    if constexpr (std::same_as<T, bool>) require(member.is_boolean(), "true or false");
    if constexpr (std::same_as<T, double>) require(member.is_number(), "a number");
    if constexpr (std::same_as<T, std::string>) require(member.is_string(), "a text");
    if constexpr (std::same_as<T, std::int64_t>)
      require(member.is_number_unsigned() && member.get<std::uint64_t>() <= std::uint64_t{1} << 53,
              "a whole number from 0");
    value = member.get<T>();
  }
}

}  // namespace metaformer
