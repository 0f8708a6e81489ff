#include "config_reader/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/whole_number.h"
#include "config_reader/kind_switch.h"
#include "config_reader/unknown_key.h"

namespace metaformer {

namespace {

[[noreturn]] void fail(const ConfigNode& node, const std::string& path, const std::string& what) {
  throw Error(ExitCode::usage, fmt::format("{}: {}: {}", node.location.str(), path, what));
}

[[noreturn]] void fail_type(const ConfigNode& node, const std::string& path, const std::string& expected) {
  fail(node, path, fmt::format("expected {}, got {}", expected, node.describe()));
}

bool parse_number(const std::string& text, double& value) {
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  return error == std::errc() && stop == end && begin != end;
}

const std::string& scalar_of(const ConfigNode& node, const std::string& path, const std::string& expected) {
  if (node.kind != ConfigNode::Kind::scalar) fail_type(node, path, expected);
  return node.scalar;
}

void decode(const ConfigNode& node, const std::string& path, std::int64_t& value) {
  if (parse_whole_number(scalar_of(node, path, "an integer"), value) != WholeNumber::valid)
    fail_type(node, path, "an integer");
}

void decode(const ConfigNode& node, const std::string& path, double& value) {
  if (!parse_number(scalar_of(node, path, "a number"), value)) fail_type(node, path, "a number");
}

void decode(const ConfigNode& node, const std::string& path, bool& value) {
  const auto& text = scalar_of(node, path, "true or false");
  if (text != "true" && text != "false") fail_type(node, path, "true or false");
  value = text == "true";
}

// A name. Empty ones are errors everywhere, so that an unset variable of a shell never means a default.
void decode(const ConfigNode& node, const std::string& path, std::string& value) {
  if (node.is_empty()) fail(node, path, "is empty; expected a text");
  value = scalar_of(node, path, "a text");
}

void decode(const ConfigNode& node, const std::string& path, PathText& value) {
  if (node.is_empty()) fail(node, path, "is empty; expected a path");
  value = scalar_of(node, path, "a path");
}

void decode(const ConfigNode& node, const std::string& path, FreeText& value) {
  if (node.is_missing) fail(node, path, "is empty; expected a text, which is written \"\" if it has no characters");
  value = scalar_of(node, path, "a text");
}

void decode(const ConfigNode& node, const std::string& path, TextValue& value) {
  const auto& text = scalar_of(node, path, value.expected);
  if (!value.is_allowed(text)) fail_type(node, path, value.expected);
  value.text = text;
}

template <class T>
std::string_view described() {
  if constexpr (std::is_same_v<T, PathText>) return "a path";
  if constexpr (std::is_same_v<T, std::string>) return "a text";
  if constexpr (std::is_same_v<T, std::int64_t>) return "an integer";
  return "a number";
}

template <class T>
void decode(const ConfigNode& node, const std::string& path, std::optional<T>& value) {
  if (node.is_empty()) fail(node, path, fmt::format("is empty; expected {}, or null for none", described<T>()));
  if (node.kind == ConfigNode::Kind::null) return value.reset();
  decode(node, path, value.emplace());
}

void decode(const ConfigNode& node, const std::string& path, std::array<double, 2>& value) {
  if (node.kind != ConfigNode::Kind::sequence || node.items.size() != 2) fail_type(node, path, "a list of 2 numbers");
  for (std::size_t i = 0; i < 2; ++i) decode(node.items[i], path, value[i]);
}

void decode(const ConfigNode& node, const std::string& path, std::vector<std::string>& value) {
  if (node.kind != ConfigNode::Kind::sequence) fail_type(node, path, "a list of texts");
  value.clear();
  for (const auto& item : node.items) decode(item, path, value.emplace_back());
}

void decode(const ConfigNode& node, const std::string& path, Choice& value) {
  const auto& names = value.names;
  const auto& text = scalar_of(node, path, join_alternatives(names));
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end())
    fail(node, path,
         fmt::format("unknown value {}; expected {}{}", in_quotes(text), join_alternatives(names),
                     did_you_mean(text, names)));
  value.index = static_cast<std::size_t>(found - names.begin());
}

template <class E>
requires std::is_enum_v<E>
void decode(const ConfigNode& node, const std::string& path, E& value) {
  Choice choice{names_of<E>(), static_cast<std::size_t>(value)};
  decode(node, path, choice);
  value = static_cast<E>(choice.index);
}

class SectionDecoder {
 public:
  SectionDecoder(const ConfigNode& section, std::string path, Provenance& provenance)
      : section_(section), path_(std::move(path)), provenance_(provenance) {}

