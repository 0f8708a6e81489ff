#include "config_reader/key_notation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace metaformer {

namespace {

// Of the part of `section` that ends before `end`, and what lies in it.
std::string nested(std::string_view section, std::size_t end, std::string_view entries, std::string_view kind) {
  const auto outer = section.substr(0, end);
  const bool has_kind = kind.starts_with(outer) && kind.substr(outer.size()).starts_with(": ");
  const auto chosen = has_kind ? fmt::format("kind: {}, ", kind.substr(outer.size() + 2)) : "";
  const auto inner =
      end == std::string_view::npos ? std::string(entries) : nested(section, section.find('.', end + 1), entries, kind);
  return fmt::format("{}: {{{}{}}}", last_part(outer), chosen, inner);
}

bool is_plain_word(std::string_view text) {
  constexpr std::size_t longest = 60;
  return !text.empty() && text.size() <= longest && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_.+-/").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

}  // namespace

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

std::string_view section_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? "" : path.substr(0, dot);
}

std::string as_yaml(std::string_view section, std::string_view entries, std::string_view kind) {
  return nested(section, section.find('.'), entries, kind);
}

std::string as_override(std::string_view path, const ConfigNode& value) {
  const bool is_shown = value.kind == ConfigNode::Kind::scalar && is_plain_word(value.scalar);
  return fmt::format("--set {}={}", path, is_shown ? value.scalar : "...");
}

bool is_override(const Location& where) { return where.line == 0; }

}  // namespace metaformer
