#pragma once
// The vocabulary of config structs.

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace metaformer {

// The vocabulary of config structs. A struct is plain data plus one `visit(field, struct)` that lists its fields:
//
//   template <class Visitor> void visit(Visitor& field, OptimizerConfig& c) {
//     field("learning_rate", c.learning_rate, positive, "peak learning rate");
//   }
//
// Decoding, dumping, range checks and help are visitors over that one list.
//
// Whatever selects an implementation is a std::variant of such structs. It is written `{kind: NAME, ...options of
// NAME}`, or only NAME; each alternative has a `kind` (its name) and a `summary`.

// Larger numbers are refused everywhere: they come near what single precision can hold.
constexpr double largest_number = 1e30;

// Of a training: the longest, and the longest interval within one.
constexpr double most_steps = 1e12;

// A file or folder. Like every text of a config but FreeText it is never empty: an empty value is an unset variable of
// a shell more often than a wish. Relative paths become absolute when a config is read.
struct PathText : std::string {
  using std::string::string;
  using std::string::operator=;
  PathText(std::string text) : std::string(std::move(text)) {}  // a path is written as a text
  operator std::filesystem::path() const { return std::string(*this); }
};

// A text that may be empty.
struct FreeText : std::string {
  using std::string::string;
  using std::string::operator=;
  FreeText(std::string text) : std::string(std::move(text)) {}
};

// The numbers a field may hold.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;  // low itself is not allowed
  bool high_open = false;
  bool contains(double value) const;
  std::string str() const;  // "at least 1", "above 0 and at most 1"; "finite" for any number
};

constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range between(double low, double high) { return {.low = low, .high = high}; }
constexpr Range from_to_below(double low, double high) { return {.low = low, .high = high, .high_open = true}; }
constexpr Range positive = {.low = 0, .low_open = true};

// Specialised for every enumeration of the configs: its names in the order of its enumerators.
template <class E>
struct EnumNames;

template <class E>
std::vector<std::string> names_of() {
  return {EnumNames<E>::values.begin(), EnumNames<E>::values.end()};
}

template <class E>
std::string_view to_string(E value) requires std::is_enum_v<E> {
  return EnumNames<E>::values.at(static_cast<std::size_t>(value));
}

template <class V>
std::vector<std::string> kinds_of() {
  return []<class... Options>(std::type_identity<std::variant<Options...>>) {
    return std::vector<std::string>{std::string(Options::kind)...};
  }(std::type_identity<V>{});
}

template <class V>
std::string_view kind_of(const V& options) {
  return std::visit([](const auto& alternative) { return std::decay_t<decltype(alternative)>::kind; }, options);
}

// Default-constructed options of the named kind; nothing when the name is unknown.
template <class V>
std::optional<V> make_kind(std::string_view name) {
  std::optional<V> made;
  [&]<class... Options>(std::type_identity<std::variant<Options...>>) {
    ((name == Options::kind ? void(made = Options{}) : void()), ...);
  }(std::type_identity<V>{});
  return made;
}

template <class Options, class V>
bool is(const V& variant) {
  return std::holds_alternative<Options>(variant);
}

// Calls `visit_section` with the section that goes with the chosen alternative of another section,
// `section(alternative)`; an alternative that `section` does not take has no such section.
template <class V, class Section, class VisitSection>
void visit_section_of(V& owner, const Section& section, const VisitSection& visit_section) {
  std::visit(
      [&](auto& alternative) {
        if constexpr (std::is_invocable_v<Section, decltype(alternative)>) visit_section(section(alternative));
      },
      owner);
}

template <class T>
inline constexpr bool is_variant = false;
template <class... T>
inline constexpr bool is_variant<std::variant<T...>> = true;

// Types that are written `{kind: NAME, ...}`: the variants, and what says so for itself.
template <class T>
inline constexpr bool has_kinds = is_variant<T>;

// use(options) with the alternative that a variant holds, or with the defaults of every one in turn.
template <class Use, class... Options>
void visit_kind(std::variant<Options...>& variant, Use use) {
  std::visit(use, variant);
}
template <class Use, class... Options>
void visit_every_kind(const std::variant<Options...>&, Use use) {
  const auto use_defaults = [&]<class Alternative>() {
    Alternative options;
    use(options);
  };
  (use_defaults.template operator()<Options>(), ...);
}

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

// Fields that several kinds of models have.
template <class Visitor>
void visit_context(Visitor& field, std::int64_t& context) {
  field("context", context, between(1, 1 << 20), "tokens a model sees at once");
}

}  // namespace metaformer
