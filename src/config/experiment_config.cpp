#include "config/experiment_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <type_traits>

namespace metaformer {

bool Range::contains(double value) const {
  if (!(std::abs(value) <= largest_number)) return false;  // this also excludes NaN
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string Range::str() const {
  std::string text;
  if (std::isfinite(low)) text += fmt::format("{} {}", low_open ? "above" : "at least", low);
  if (std::isfinite(high))
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ", high_open ? "below" : "at most", high);
  return text.empty() ? "finite" : text;
}

std::vector<std::string> Kinds::names() const {
  std::vector<std::string> names;
  for (const auto& kind : kinds) names.push_back(kind.name);
  return names;
}

bool Kinds::is_list() const { return items && !items().empty(); }

namespace {

template <class T>
std::vector<Field> list_fields(T& section);

template <class T, class... Types>
constexpr bool is_one_of(std::variant<Types...>*) {
  return (std::is_same_v<T, Types> || ...);
}

template <class... Options>
Kinds kinds_in(std::variant<Options...>& value) {
  return {.kinds = {{std::string(Options::kind), std::string(Options::summary)}...},
          .current = [&value] { return std::string(kind_of(value)); },
          .select = [&value](const std::string& name) { value = *make_kind<std::variant<Options...>>(name); },
          .fields = [&value] { return std::visit([](auto& options) { return list_fields(options); }, value); }};
}

template <class T>
Field::Value value_in(T& value) {
  if constexpr (is_one_of<T*>(static_cast<Field::Value*>(nullptr)))
    return &value;
  else if constexpr (std::is_enum_v<T>)
    return Enumeration{names_of<T>(), [&value] { return static_cast<std::size_t>(value); },
                       [&value](std::size_t index) { value = static_cast<T>(index); }};
  else if constexpr (requires { T::expected; })
    return TextForm{T::expected,
                    T::type,
                    T::word,
                    T::fewest,
                    T::step,
                    [&value] { return value.write(); },
                    [&value](const std::string& text) { return value.read(text); }};
  else if constexpr (requires { std::variant_size<T>::value; })
    return kinds_in(value);
  else
    return Section{"", [&value] { return list_fields(value); }};
}

// The one visitor of config structs: makes the list of their fields.
struct FieldList {
  std::vector<Field> fields;

  template <class T>
  void operator()(const char* name, T& value, const char* help) {
    static_assert(!std::is_same_v<T, std::int64_t> && !std::is_same_v<T, double>, "a number has a range");
    fields.push_back({name, help, std::nullopt, value_in(value)});
  }
  template <class T>
  void operator()(const char* name, T& value, const Range& range, const char* help) {
    fields.push_back({name, help, range, value_in(value)});
  }
  // One kind, or a list of items.
  template <class V, class Item>
  void operator()(const char* name, V& variant, std::vector<Item>& list, const char* help) {
    auto kinds = kinds_in(variant);
    kinds.items = [&list] {
      std::vector<Field> sections;
      for (auto& item : list) sections.push_back({std::to_string(sections.size()), "", std::nullopt, value_in(item)});
      return sections;
    };
    kinds.resize = [&list](std::size_t count) { list.assign(count, Item{}); };
    fields.push_back({name, help, std::nullopt, std::move(kinds)});
  }
  // A section that belongs to the chosen kind of `owner`: section(options). Kinds whose options `section` does not
  // accept have no such section.
  template <class V, class Find>
  void section_of(const char* name, const char* owner, V& variant, const Find& section) {
    const auto list = [&variant, section] {
      return std::visit(
          [&](auto& options) -> std::vector<Field> {
            if constexpr (std::is_invocable_v<Find, decltype(options)>) return list_fields(section(options));
            return {};
          },
          variant);
    };
    fields.push_back({name, "", std::nullopt, Section{owner, list}});
  }
};

template <class T>
std::vector<Field> list_fields(T& section) {
  FieldList list;
  if constexpr (requires { section.visit(list); }) section.visit(list);
  return std::move(list.fields);
}

void add_rows(const std::vector<Field>& fields, const std::string& prefix, std::vector<Row>& rows) {
  for (const auto& field : fields) {
    const auto path = prefix + field.name;
    if (const auto* section = std::get_if<Section>(&field.value)) {
      add_rows(section->fields(), path + ".", rows);
      continue;
    }
    const auto* kinds = std::get_if<Kinds>(&field.value);
    const bool is_list = kinds != nullptr && kinds->is_list();
    if (!is_list) rows.push_back({path, field});
    if (kinds != nullptr) add_rows(is_list ? kinds->items() : kinds->fields(), path + ".", rows);
  }
}

std::map<std::string, std::string> data_paths_in(ExperimentConfig& config) {
  std::map<std::string, std::string> paths;
  for (const auto& [key, path] : paths_in(config))
    if (key.starts_with("data.") && key.rfind('.') == key.find('.')) paths[key] = path == nullptr ? "" : *path;
  return paths;
}

// Whether there are tables with a row for each word or n-gram, of which a batch reads few rows.
bool has_large_tables(const ExperimentConfig& config) {
  const auto* model = blocks_of(config.model);
  if (model != nullptr && (has_regions(model->embedding) || model->embedding.ngrams.order > 1)) return true;
  const auto* classifier = std::get_if<ClassificationConfig>(&config.task);
  return classifier != nullptr && bag_options(classifier->head) != nullptr;
}

// Whether a batch has a fixed number of rows, which are texts of different lengths.
bool is_padded(const TaskConfig& task) {
  return is<ClassificationConfig>(task) || (is<SequenceToSequenceConfig>(task) && !batches_by_tokens(task));
}

}  // namespace

std::vector<Field> fields_of(ExperimentConfig& config) { return list_fields(config); }

std::vector<Row> rows_of(ExperimentConfig& config) {
  std::vector<Row> rows;
  add_rows(fields_of(config), "", rows);
  return rows;
}

std::string with_seed(std::string path, const TrainConfig& train) {
  constexpr std::string_view name = "{seed}";
  const auto seed = std::to_string(train.seed);
  for (auto at = path.find(name); at != std::string::npos; at = path.find(name, at + seed.size()))
    path.replace(at, name.size(), seed);
  return path;
}

LabelledDataConfig labelled_data(const ExperimentConfig& config) {
  auto data = classification(config).data;
  if (data.extra_path) data.extra_path = with_seed(*data.extra_path, config.train);
  return data;
}

std::vector<std::pair<std::string, PathText*>> paths_in(ExperimentConfig& config) {
  std::vector<std::pair<std::string, PathText*>> paths;
  for (const auto& [key, field] : rows_of(config)) {
    if (const auto* path = std::get_if<PathText*>(&field.value))
      paths.emplace_back(key, (*path)->empty() ? nullptr : *path);
    if (const auto* path = std::get_if<std::optional<PathText>*>(&field.value))
      paths.emplace_back(key, **path ? &***path : nullptr);
  }
  return paths;
}

std::vector<std::string> moved_data(ExperimentConfig before, ExperimentConfig now) {
  const auto earlier = data_paths_in(before);
  std::vector<std::string> moved;
  for (const auto& [key, path] : data_paths_in(now))
    if (const auto found = earlier.find(key); found != earlier.end() && found->second != path) moved.push_back(key);
  return moved;
}

bool is_data_path(ExperimentConfig config, const std::string& key) { return data_paths_in(config).contains(key); }

EmbeddingScale default_embedding_scale(const ModelConfig& model) {
  const auto* blocks = blocks_of(model);
  const bool adds_sinusoids = blocks != nullptr && is<SinusoidalPositionsConfig>(blocks->positions);
  return adds_sinusoids && !has_regions(blocks->embedding) ? EmbeddingScale::sqrt_width : EmbeddingScale::none;
}

void set_embedding_scale(ModelConfig& model, EmbeddingScale scale) {
  const auto set = [&](auto& options) {
    if constexpr (requires { options.positions; }) options.embedding.scale = scale;
  };
  std::visit(set, model);
}

std::int64_t default_slices(const ExperimentConfig& config) {
  constexpr std::int64_t features = 384 * 128, most = 8, widest = 384;
  const auto width = width_of(config.model);
  if (is<LinearConfig>(config.model) || width > widest || has_large_tables(config)) return 1;
  const auto tokens = most_batch_tokens(config) / (is_padded(config.task) ? 4 : 1);
  return std::clamp<std::int64_t>(tokens * width / features, 1, most);
}

void derive_defaults(ExperimentConfig& config, const Provenance& provenance) {
  const auto lower_floor = [rate = config.train.learning_rate](auto& options) {
    if constexpr (requires { options.floor; })
      if (options.floor > rate) options.floor = rate / 10;
  };
  const auto keep_whitespace = [](auto& options) {
    if constexpr (requires { options.whitespace; }) options.whitespace = Whitespace::kept;
  };
  if (!provenance.contains("train.schedule.floor")) std::visit(lower_floor, config.train.schedule);
  auto* next_token = std::get_if<LanguageModelConfig>(&config.task);
  if (next_token != nullptr && !provenance.contains("data.tokenizer.whitespace"))
    std::visit(keep_whitespace, next_token->data.tokenizer);
  if (!provenance.contains("model.embedding.scale"))
    set_embedding_scale(config.model, default_embedding_scale(config.model));
  if (!provenance.contains("train.cpu_slices")) config.train.cpu_slices = default_slices(config);
}

}  // namespace metaformer
