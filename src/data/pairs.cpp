#include "data/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/corpus.h"
#include "data/epoch_order.h"
#include "data/list_dataset.h"
#include "text/make_tokenizer.h"
#include "text/symbol_tokenizers.h"

namespace metaformer {

TableColumns columns_of(const ParallelDataConfig& config) {
  const ParallelDataConfig usual;
  return {.columns = {{config.source_field, "data.source_field", "source"},
                      {config.target_field, "data.target_field", "target"}},
          .are_usual = config.source_field == usual.source_field && config.target_field == usual.target_field,
          .header = config.header,
          .longest_text = longest_pair_text};
}

Table read_pair_table(const std::filesystem::path& path, const ParallelDataConfig& config, std::string_view target_key,
                      bool follows_header) {
  auto columns = columns_of(config);
  columns.follows_header = follows_header;
  columns.advice = fmt::format("; if the targets are the lines of another file, set {}", target_key);
  auto table = read_table(path, config.format, columns);
  check_rows(table, columns, config.malformed_limit);
  return table;
}

namespace {

struct Lines {
  std::string path, sha256;
  std::vector<std::string> lines;

  std::string place(std::size_t index) const { return fmt::format("{}:{}", path, index + 1); }
};

// Why a line is no text, or "".
std::string defect_of(std::string_view line) {
  if (line.size() > longest_pair_text)
    return fmt::format("the line has {} bytes; at most {} make sense", line.size(), longest_pair_text);
  if (line.find('\0') != std::string_view::npos) return "the line has NUL bytes; a text is UTF-8";
  if (auto why = utf8_defect(line); !why.empty()) return "the line is " + why + "; convert the file to UTF-8";
  return "";
}

Lines read_lines(const std::filesystem::path& path) {
  const auto file = read_text_file(path);
  Lines read{.path = path.string(), .sha256 = file.sha256, .lines = {}};
  for (std::string_view rest = file.text; !rest.empty();) {
    throw_if_stopped();
    auto line = take_line(rest);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const auto why = defect_of(line); !why.empty()) fail_data("{}: {}", read.place(read.lines.size()), why);
    read.lines.emplace_back(line);
  }
  return read;
}

struct SplitPaths {
  Split split;
  std::string_view key, target_key;
  const std::optional<PathText>& path;
  const std::optional<PathText>& target_path;

