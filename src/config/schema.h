#pragma once
// The vocabulary of config structs.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"

namespace metaformer {

// A config struct is plain data plus one `visit` that lists its fields; an empty one needs none:
//
//   void visit(auto& field) { field("learning_rate", learning_rate, positive, "peak learning rate"); }
//
// fields_of (config/experiment_config.h) makes a list of Field from it, which decoding, range checks, dumping and help
// read.
//
// Whatever selects an implementation is a std::variant of such structs. It is written `{kind: NAME, ...options of
// NAME}`, or only NAME; each alternative is Named.

template <std::size_t size>
struct Literal {
  char text[size];
  constexpr Literal(const char (&literal)[size]) { std::copy_n(literal, size, text); }
  constexpr operator std::string_view() const { return {text, size - 1}; }
};

// The name of a kind, and one line about it.
template <Literal name, Literal about>
struct Named {
  static constexpr std::string_view kind = name, summary = about;
};

// Larger numbers are refused everywhere, because they come near the limit of single precision.
constexpr double largest_number = 1e30;

// The largest number of training steps, and the longest interval.
constexpr double most_steps = 1e12;

// A file or folder. Like every text of a config but FreeText it is never empty: an empty value mostly comes from an
// unset shell variable. Relative paths become absolute when a config is read.
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
constexpr Range above(double low, double high) { return {.low = low, .high = high, .low_open = true}; }
constexpr Range positive = {.low = 0, .low_open = true};

// An entry of a list that gives a number to a name.
struct NamedNumber {
  std::string name;
  double number = 1;
};

// Reads "NAME=NUMBER" with a finite number above 0; nothing for another text.
inline std::optional<NamedNumber> parse_named_number(const std::string& entry) {
  const auto equals = entry.rfind('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  const auto number = as_number<double>(std::string_view(entry).substr(equals + 1));
  if (!number || !positive.contains(*number)) return std::nullopt;
  return NamedNumber{entry.substr(0, equals), *number};
}

// Each enumeration of a config has a function enum_names(E) beside it: its names in the order of its enumerators.
template <class E>
std::vector<std::string> names_of() {
  const auto names = enum_names(E{});
  return {names.begin(), names.end()};
}

template <class E>
std::string_view to_string(E value) requires std::is_enum_v<E> {
  return enum_names(value).at(static_cast<std::size_t>(value));
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

// The options of the chosen kind where they are Options or derive from it, else nullptr.
template <class Options, class V>
const Options* options_as(const V& variant) {
  return std::visit(
      [](const auto& alternative) -> const Options* {
        if constexpr (std::is_base_of_v<Options, std::decay_t<decltype(alternative)>>) return &alternative;
        return nullptr;
      },
      variant);
}

// The nearest multiple of 8 to a width, at least 8.
inline std::int64_t multiple_of_8(double width) { return 8 * std::max<std::int64_t>(1, std::llround(width / 8)); }

// Fields that several kinds of models have.
void visit_context(auto& field, std::int64_t& context) {
  field("context", context, between(1, 1 << 20), "tokens a model sees at once");
}

struct Field;

// A value that is one of several names.
struct Enumeration {
  std::vector<std::string> names;
  std::function<std::size_t()> get;
  std::function<void(std::size_t)> set;
};

// A number or a word. Its type has constants of the names below, `write()` and `read(text)`.
struct TextForm {
  std::string expected;       // "a number of tokens (at least 1) or 'all'"
  std::string type;           // "integer, at least 1, or all"
  std::string word;           // "all"
  std::int64_t fewest, step;  // numbers are multiples of step and at least fewest
  std::function<std::string()> write;
  std::function<bool(const std::string&)> read;  // false, and nothing is changed, for a text that is not allowed
};

struct Section {
  std::string owner;                           // the sibling whose kind decides which fields there are ("task"), or ""
  std::function<std::vector<Field>()> fields;  // empty if the owner's kind has no such section
};

struct KindHelp {
  std::string name, summary;
  bool operator==(const KindHelp&) const = default;
};

struct Kinds {
  std::vector<KindHelp> kinds;
  std::function<std::string()> current;
  std::function<void(const std::string&)> select;  // selects the kind of that name with its default options
  std::function<std::vector<Field>()> fields;      // of the current kind

  // For values that may have a list in place of one kind; both are empty for other values. `items` returns a section
  // for each item, named "0", "1", ..., and none if there is one kind. `resize` makes a list of so many default items;
  // 0: one kind.
  std::function<std::vector<Field>()> items = {};
  std::function<void(std::size_t)> resize = {};

  std::vector<std::string> names() const;
  bool is_list() const;
};

// A row of the table of keys. `value` refers to the struct that the list was made from.
struct Field {
  using Value = std::variant<bool*, std::int64_t*, double*, std::string*, PathText*, FreeText*,
                             std::optional<std::int64_t>*, std::optional<double>*, std::optional<PathText>*,
                             std::array<double, 2>*, std::vector<std::string>*, Enumeration, TextForm, Section, Kinds>;
  std::string name, help;
  std::optional<Range> range;  // of numbers
  Value value;
};

}  // namespace metaformer
