#include "data/labelled.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <unordered_set>

#include "base/digest.h"
#include "base/log.h"
#include "base/random.h"
#include "base/signals.h"
#include "base/text.h"
#include "data/corpus.h"
#include "data/imdb.h"
#include "text/make_tokenizer.h"

namespace metaformer {

TableColumns columns_of(const LabelledDataConfig& config) {
  const LabelledDataConfig usual;
  return {.columns = {{config.text_field, "data.text_field", "text"},
                      {.field = config.label_field, .key = "data.label_field", .role = "label", .is_label = true}},
          .are_usual = config.text_field == usual.text_field && config.label_field == usual.label_field,
          .header = config.header};
}

namespace {

// Why the label is no rating, or "".
std::string defect_of_rating(const std::string& label, std::optional<double> rating, const RatingConfig& config) {
  if (!rating || !std::isfinite(*rating))
    return fmt::format("the label {} is not a number, as data.rating asks", in_quotes(label));
  if (config.lowest && *rating < *config.lowest)
    return fmt::format("the rating {} is below data.rating.lowest {}", *rating, *config.lowest);
  if (config.highest && *rating > *config.highest)
    return fmt::format("the rating {} is above data.rating.highest {}", *rating, *config.highest);
  return "";
}

// Refuses a first row that looks like a header, because it would add a class. Not checked if data.header or data.rating
// is set.
void refuse_header_as_row(const Table& table, const LabelledDataConfig& config) {
  constexpr std::size_t fewest = 5;
  if (table.format == TableFormat::jsonl || table.has_header || table.rows.size() < fewest) return;
  if (config.header != TableHeader::automatic || config.rating.positive_from) return;
  std::map<std::string_view, int> counts;
  for (const auto& row : table.rows) ++counts[row.fields[1]];
  // Its label occurs only once, while every other label is repeated.
  const auto& first = table.rows.front();
  const auto singles = std::count_if(counts.begin(), counts.end(), [](const auto& entry) { return entry.second == 1; });
  if (singles != 1 || counts[first.fields[1]] != 1) return;
  fail_data(
      "{}: looks like a header: no other row has the label {}. Name its columns by data.text_field and "
      "data.label_field, or set data.header to present or absent",
      table.place(first), in_quotes(first.fields[1]));
}

std::vector<LabelledText> read_texts(const std::string& path, const LabelledDataConfig& config, const std::string& name,
                                     nlohmann::ordered_json& descriptions) {
  auto table = read_labelled_table(path, config, has_training_header(descriptions));
  auto& description = descriptions[name] = description_of(table, "rows");
  description["left_out"] = table.left_out;
  std::vector<LabelledText> texts;
  for (auto& row : table.rows) texts.push_back({std::move(row.fields[0]), std::move(row.fields[1]), table.place(row)});
  return texts;
}

bool names_public_corpus(const LabelledDataConfig& config) { return config.corpus != LabelledDataConfig().corpus; }

std::filesystem::path locate_public_corpus(const LabelledDataConfig& config, bool offline) {
  const auto& corpus = find_public_corpus(config.corpus);
  const auto refuse_if = [&](bool is_set, std::string_view key, const std::string& why) {
    if (is_set) fail_usage("data.{}: {} {}", key, corpus.name, why);
  };
  refuse_if(corpus.task != ClassificationConfig::kind, "corpus",
            "has no labels; task classification takes imdb, or a table that data.path names");
  refuse_if(config.validation_path.has_value(), "validation_path", "brings its own splits");
  refuse_if(config.test_path.has_value(), "test_path", "brings its own splits");
  refuse_if(config.rating.positive_from.has_value(), "rating.positive_from", "brings its own classes");
  if (config.path && format_by_name(*config.path).value_or(TableFormat::text) != TableFormat::text)
    fail_usage(
        "data.path: {} is a table, and with data.corpus {} it names that corpus's archive or folder; for a table take "
        "a config without data.corpus, such as text_classifier.yaml, or for a linear model text_classifier.yaml --set "
        "model=linear",
        *config.path, corpus.name);
  return config.path ? std::filesystem::path(*config.path) : obtain_corpus(corpus, offline);
}

// Adds the texts of data.extra_path to the training texts, except those of the held-out splits: a model must not be
// trained on texts that it is evaluated on.
void add_extra_texts(const LabelledDataConfig& config, LabelledSplits& splits) {
  std::unordered_set<std::string_view> held_out;
  for (const auto split : held_out_splits)
    for (const auto& text : splits[split]) held_out.insert(text.text);
  std::set<std::string> labels;
  for (const auto& text : splits[Split::train]) labels.insert(text.label);
  auto extra = read_texts(*config.extra_path, config, "extra", splits.description);
  for (const auto& text : extra)
    if (!labels.contains(text.label))
      fail_data("{}: data.extra_path: the label {} is none of the training texts': {}", text.place,
                in_quotes(text.label), fmt::join(labels, ", "));
  const auto copies = std::erase_if(extra, [&](const auto& text) { return held_out.contains(text.text); });
  std::ranges::move(extra, std::back_inserter(splits[Split::train]));
  splits.description["extra"]["copies_of_held_out"] = copies;
  if (copies > 0)
    log::warning("{}: {} texts also stand in the validation or test split and are left out", *config.extra_path,
                 copies);
}

// Labels in order: by value if all are integers, else by bytes.
std::vector<std::string> sorted_labels(const std::vector<LabelledText>& texts) {
  std::set<std::string> distinct;
  for (const auto& text : texts) distinct.insert(text.label);
  std::vector<std::string> labels(distinct.begin(), distinct.end());
  const auto value = [](const std::string& label) { return as_number<std::int64_t>(label); };
  if (std::ranges::all_of(labels, [&](const auto& label) { return value(label).has_value(); }))
    std::ranges::stable_sort(labels, {}, value);
  return labels;
}

// data.tokenizer.sampling: the power of probabilities in the segmentations of training texts; 0: no resampling.
double sampling_of(const TokenizerOptions& options) {
  const auto* unigram = std::get_if<UnigramTokenizerOptions>(&options);
  return unigram == nullptr ? 0 : unigram->sampling;
}

// A batch of the rows from `first` to before `last`. `text_of(row)` returns the tokens and the label of a row.
template <class TextOf>
LabelledRows batch_of(std::int64_t first, std::int64_t last, TextOf text_of) {
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::int64_t> labels;
  for (auto row = first; row < last; ++row) {
    auto [of_row, label] = text_of(row);
    ids.push_back(std::move(of_row));
    labels.push_back(label);
  }
  auto batch = pad_rows({ids.begin(), ids.end()});
  batch.labels = std::move(labels);
  return batch;
}

}  // namespace

void classify_ratings(Table& table, const RatingConfig& rating) {
  if (!rating.positive_from) return;
  for (auto& row : std::exchange(table.rows, {})) {
    auto& label = row.fields[1];
    const auto value = as_number<double>(label);
    if (auto why = defect_of_rating(label, value, rating); !why.empty()) {
      table.malformed.push_back({row.line, std::move(why)});
    } else if (value < rating.positive_from && rating.negative_to && value > rating.negative_to) {
      ++table.left_out;
    } else {
      label = value >= rating.positive_from ? "positive" : "negative";
      table.rows.push_back(std::move(row));
    }
  }
  std::ranges::sort(table.malformed, {}, &MalformedRow::line);
}

Table read_labelled_table(const std::filesystem::path& path, const LabelledDataConfig& config, bool follows_header) {
  auto columns = columns_of(config);
  columns.follows_header = follows_header;
  auto table = read_table(path, config.format, columns);
  classify_ratings(table, config.rating);
  check_rows(table, columns, config.malformed_limit,
             table.left_out == 0
                 ? "the table has no rows"
                 : fmt::format("all {} ratings lie between data.rating.negative_to and data.rating.positive_from",
                               table.left_out));
  refuse_header_as_row(table, config);
  if (table.left_out > 0)
    log::info("{}: {} of {} ratings lie between data.rating.negative_to and data.rating.positive_from and are left out",
              path.string(), table.left_out, table.all_rows());
  return table;
}

LabelledSources labelled_sources(const LabelledDataConfig& config, bool offline) {
  LabelledSources sources;
  const auto add = [&](const char* name, const std::optional<PathText>& path) {
    if (path) sources.emplace_back(name, *path);
  };
  if (names_public_corpus(config)) {
    sources.emplace_back("train", locate_public_corpus(config, offline));
  } else if (!config.path) {
    fail_usage(
        "data.path is not set; task classification needs a table of texts and labels, or --set data.corpus=imdb");
  } else {
    add("train", config.path);
    add("validation", config.validation_path);
    add("test", config.test_path);
  }
  add("extra", config.extra_path);
  return sources;
}

LabelledSplits load_labelled_splits(const LabelledDataConfig& config, bool offline) {
  LabelledSplits splits;
  for (const auto& [name, path] : labelled_sources(config, offline)) {
    if (name == "extra") {
      add_extra_texts(config, splits);
    } else if (names_public_corpus(config)) {
      splits = load_imdb(path, config);
    } else {
      for (const auto split : every_split)
        if (name == to_string(split)) splits[split] = read_texts(path.string(), config, name, splits.description);
      if (name == "train" && !config.validation_path)
        hold_out(splits, &LabelledText::text, config, "texts",
                 fmt::format(", or look whether column {} holds the texts", in_quotes(config.text_field)));
    }
  }
  return splits;
}

std::string joined_texts(const std::vector<LabelledText>& texts) {
  std::string all;
  for (const auto& text : texts) (all += text.text) += '\n';
  return all;
}

EncodedSplits encode_splits(LabelledSplits splits, const LabelledDataConfig& config, Codec codec) {
  EncodedSplits encoded;
  encoded.description = std::move(splits.description);
  const auto& training = splits[Split::train];
  if (!codec.tokenizer) codec.tokenizer = obtain_tokenizer(config, joined_texts(training), Unknown::map);
  if (codec.labels.empty()) codec.labels = sorted_labels(training);
  if (codec.labels.size() < 2)
    fail_data("{}: every row has the label {}; classification needs two or more", training.front().place,
              in_quotes(training.front().label));
  for (const auto split : every_split) {
    const bool keep_texts = split == Split::train && sampling_of(config.tokenizer) > 0;
    auto& digest = encoded.text_digests[split];
    for (auto& [text, label, place] : splits[split]) {
      throw_if_stopped();
      digest = sha256(digest + sha256(text));
      if (split == Split::train) encoded.training_bytes += std::ssize(text);
      const auto known = std::ranges::find(codec.labels, label);
      if (known == codec.labels.end())
        fail_data("{}: the label {} is not among the {} of the training texts{}", place, in_quotes(label),
                  codec.labels.size(), did_you_mean(label, codec.labels));
      auto& [ids, class_id, kept_text] = encoded[split].emplace_back();
      ids = codec.tokenizer->encode(text);
      if (ids.empty()) fail_data("{}: the text has no token", place);
      ids.shrink_to_fit();
      class_id = known - codec.labels.begin();
      if (keep_texts) kept_text = std::move(text);
    }
  }
  encoded.codec = std::move(codec);
  return encoded;
}

BatchOptions BatchOptions::of(const ExperimentConfig& config) {
  const auto& task = classification(config);
  return {.context = context_of(config.model),
          .truncation = task.truncation,
          .sampling = sampling_of(task.data.tokenizer),
          .token_removal = task.token_removal,
          .token_unknown = task.token_unknown,
          .bucketing = task.bucketing,
          .packing = task.data.packing};
}

LabelledDataset::LabelledDataset(EncodedSplits splits, const BatchOptions& options)
    : splits_(std::move(splits)), options_(options) {
  if (options.token_unknown > 0 && !codec().tokenizer->unknown_id())
    fail_usage("task.token_unknown: this tokenizer has no unknown token; set it to 0");
  for (const auto split : every_split) {
    cut_count_ +=
        std::ranges::count_if(texts(split), [&](const auto& text) { return std::ssize(text.ids) > options.context; });
    auto& order = source_order_[split];
    order.resize(texts(split).size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (split == Split::train) continue;
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t place) { return texts(split)[place].ids.size(); });
    std::vector<EncodedText> sorted;
    for (const auto place : order) sorted.push_back(std::move(splits_[split][place]));
    splits_[split] = std::move(sorted);
  }
  std::vector<double> expected;
  std::vector<std::int64_t> longest;  // noise can only make a text shorter
  for (const auto& text : texts(Split::train)) {
    expected.push_back(expected_length(text));
    longest.push_back(std::min(std::ssize(text.ids), options.context));
  }
  order_.emplace(std::move(expected), options.bucketing);
  if (packing_options(options.packing) != nullptr) packs_.emplace(longest, options.context, options.packing);
}

