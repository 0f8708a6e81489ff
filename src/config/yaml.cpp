#include "config/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/files.h"
#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

namespace {

// The bracket that is not closed; "" if the error is another one.
std::string unclosed_bracket(const std::string& message, const std::string& line, int column) {
  if (message == YAML::ErrorMsg::END_OF_SEQ_FLOW) return "[";
  if (message == YAML::ErrorMsg::END_OF_MAP_FLOW) return "{";
  if (message != YAML::ErrorMsg::FLOW_END || column < 0 || static_cast<std::size_t>(column) >= line.size()) return "";
  return line[static_cast<std::size_t>(column)] == '}' ? "[" : "{";
}

// Throws yaml-cpp's error in `text`, in words for the author of a config.
[[noreturn]] void fail_syntax(const YAML::Exception& error, const std::string& text, const std::string& source) {
  const auto& mark = error.mark;
  std::istringstream stream(text);
  std::string line;
  for (int i = 0; i <= mark.line; ++i)
    if (!std::getline(stream, line)) line.clear();
  const Location where{source, mark.line + 1, mark.column + 1};
  if (const auto bracket = unclosed_bracket(error.msg, line, mark.column); !bracket.empty())
    fail_at(where, "not valid YAML: a '{}' is not closed", bracket);
  // yaml-cpp's own message for such a line is that its value is illegal.
  const auto tab = line.substr(0, line.find_first_not_of(" \t")).find('\t');
  if (tab != std::string::npos)
    fail_at({source, where.line, static_cast<int>(tab) + 1}, "indented with a tab; use spaces");
  if (error.msg == YAML::ErrorMsg::END_OF_MAP || error.msg == YAML::ErrorMsg::END_OF_SEQ)
    fail_at(where, "not valid YAML: the indentation of this line is that of no section or list before it");
  fail_at(where, "not valid YAML: {}", error.msg);
}

constexpr std::ptrdiff_t deepest = 32;  // levels

// The bytes that a scalar with the tag `escaped_tag` stands for.
std::string unescape(const std::string& escaped_text, const Location& where) {
  std::string bytes;
  std::string_view text = escaped_text;
  for (auto plain = text.find('\\'); plain != text.npos; plain = text.find('\\')) {
    bytes += text.substr(0, plain);
    text.remove_prefix(plain);
    unsigned byte = '\\';
    const bool is_hex = text.starts_with("\\x") && text.size() >= 4 &&
                        std::from_chars(text.data() + 2, text.data() + 4, byte, 16).ptr == text.data() + 4;
    if (!is_hex && !text.starts_with("\\\\"))
      fail_at(where, "{}: only \\\\ and \\x with two digits may follow {}", in_quotes(escaped_text), escaped_tag);
    bytes += static_cast<char>(byte);
    text.remove_prefix(is_hex ? 4 : 2);
  }
  return bytes += text;
}

// Receives yaml-cpp's events. Events rather than its node graph: they carry marks for keys, keep duplicate keys apart
// and do not expand aliases before we can count.
class TreeBuilder : public YAML::EventHandler {
 public:
  // `has_lines`: whether the text is a file. Otherwise it is an argument, which is the place of all its values.
  TreeBuilder(std::string source, const std::string& text, bool has_lines)
      : source_(std::move(source)), text_(without_byte_order_mark(text)), has_lines_(has_lines) {}

  ConfigNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(ConfigNode{.is_missing = !writes_null(mark), .location = at(mark)}, anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool plain = tag.empty() || tag == "?";
    const bool is_null = plain && (value.empty() || is_null_word(value));
    add(ConfigNode{.kind = is_null ? ConfigNode::Kind::null : ConfigNode::Kind::scalar,
                   .is_missing = plain && value.empty(),
                   .scalar = tag == escaped_tag ? unescape(value, at(mark)) : value,
                   .location = at(mark)},
        anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) fail_at(at(mark), "an alias to a value that is not complete");
    count(found->second, at(mark));
    place(found->second);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(ConfigNode::Kind::sequence, mark, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(ConfigNode::Kind::map, mark, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    ConfigNode node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;
    ConfigKey key;
  };

  static bool is_null_word(std::string_view word) {
    return word == "~" || word == "null" || word == "Null" || word == "NULL";
  }

  // Whether a null is written at the mark. For a missing value the mark is that of the next token.
  bool writes_null(const YAML::Mark& mark) const {
    const auto rest = text_.substr(std::min(text_.size(), static_cast<std::size_t>(std::max(mark.pos, 0))));
    return is_null_word(rest.substr(0, rest.find_first_of(" \t\r\n,]}#:")));
  }

  Location at(const YAML::Mark& mark) const {
    return has_lines_ ? Location{source_, mark.line + 1, mark.column + 1} : Location{source_};
  }

  void open(ConfigNode::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (std::ssize(open_) >= deepest) fail_at(at(mark), "nested deeper than {} levels", deepest);
    if (expects_key()) fail_at(at(mark), "a key must be a plain word");
    count_one(at(mark));
    open_.push_back({.node = ConfigNode{.kind = kind, .location = at(mark)}, .anchor = anchor});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (done.anchor != 0) anchored_[done.anchor] = done.node;
    place(std::move(done.node));
  }

  void add(ConfigNode node, YAML::anchor_t anchor) {
    constexpr std::size_t longest = 4096;
    if (node.scalar.size() > longest)
      fail_at(node.location, "a word of {} bytes; the longest has {}", node.scalar.size(), longest);
    count_one(node.location);
    if (anchor != 0) anchored_[anchor] = node;
    place(std::move(node));
  }

  bool expects_key() const {
    return !open_.empty() && open_.back().node.kind == ConfigNode::Kind::map && !open_.back().has_key;
  }

  void place(ConfigNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (expects_key()) {
      start_entry(node);
    } else if (open_.back().node.kind == ConfigNode::Kind::map) {
      // The mark of an empty value is that of the next token, which may be lines later.
      if (node.kind == ConfigNode::Kind::null) node.location = open_.back().key.location;
      open_.back().node.entries.push_back({std::move(open_.back().key), std::move(node)});
      open_.back().has_key = false;
    } else {
      open_.back().node.items.push_back(std::move(node));
    }
  }

  // "model.mixer." for a key in this section.
  std::string section() const {
    std::string path;
    for (const auto& open : open_)
      if (open.has_key) path += open.key.name + ".";
    return path;
  }

  void start_entry(const ConfigNode& key) {
    if (key.kind != ConfigNode::Kind::scalar) fail_at(key.location, "a key must be a plain word");
    for (const auto& [earlier, value] : open_.back().node.entries)
      if (earlier.name == key.scalar)
        fail_at(key.location, "{}{}: key given twice, first in line {}", section(), key.scalar, earlier.location.line);
    open_.back().key = {key.scalar, key.location};
    open_.back().has_key = true;
  }

  void count_one(const Location& where) {
    constexpr std::size_t most = 10'000;
    if (++values_ > most) fail_at(where, "more than {} values", most);
  }
  void count(const ConfigNode& node, const Location& where) {
    count_one(where);
    for (const auto& item : node.items) count(item, where);
    for (const auto& [key, value] : node.entries) count(value, where);
  }

  std::string source_;
  std::string_view text_;  // marks do not count a byte order mark
  bool has_lines_;
  ConfigNode root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, ConfigNode> anchored_;
  std::size_t values_ = 0;
};

// Turns the plain value NAME, or a list, into {kind: NAME}.
void name_kind(ConfigNode& node) {
  if (node.kind != ConfigNode::Kind::scalar && node.kind != ConfigNode::Kind::sequence) return;
  ConfigNode section{.kind = ConfigNode::Kind::map, .location = node.location};
  section.entries.push_back({ConfigKey{"kind", node.location}, std::move(node)});
  node = std::move(section);
}

}  // namespace

std::string Location::str() const { return line == 0 ? source : fmt::format("{}:{}:{}", source, line, column); }

const ConfigNode* ConfigNode::find(std::string_view name) const {
  for (const auto& [key, value] : entries)
    if (key.name == name) return &value;
  return nullptr;
}

std::string ConfigNode::describe() const {
  if (kind == Kind::scalar) return in_quotes(scalar);
  if (kind == Kind::null) return is_missing ? "nothing" : "null";
  return kind == Kind::sequence ? fmt::format("a list of {}", items.size())
                                : fmt::format("a section of {} keys", entries.size());
}

void fail_type(const ConfigNode& node, const std::string& key, const std::string& expected) {
  fail_at(node.location, "{}: expected {}, got {}", key, expected, node.describe());
}

static ConfigNode parse(const std::string& text, const std::string& source, bool has_lines) {
  const Location start{source, has_lines, has_lines};
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    TreeBuilder builder(source, text, has_lines);
    if (!parser.HandleNextDocument(builder)) return {.is_missing = true, .location = start};
    TreeBuilder second(source, text, has_lines);
    if (parser.HandleNextDocument(second)) fail_at(start, "more than one YAML document in one file");
    return builder.take_root();
  } catch (const YAML::Exception& error) {
    fail_syntax(error, text, source);
  }
}

ConfigNode parse_yaml(const std::string& text, const std::string& source) { return parse(text, source, true); }

ConfigNode read_yaml_file(const std::filesystem::path& path) {
  constexpr std::uintmax_t largest = 1 << 20;
  const auto source = path.string();
  auto root = parse_yaml(read_file(path, largest, ExitCode::usage), source);
  // A copy that failed, for example.
  if (root.kind == ConfigNode::Kind::null) fail_at(root.location, "has no key; expected 'key: value' lines");
  if (root.kind != ConfigNode::Kind::map)
    fail_at(root.location, "expected 'key: value' lines, got {}", root.describe());
  return root;
}

namespace {

// {a: {b: value}} for the path "a.b".
ConfigNode nest(const std::string& path, ConfigNode value, const Location& where) {
  const auto dot = path.find('.');
  const auto name = path.substr(0, dot);
  if (name.empty()) fail_at(where, "expected section.key=value");
  ConfigNode map{.kind = ConfigNode::Kind::map, .location = where};
  map.entries.push_back({ConfigKey{name, where}, dot == std::string::npos
                                                     ? std::move(value)
                                                     : nest(path.substr(dot + 1), std::move(value), where)});
  return map;
}

// Later values replace earlier ones; sections are merged. If one of the two is a section and the other a plain value,
// the value is the section's kind: `mixer: metric` and `mixer: {score_std: 0.3}` are {kind: metric, ...}.
void merge_into(ConfigNode& target, ConfigNode&& layer) {
  for (auto& [key, value] : layer.entries) {
    auto same = std::find_if(target.entries.begin(), target.entries.end(),
                             [&name = key.name](const auto& entry) { return entry.key.name == name; });
    if (same == target.entries.end()) {
      target.entries.push_back({key, std::move(value)});
      continue;
    }
    if (value.kind == ConfigNode::Kind::map) name_kind(same->value);
    if (same->value.kind == ConfigNode::Kind::map) name_kind(value);
    if (same->value.kind == ConfigNode::Kind::map && value.kind == ConfigNode::Kind::map) {
      merge_into(same->value, std::move(value));
    } else {
      *same = {key, std::move(value)};
    }
  }
}

ConfigNode parse_value(const std::string& text, const Location& where) {
  if (trim(text).empty()) return {.is_missing = true, .location = where};
  try {
    return parse(text, where.source, false);
  } catch (const Error&) {  // its line and column within the argument are not helpful
    fail_at(where, "{} is not a valid YAML value", in_quotes(text));
  }
}

}  // namespace

ConfigNode tree_from_overrides(const std::vector<std::string>& overrides) {
  ConfigNode root{.kind = ConfigNode::Kind::map, .location = {"--set", 0, 0}};
  for (const auto& argument : overrides) {
    const Location where{"--set " + argument, 0, 0};
    const auto equals = argument.find('=');
    if (equals == std::string::npos || equals == 0) fail_at(where, "expected section.key=value, without spaces");
    if (std::count(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(equals), '.') >= deepest)
      fail_at({"--set", 0, 0}, "nested deeper than {} levels", deepest);
    auto value = parse_value(argument.substr(equals + 1), where);
    merge_into(root, nest(argument.substr(0, equals), std::move(value), where));
  }
  return root;
}

}  // namespace metaformer