  bool is_table() const { return path && !target_path; }
};

std::array<SplitPaths, 3> paths_of(const ParallelDataConfig& config) {
  return {{{Split::train, "data.path", "data.target_path", config.path, config.target_path},
           {Split::validation, "data.validation_path", "data.validation_target_path", config.validation_path,
            config.validation_target_path},
           {Split::test, "data.test_path", "data.test_target_path", config.test_path, config.test_target_path}}};
}

// Refuses keys of tables if no split is a table.
void refuse_table_keys(const ParallelDataConfig& config) {
  if (std::ranges::any_of(paths_of(config), &SplitPaths::is_table)) return;
  const auto data = config.path ? std::string("lines of two files") : config.corpus;
  const auto refuse_if = [&](bool is_set, std::string_view key, const std::string& value) {
    if (is_set)
      fail_usage("{}: {} means nothing for {}: it is for tables, which have no target path", key, in_quotes(value),
                 data);
  };
  const ParallelDataConfig usual;
  refuse_if(config.format != usual.format, "data.format", std::string(to_string(config.format)));
  refuse_if(config.header != usual.header, "data.header", std::string(to_string(config.header)));
  refuse_if(config.source_field != usual.source_field, "data.source_field", config.source_field);
  refuse_if(config.target_field != usual.target_field, "data.target_field", config.target_field);
  refuse_if(config.malformed_limit != usual.malformed_limit, "data.malformed_limit",
            fmt::format("{}", config.malformed_limit));
}

void add_lines(const std::string& source, const std::string& target, Split split, PairSplits& splits) {
  auto read = read_line_pairs(source, target);
  splits.description[to_string(split)] = {{"path", source},
                                          {"sha256", read.source_sha256},
                                          {"target_path", target},
                                          {"target_sha256", read.target_sha256},
                                          {"pairs", read.pairs.size()}};
  splits[split] = std::move(read.pairs);
}

PairSplits load_files(const ParallelDataConfig& config) {
  refuse_table_keys(config);
  PairSplits splits;
  auto& descriptions = splits.description;
  for (const auto& [split, key, target_key, path, target_path] : paths_of(config)) {
    if (path && target_path) add_lines(*path, *target_path, split, splits);
    if (path && !target_path) {
      auto table = read_pair_table(*path, config, target_key, has_training_header(descriptions));
      descriptions[to_string(split)] = description_of(table, "pairs");
      for (auto& row : table.rows)
        splits[split].push_back(
            {std::move(row.fields[0]), std::move(row.fields[1]), table.place(row), table.place(row)});
    }
    if (split != Split::train || config.validation_path) continue;
    hold_out(splits, &TextPair::source, config, "sources");
    descriptions["train"]["pairs"] = splits[Split::train].size();
    auto held_out = descriptions["train"];
    held_out["pairs"] = splits[Split::validation].size();
    held_out.erase("malformed");
    descriptions["validation"] = std::move(held_out);
  }
  return splits;
}

PairSplits load_multi30k(const ParallelDataConfig& config, bool offline) {
  if (config.corpus == ParallelDataConfig().corpus)
    fail_usage(
        "data.path is not set; task {} needs pairs of texts: a table, two files of lines, or data.corpus multi30k",
        SequenceToSequenceConfig::kind);
  const auto& corpus = find_public_corpus(config.corpus);
  if (corpus.task != SequenceToSequenceConfig::kind)
    fail_usage("data.corpus: {} has no pairs of texts; task {} takes multi30k, or texts that data.path names",
               corpus.name, SequenceToSequenceConfig::kind);
  for (const auto& paths : paths_of(config))
    if (paths.path)
      fail_usage("{}: {} means nothing beside data.corpus {}, which has its own splits; set one of both", paths.key,
                 in_quotes(*paths.path), config.corpus);
  refuse_table_keys(config);
  const auto &source = config.source_language, &target = config.target_language;
  for (const auto& [key, language] : {std::pair("source", &source), std::pair("target", &target)})
    if ((*language != "de" && *language != "en") || (language == &target && target == source))
      fail_usage("data.{}_language: {}, but the languages of {} are 'de' and 'en', one for each side", key,
                 in_quotes(*language), config.corpus);
  const auto folder = obtain_corpus(corpus, offline);
  check_corpus_files(corpus, folder);
  PairSplits splits;
  splits.description = {{"corpus", corpus.name},
                        {"source_language", config.source_language},
                        {"target_language", config.target_language}};
  const auto file = [&](const char* name, const std::string& language) {
    return (folder / fmt::format("{}.{}.gz", name, language)).string();
  };
  for (const auto& [split, name] : {std::pair(Split::train, "train"), std::pair(Split::validation, "val"),
                                    std::pair(Split::test, "test_2016_flickr")})
    add_lines(file(name, config.source_language), file(name, config.target_language), split, splits);
  return splits;
}

// Lists of random symbols, copied or reversed.
class SyntheticPairDataset final : public PairDataset {
 public:
  SyntheticPairDataset(const SyntheticPairOptions& options, bool reverses, const ExperimentConfig& config)
      : PairDataset({.tokenizer = std::make_unique<NumberTokenizer>(options.symbols), .labels = {}}),
        lists_({.length = options.length, .digits = options.symbols}, "data.synthetic.length, data.synthetic.symbols"),
        reverses_(reverses),
        seed_(static_cast<std::uint64_t>(config.train.seed)),
        rows_(batches_by_tokens(config.task) ? std::max<std::int64_t>(1, config.train.batch_size / (options.length + 1))
                                             : config.train.batch_size) {
    description_ = {{"generator", reverses ? ReversedPairs::kind : CopiedPairs::kind},
                    {"symbols", options.symbols},
                    {"length", options.length},
                    {"validation_pairs", lists_.list_count(Split::validation)}};
    summary_ = fmt::format("{} random symbols out of {} to {} ({} held out)", options.length, options.symbols,
                           reverses ? "reverse" : "copy", lists_.list_count(Split::validation));
    mean_tokens_ = 2 * static_cast<double>(options.length + 1);
    mean_pairs_ = static_cast<double>(rows_);
  }