double LabelledDataset::expected_length(const EncodedText& text) const {
  return std::min(static_cast<double>(text.ids.size()) * (1 - options_.token_removal),
                  static_cast<double>(options_.context));
}

double LabelledDataset::bytes_per_token() const {
  double tokens = 0;
  for (const auto& text : texts(Split::train)) tokens += static_cast<double>(text.ids.size());
  return static_cast<double>(splits_.training_bytes) / tokens;
}

double LabelledDataset::mean_length() const {
  double tokens = 0;
  for (const auto& text : texts(Split::train)) tokens += expected_length(text);
  return tokens / static_cast<double>(count(Split::train));
}

// The ids of a text with noise, cut to the context.
std::vector<std::int32_t> LabelledDataset::noisy_ids(const EncodedText& text, std::uint64_t seed,
                                                     std::int64_t place) const {
  constexpr auto beyond_places = std::uint64_t{1} << 63;  // random streams separate from those of places
  const auto stream = static_cast<std::uint64_t>(place);
  auto ids = options_.sampling == 0
                 ? text.ids
                 : codec().tokenizer->encode_sampled(text.text, options_.sampling,
                                                     Rng(seed, RandomPurpose::noise, beyond_places + stream));
  const double removal = options_.token_removal, either = removal + options_.token_unknown;
  if (either > 0) {
    const Rng rng(seed, RandomPurpose::noise, stream);
    const auto unknown = codec().tokenizer->unknown_id().value_or(0);
    const auto first = ids.front();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const double draw = rng.uniform(i);
      if (draw < removal) continue;
      ids[kept++] = draw < either ? unknown : ids[i];
    }
    ids.resize(kept);
    if (ids.empty()) ids.push_back(first);
  }
  truncate(ids, options_.context, options_.truncation);
  return ids;
}