  template <class T>
  void operator()(const char* name, T& value, const char*) {
    field(name, value);
  }
  template <class T>
  void operator()(const char* name, T& value, const Range& range, const char*) {
    if constexpr (std::is_same_v<T, std::int64_t>) refuse_too_large(name, range);
    field(name, value);
  }
  template <class V, class Section>
  void section_of(const char* name, const char* owner, V& variant, const Section& section) {
    visit_section_of(variant, section, [&](auto& value) {
      know(name);
      if (const auto* node = section_.find(name))
        decode_section(*node, full(name), value, fmt::format(" for {} '{}'", owner, kind_of(variant)));
    });
  }

  // A key that no field took: of another kind, or misspelt.
  void refuse_unknown_keys() const {
    for (const auto& [key, value] : section_.entries)
      if (std::find(known_.begin(), known_.end(), key.name) == known_.end())
        refuse_unknown_key(key, full(key.name), context_, known_);
  }

  void know(const char* name) { known_.emplace_back(name); }
  void set_context(std::string context) { context_ = std::move(context); }

 private:
  std::string full(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }

  // A number that no later source could mend, since it cannot be held.
  void refuse_too_large(const char* name, const Range& range) const {
    const auto* node = section_.find(name);
    std::int64_t ignored = 0;
    if (node != nullptr && node->kind == ConfigNode::Kind::scalar &&
        parse_whole_number(node->scalar, ignored) == WholeNumber::too_large)
      fail(*node, full(name), fmt::format("{} is out of range; must be {}", printable(node->scalar), range.str()));
  }

  template <class T>
  void field(const char* name, T& value) {
    know(name);
    const auto* node = section_.find(name);
    if (node == nullptr) return;
    const auto path = full(name);
    if constexpr (has_kinds<T>) {
      decode_kind(*node, path, value);
    } else if constexpr (requires(SectionDecoder & d) { visit(d, value); }) {
      decode_section(*node, path, value, "");
    } else {
      decode(*node, path, value);
      provenance_[path] = node->location;
    }
  }

  template <class T>
  void decode_section(const ConfigNode& node, const std::string& path, T& value, std::string context) {
    if (node.kind != ConfigNode::Kind::map) refuse_plain_value(node, path, value);
    SectionDecoder inner(node, path, provenance_);
    inner.set_context(std::move(context));
    visit(inner, value);
    inner.refuse_unknown_keys();
  }

  template <class T>
  [[noreturn]] void refuse_plain_value(const ConfigNode& node, const std::string& path, T& section) const {
    const ConfigNode nothing;
    SectionDecoder keys(nothing, path, provenance_);
    visit(keys, section);
    const bool is_override = node.location.line == 0;
    fail(node, path,
         fmt::format("expected a {}, got {} (keys here: {})", is_override ? "section" : "section of 'key: value' lines",
                     node.describe(), fmt::join(keys.known_, ", ")));
  }

  // `mixer: metric` is short for `mixer: {kind: metric}`.
  template <class V>
  void decode_kind(const ConfigNode& node, const std::string& path, V& value) {
    const auto kinds = kinds_of<V>();
    if (node.kind == ConfigNode::Kind::scalar) return choose_kind(node, path, path, value);
    if (node.kind != ConfigNode::Kind::map)
      fail_type(node, path, fmt::format("{}, or a section like {{kind: {}}}", join_alternatives(kinds), kinds.front()));
    if (const auto* kind = node.find("kind")) choose_kind(*kind, path, path + ".kind", value);
    SectionDecoder inner(node, path, provenance_);
    inner.know("kind");
    inner.set_context(fmt::format(" for {} '{}'", path_.empty() ? path : "kind", kind_of(value)));
    visit_kind(value, [&](auto& options) { visit(inner, options); });
    inner.refuse_unknown_keys();
  }

  template <class V>
  void choose_kind(const ConfigNode& node, const std::string& section, const std::string& path, V& value) {
    const auto kinds = kinds_of<V>();
    const auto& name = scalar_of(node, path, join_alternatives(kinds));
    auto made = make_kind<V>(name);
    if (!made)
      fail(node, path,
           fmt::format("unknown value {}; expected {}{}", in_quotes(name), join_alternatives(kinds),
                       did_you_mean(name, kinds)));
    if (kind_of(*made) != kind_of(value)) {
      value = *made;
      forget(section);
    }
    provenance_[section + ".kind"] = node.location;
  }

  // The options of the kind that was replaced are gone, and so is who set them.
  void forget(const std::string& path) {
    std::erase_if(provenance_, [&](const auto& entry) { return entry.first.starts_with(path + "."); });
  }

  const ConfigNode& section_;
  std::string path_;
  Provenance& provenance_;
  std::vector<std::string> known_;
  std::string context_;
};

}  // namespace

void apply_source(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance) {
  switch_kinds(source, config, provenance);
  SectionDecoder decoder(source, "", provenance);
  decoder.know("base");  // taken out of the source by the loader; here only so that it is suggested
  visit(decoder, config);
  decoder.refuse_unknown_keys();
}

}  // namespace metaformer