  std::vector<EncodedPair> training_pairs(std::int64_t step, std::int64_t micro) const override {
    std::vector<EncodedPair> pairs;
    for (auto row = micro * rows_; row < (micro + 1) * rows_; ++row)
      pairs.push_back(pair_of(lists_.random_list(seed_, step, row)));
    return pairs;
  }

  std::int64_t count(Split split) const override { return lists_.list_count(split); }
  EncodedPair pair(Split split, std::int64_t index) const override {
    return pair_of(lists_.lists(split)[static_cast<std::size_t>(index)]);
  }

 private:
  EncodedPair pair_of(const std::vector<std::int32_t>& list) const {
    EncodedPair pair{.source = list, .target = list};
    if (reverses_) std::reverse(pair.target.begin(), pair.target.end());
    return pair;
  }

  ListDataset lists_;
  bool reverses_;
  std::uint64_t seed_;
  std::int64_t rows_;
};

struct ReadPair {
  EncodedPair ids;
  PairDataset::Texts texts;  // only of pairs to evaluate on
};

// The value by which pairs are sorted: by the length of the target, then by that of the source.
double sorting_length(const ReadPair& pair) {
  constexpr double longest = 1 << 24;
  return static_cast<double>(pair.ids.target.size()) + static_cast<double>(pair.ids.source.size()) / longest;
}

EncodedPair encode(const TextPair& pair, const Tokenizer& tokenizer) {
  throw_if_stopped();
  const auto encode_side = [&](const std::string& text, const std::string& place, std::string_view side) {
    auto ids = tokenizer.encode(text);
    if (ids.empty()) fail_data("{}: the {} has no token", place, side);
    return ids;
  };
  return {.source = encode_side(pair.source, pair.source_place, "source"),
          .target = encode_side(pair.target, pair.target_place, "target")};
}

class TextPairDataset final : public PairDataset {
 public:
  TextPairDataset(PairSplits texts, const ExperimentConfig& config, Codec codec)
      : PairDataset(std::move(codec)), train_(config.train), context_(context_of(config.model)) {
    description_ = std::move(texts.description);
    const auto& task = std::get<SequenceToSequenceConfig>(config.task);
    if (!codec_.tokenizer)
      codec_.tokenizer = obtain_tokenizer(task.data, joined_texts(texts[Split::train]), Unknown::map);
    double bytes = 0, tokens = 0;  // of the training pairs
    for (const auto split : every_split) {
      auto& own = pairs_[split];
      for (auto& text : texts[split]) {
        auto& pair = own.emplace_back();
        pair.ids = encode(text, *codec_.tokenizer);
        if (split != Split::train) {
          pair.texts = {std::move(text.source), std::move(text.target)};
          continue;
        }
        bytes += static_cast<double>(text.source.size() + text.target.size());
        tokens += static_cast<double>(pair.ids.source.size() + pair.ids.target.size());
      }
      if (split == Split::train)
        leave_out_long(own, texts[split].front().target_place);
      else
        std::ranges::stable_sort(own, std::greater(), sorting_length);
      report_cut(own, split);
    }
    bytes_per_token_ = bytes / tokens;
    plan_batches(task);
    const auto sources = mean(&EncodedPair::source), targets = mean(&EncodedPair::target);
    mean_tokens_ = sources + targets + 2;
    summary_ = fmt::format(
        "{} pairs to train on, {} for validation, {} for test; {} tokens; {:.1f} of a source, {:.1f} of a target",
        count(Split::train), count(Split::validation), count(Split::test), codec_.tokenizer->vocabulary_size(), sources,
        targets);
    pairs_of_epoch_ = count(Split::train);
  }