LabelledRows LabelledDataset::training_rows(std::uint64_t seed, std::int64_t step, std::int64_t rows_per_step,
                                            std::int64_t first, std::int64_t rows) const {
  return batch_of(first, first + rows, [&](std::int64_t row) {
    const auto place = order_->place(seed, step, rows_per_step, row);
    const auto& text = texts(Split::train)[order_->item_at(seed, place)];
    return std::pair(noisy_ids(text, seed, place), text.label);
  });
}

LabelledRows LabelledDataset::training_packs(std::uint64_t seed, std::int64_t first, std::int64_t rows) const {
  std::deque<std::vector<std::int32_t>> texts_of_packs;  // a deque, so that spans of them stay valid
  std::vector<std::vector<std::span<const std::int32_t>>> packs;
  std::vector<std::int64_t> labels;
  for (auto place = first; place < first + rows; ++place) {
    auto& pack = packs.emplace_back();
    for (const auto index : packs_->at(seed, place)) {
      const auto& text = texts(Split::train)[index];
      const auto of_epochs = place / packs_->packs() * count(Split::train) + static_cast<std::int64_t>(index);
      pack.push_back(texts_of_packs.emplace_back(noisy_ids(text, seed, of_epochs)));
      labels.push_back(text.label);
    }
  }
  auto batch = pack_rows(packs);
  batch.labels = std::move(labels);
  return batch;
}

