#include "config/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/whole_number.h"
#include "config/key_suggestions.h"
#include "config/unused_keys.h"

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

void decode(const ConfigNode& node, const std::string& path, std::string& value) {
  value = scalar_of(node, path, "a text");
  if (value.empty()) fail_type(node, path, "a text");
}

void decode(const ConfigNode& node, const std::string& path, PoolingWindow& value) {
  const auto& text = scalar_of(node, path, "a number of tokens or 'all'");
  if (text == "all") {
    value.tokens = 0;
  } else if (parse_whole_number(text, value.tokens) != WholeNumber::valid || value.tokens < 1) {
    fail_type(node, path, "a number of tokens (at least 1) or 'all'");
  }
}

template <class T>
void decode(const ConfigNode& node, const std::string& path, std::optional<T>& value) {
  if (node.kind == ConfigNode::Kind::null) return value.reset();
  decode(node, path, value.emplace());
}

void decode(const ConfigNode& node, const std::string& path, std::array<double, 2>& value) {
  if (node.kind != ConfigNode::Kind::sequence || node.items.size() != 2) fail_type(node, path, "a list of 2 numbers");
  for (std::size_t i = 0; i < 2; ++i) decode(node.items[i], path, value[i]);
}

template <class E>
requires std::is_enum_v<E>
void decode(const ConfigNode& node, const std::string& path, E& value) {
  const auto names = names_of<E>();
  const auto& text = scalar_of(node, path, join_alternatives(names));
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end())
    fail(node, path,
         fmt::format("unknown value {}; expected {}{}", in_quotes(text), join_alternatives(names),
                     did_you_mean(text, names)));
  value = static_cast<E>(found - names.begin());
}

class LayerDecoder {
 public:
  LayerDecoder(const ConfigNode& section, std::string path, Provenance& provenance)
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

  // A key that no field took: of another kind, or misspelt.
  void refuse_unknown_keys() const {
    for (const auto& [key, value] : section_.entries) {
      if (std::find(known_.begin(), known_.end(), key.name) == known_.end()) {
        const auto hint = suggest_key(full(key.name), known_);
        const auto all = known_.empty() ? " (no keys here)" : fmt::format(" (keys here: {})", fmt::join(known_, ", "));
        throw Error(ExitCode::usage, fmt::format("{}: {}: unknown key{}{}", key.location.str(),
                                                 printable(full(key.name)), context_, hint.empty() ? all : hint));
      }
    }
  }

  void know(const char* name) { known_.emplace_back(name); }
  void set_context(std::string context) { context_ = std::move(context); }

 private:
  std::string full(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }

  // A number that no layer above could mend, since it cannot be held.
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
    if constexpr (is_variant<T>) {
      decode_kind(*node, path, value);
    } else if constexpr (requires(LayerDecoder & d) { visit(d, value); }) {
      decode_section(*node, path, value);
    } else {
      decode(*node, path, value);
      provenance_[path] = node->location;
    }
  }

  template <class T>
  void decode_section(const ConfigNode& node, const std::string& path, T& value) {
    if (node.kind != ConfigNode::Kind::map) fail_type(node, path, "a section of 'key: value' lines");
    LayerDecoder inner(node, path, provenance_);
    visit(inner, value);
    inner.refuse_unknown_keys();
  }

  template <class V>
  void decode_kind(const ConfigNode& node, const std::string& path, V& value) {
    const auto kinds = kinds_of<V>();
    if (node.kind != ConfigNode::Kind::map)
      fail_type(node, path, fmt::format("a section like {{kind: {}}}", kinds.front()));
    if (const auto* kind = node.find("kind")) {
      const auto& name = scalar_of(*kind, path + ".kind", join_alternatives(kinds));
      auto made = make_kind<V>(name);
      if (!made)
        fail(*kind, path + ".kind",
             fmt::format("unknown value {}; expected {}{}", in_quotes(name), join_alternatives(kinds),
                         did_you_mean(name, kinds)));
      if (made->index() != value.index()) {
        value = *made;
        forget(path);
      }
      provenance_[path + ".kind"] = kind->location;
    }
    LayerDecoder inner(node, path, provenance_);
    inner.know("kind");
    inner.set_context(fmt::format(" for kind '{}'", kind_of(value)));
    std::visit([&](auto& options) { visit(inner, options); }, value);
    inner.refuse_unknown_keys();
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

void forget_if(Provenance& provenance, const std::function<bool(std::string_view)>& is_gone) {
  std::erase_if(provenance, [&](const auto& entry) { return is_gone(entry.first); });
}

// What the lower layers say of networks and of steps, when a layer makes the model linear.
void drop_keys_of_networks(ExperimentConfig& config, Provenance& provenance) {
  const auto model = std::exchange(config.model, ModelConfig{});
  const auto train = std::exchange(config.train, TrainConfig{});
  config.model.context = model.context;
  config.model.linear = model.linear;
  config.train.batch_size = train.batch_size;
  config.train.precision = train.precision;
  config.train.keep_checkpoints = train.keep_checkpoints;
  config.train.selection_metric = train.selection_metric;
  config.train.overfit_batch = train.overfit_batch;
  config.train.seed = train.seed;
  forget_if(provenance, [](std::string_view key) {
    return (key.starts_with("model.") || key.starts_with("train.")) && !applies_to_linear(key);
  });
}

// As with the kinds of other sections: a kind that differs from the lower layers' drops what these say of the other.
void drop_keys_of_other_kind(const ConfigNode& layer, ExperimentConfig& config, Provenance& provenance) {
  const auto* model = layer.find("model");
  const auto* kind = model != nullptr ? model->find("kind") : nullptr;
  if (kind == nullptr || kind->scalar == to_string(config.model.kind)) return;
  if (kind->scalar == to_string(ModelKind::linear)) {
    drop_keys_of_networks(config, provenance);
  } else {
    config.model.linear = LinearConfig{};
    forget_if(provenance, [](std::string_view key) { return key.starts_with("model.linear."); });
  }
}

}  // namespace

void apply_layer(const ConfigNode& layer, ExperimentConfig& config, Provenance& provenance) {
  drop_keys_of_other_kind(layer, config, provenance);
  LayerDecoder decoder(layer, "", provenance);
  decoder.know("base");  // taken out of the layer by the loader; here only so that it is suggested
  visit(decoder, config);
  decoder.refuse_unknown_keys();
}

}  // namespace metaformer