  std::vector<EncodedPair> training_pairs(std::int64_t step, std::int64_t micro) const override {
    std::vector<EncodedPair> found;
    const auto add = [&](std::size_t item) { found.push_back(pairs_[Split::train][item].ids); };
    if (batches_) {
      std::ranges::for_each(batches_->batch(step * train_.accumulate + micro), add);
      return found;
    }
    const auto of_step = train_.batch_size * train_.accumulate, first = micro * train_.batch_size;
    for (auto row = first; row < first + train_.batch_size; ++row)
      add(order_->item_at(seed(), order_->place(seed(), step, of_step, row)));
    return found;
  }

  std::int64_t count(Split split) const override { return std::ssize(pairs_[split]); }
  EncodedPair pair(Split split, std::int64_t index) const override {
    return pairs_[split][static_cast<std::size_t>(index)].ids;
  }
  Texts texts(Split split, std::int64_t index) const override {
    if (split == Split::train) return PairDataset::texts(split, index);
    return pairs_[split][static_cast<std::size_t>(index)].texts;
  }

 private:
  std::uint64_t seed() const { return static_cast<std::uint64_t>(train_.seed); }

  void plan_batches(const SequenceToSequenceConfig& task) {
    mean_pairs_ = static_cast<double>(train_.batch_size);
    if (task.batch_unit == BatchUnit::token) {
      std::vector<PairLength> lengths;  // with their marks, as rows have them
      for (const auto& [ids, texts] : pairs_[Split::train]) {
        const auto [shorter, longer] =
            std::minmax({row_length(ids.source, context_), row_length(ids.target, context_)});
        lengths.push_back({.longer = longer, .shorter = shorter});
      }
      batches_.emplace(std::move(lengths), train_.batch_size, task.bucketing, seed());
      mean_pairs_ = static_cast<double>(count(Split::train)) / static_cast<double>(batches_->batches_per_epoch());
    } else {
      std::vector<double> lengths;
      for (const auto& pair : pairs_[Split::train]) lengths.push_back(sorting_length(pair));
      order_.emplace(std::move(lengths), task.bucketing);
    }
  }

  // Leaves out training pairs whose targets are too long: without their end marks the model would learn not to stop.
  void leave_out_long(std::vector<ReadPair>& pairs, const std::string& first_place) const {
    const auto length = [](const auto& pair) { return pair.ids.target.size(); };
    const auto shortest = length(*std::ranges::min_element(pairs, {}, length));
    const auto count = std::erase_if(pairs, [&](const auto& pair) { return is_cut(pair.ids.target, context_); });
    if (count > 0)
      log::info("{} training pairs are left out: their targets do not fit model.context {}", count, context_);
    if (pairs.empty())
      fail_data("{}: no target fits model.context {}: raise it to at least {}", first_place, context_, shortest + 1);
  }

  void report_cut(const std::vector<ReadPair>& pairs, Split split) const {
    for (const auto& [name, side] :
         {std::pair("sources", &EncodedPair::source), std::pair("targets", &EncodedPair::target)}) {
      const auto is_long = [&](const auto& pair) { return is_cut(pair.ids.*side, context_); };
      if (const auto count = std::ranges::count_if(pairs, is_long); count > 0)
        log::info("{}: {} of {} {} do not fit model.context {} with their mark, and are cut off", to_string(split),
                  count, pairs.size(), name, context_);
    }
  }

  double mean(std::vector<std::int32_t> EncodedPair::*side) const {
    double tokens = 0;
    for (const auto& pair : pairs_[Split::train]) tokens += static_cast<double>((pair.ids.*side).size());
    return tokens / static_cast<double>(count(Split::train));
  }

  TrainConfig train_;
  std::int64_t context_;
  BySplit<std::vector<ReadPair>> pairs_;

  // Only one of the two is set: the order of training pairs, or batches by tokens.
  std::optional<EpochOrder> order_;
  std::optional<TokenBatches> batches_;
};

}  // namespace