std::pair<std::vector<std::int32_t>, std::int64_t> LabelledDataset::row_of(Split split, std::size_t index) const {
  const auto& text = texts(split)[index];
  auto ids = text.ids;
  truncate(ids, options_.context, options_.truncation);
  return {std::move(ids), text.label};
}

LabelledRows LabelledDataset::rows(Split split, std::int64_t first, std::int64_t rows) const {
  return batch_of(first, std::min(first + rows, count(split)),
                  [&](std::int64_t row) { return row_of(split, static_cast<std::size_t>(row)); });
}

// These rows are in the order of the first epoch.
LabelledRows LabelledDataset::distinct_training_rows(std::uint64_t seed, std::int64_t first, std::int64_t rows) const {
  return batch_of(first, std::min(first + rows, count(Split::train)),
                  [&](std::int64_t place) { return row_of(Split::train, order_->item_at(seed, place)); });
}

LabelledRows LabelledDataset::random_rows(Split split, std::uint64_t seed, std::int64_t index,
                                          std::int64_t rows) const {
  const Rng rng(seed, RandomPurpose::evaluation, static_cast<std::uint64_t>(index));
  return batch_of(0, rows, [&](std::int64_t row) {
    return row_of(split, rng.below(static_cast<std::uint64_t>(row), texts(split).size()));
  });
}

}  // namespace metaformer