LinePairs read_line_pairs(const std::filesystem::path& source_path, const std::filesystem::path& target_path) {
  auto source = read_lines(source_path), target = read_lines(target_path);
  const auto sources = source.lines.size(), targets = target.lines.size();
  if (sources != targets)
    fail_data(
        "{} has {} lines and {} has {}, but each line needs its partner in the other file: line {} of {} has none",
        source.path, sources, target.path, targets, 1 + std::min(sources, targets),
        sources > targets ? source.path : target.path);
  if (sources == 0) fail_data("{} and {} have no lines", source.path, target.path);
  LinePairs read{.pairs = {}, .source_sha256 = source.sha256, .target_sha256 = target.sha256};
  for (std::size_t index = 0; index < sources; ++index) {
    for (const auto& [side, partner] : {std::pair(&source, &target), std::pair(&target, &source)})
      if (is_blank(side->lines[index]))
        fail_data("{}: the line is empty; its partner {} needs a text here, or must go too", side->place(index),
                  partner->place(index));
    read.pairs.push_back(
        {std::move(source.lines[index]), std::move(target.lines[index]), source.place(index), target.place(index)});
  }
  return read;
}

PairSplits load_pair_splits(const ParallelDataConfig& config, bool offline) {
  for (const auto& paths : paths_of(config))
    if (paths.target_path && !paths.path)
      fail_usage("{}: {} has the targets of no sources; set {} to the file of the sources", paths.target_key,
                 in_quotes(*paths.target_path), paths.key);
  return config.path ? load_files(config) : load_multi30k(config, offline);
}

std::string joined_texts(const std::vector<TextPair>& pairs) {
  std::string all;
  for (const auto& pair : pairs) all += pair.source + '\n' + pair.target + '\n';
  return all;
}

PairDataset::Texts PairDataset::texts(Split split, std::int64_t index) const {
  const auto ids = pair(split, index);
  return {codec_.tokenizer->decode(ids.source), codec_.tokenizer->decode(ids.target)};
}

std::shared_ptr<const PairDataset> load_pairs(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto& task = std::get<SequenceToSequenceConfig>(config.task);
  if (const auto* options = synthetic_options(task.data.synthetic))
    return std::make_shared<SyntheticPairDataset>(*options, is<ReversedPairs>(task.data.synthetic), config);
  return std::make_shared<TextPairDataset>(load_pair_splits(task.data, offline), config, std::move(codec));
}

std::int64_t row_length(const std::vector<std::int32_t>& ids, std::int64_t context) {
  return std::min(std::ssize(ids) + 1, context);
}

bool is_cut(const std::vector<std::int32_t>& ids, std::int64_t context) { return std::ssize(ids) >= context; }

PairRows to_rows(const std::vector<EncodedPair>& pairs, std::int32_t mark, std::int64_t context) {
  std::vector<std::vector<std::int32_t>> sources;
  PairRows rows;
  auto& to = rows.target;
  for (const auto& pair : pairs) {
    auto& source = sources.emplace_back(pair.source);
    truncate(source, context - 1, Truncation::head);
    source.push_back(mark);
    to.length = std::max(to.length, row_length(pair.target, context));
  }
  rows.source = pad_rows({sources.begin(), sources.end()});
  for (const auto& [source, target] : pairs) {
    const auto length = row_length(target, context);
    to.target_count += length;
    to.ids.push_back(mark);
    to.ids.insert(to.ids.end(), target.begin(), target.begin() + length - 1);
    to.targets.insert(to.targets.end(), target.begin(), target.begin() + std::min(length, std::ssize(target)));
    if (length > std::ssize(target)) to.targets.push_back(mark);
    to.segments.insert(to.segments.end(), static_cast<std::size_t>(length), 0);
    const auto row_end = static_cast<std::size_t>(++to.rows * to.length);
    to.ids.resize(row_end, mark);
    to.targets.resize(row_end, -1);
    to.segments.resize(row_end, -1);
  }
  if (to.target_count == to.rows * to.length) to.segments.clear();
  return rows;
}

}  // namespace metaformer
