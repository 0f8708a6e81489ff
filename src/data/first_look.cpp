#include "data/first_look.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <set>
#include <unordered_map>

#include "base/archive.h"
#include "base/files.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/labelled.h"
#include "data/pairs.h"
#include "data/text_source.h"
#include "data/token_folder.h"
#include "text/word_tokenizer.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr double most_malformed = 0.05;                      // fraction of the rows or documents
constexpr std::size_t most_counted = std::size_t{16} << 20;  // bytes whose words are counted

// Errors (exit code 2): training could not read it again.
void require_readable_again(const fs::path& path) {
  std::error_code error;
  const auto type = fs::status(path, error).type();
  const bool is_stream = type == fs::file_type::fifo || type == fs::file_type::character || path == "-";
  if (is_stream)
    fail_usage("{}: can be read only once, and training reads the data again: write them to a file first",
               path.string());
}

PathText absolute_path(const fs::path& path) {
  const auto whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).string();  // without the slash behind a folder
}

std::string name_of(const fs::path& path) { return fs::path(absolute_path(path)).filename().string(); }

// The beginning of a file, unpacked and without byte order mark.
struct FileStart {
  std::string content;  // whole lines, if it is not the whole file
  bool is_whole = true;
  double scale = 1;  // the size of the whole, divided by that of the content
};

FileStart read_start(const fs::path& path, std::uintmax_t most_bytes) {
  UnpackedFile file(path);
  FileStart start;
  for (auto piece = file.next(); start.is_whole && !piece.empty(); piece = file.next()) {
    start.content += piece;
    start.is_whole = start.content.size() <= most_bytes;
  }
  if (!start.is_whole) {
    const auto end = start.content.rfind('\n', most_bytes - 1);
    start.content.resize(end == std::string::npos ? most_bytes : end + 1);
    start.scale =
        std::max(1.0, static_cast<double>(estimate_unpacked_bytes({path})) / static_cast<double>(start.content.size()));
  }
  drop_byte_order_mark(start.content);
  return start;
}

// data.malformed_limit for this fraction of malformed rows, with room for some more in the part that was not read.
double limit_for(double fraction, bool is_whole) {
  constexpr double thousand = 1000;
  return std::ceil((is_whole ? 1 : 2) * fraction * thousand) / thousand;
}

// The first run of letters and digits of a valid text.
std::string first_word_of(std::string_view text) {
  constexpr std::size_t longest = 20;
  const auto kind = [&](const char* at) {
    return character_kind(static_cast<char32_t>(utf8::unchecked::peek_next(at)));
  };
  const auto* begin = text.begin();
  while (begin != text.end() && kind(begin) != CharacterKind::word) utf8::unchecked::next(begin);
  const auto* end = begin;
  for (std::size_t i = 0; i < longest && end != text.end() && kind(end) == CharacterKind::word; ++i)
    utf8::unchecked::next(end);
  return {begin, end};
}

// Chooses the format of a file, or of the files in a folder, and the member of JSON lines.
void choose_text_format(const fs::path& path, const std::vector<fs::path>& files,
                        const std::optional<std::string>& member, TextDataConfig& data) {
  constexpr std::uintmax_t start_bytes = 1 << 20;
  const auto is_json = [](const fs::path& file) { return format_by_name(file) == TableFormat::jsonl; };
  const auto first_json = std::ranges::find_if(files, is_json);
  const auto& file = first_json == files.end() ? files.front() : *first_json;
  if (file.extension() == ".parquet") {
    data.text_field = member.value_or(data.text_field);
    return;
  }
  const auto start = read_start(file, start_bytes);
  const bool is_unnamed_json = !is_folder(path) && first_json == files.end() && has_json_lines(start.content);
  if (is_unnamed_json) data.format = TableFormat::jsonl;
  if (first_json != files.end()) require_json_lines(file, start.content);
  if (is_unnamed_json || first_json != files.end())
    data.text_field = member ? *member : guess_text_member(file, start.content);
  else if (member)
    fail_usage("--text {}: {} is plain text, which has no members", *member, path.string());
}

// Counts the pieces of a text.
struct PieceCounter {
  TextLook& look;
  std::string defect = {};  // the first byte that is not UTF-8
  bool has_nul = false;

  void use(std::string_view piece) {
    if (look.bytes == 0 && find_invalid_utf8(piece) == piece.size()) look.first_word = first_word_of(piece);
    if (look.is_utf8) defect = utf8_defect(piece, static_cast<std::size_t>(look.bytes));
    look.is_utf8 = defect.empty();
    if (look.is_utf8) look.characters.add(piece);
    has_nul = has_nul || piece.find('\0') != std::string_view::npos;
    look.bytes += static_cast<double>(piece.size());
  }

  void warn() const {
    if (has_nul)
      look.warnings.push_back(fmt::format("{} {}", look.name, nul_bytes_problem));
    else if (!look.is_utf8)
      look.warnings.push_back(
          fmt::format("{} is {}, so the tokens are bytes; Latin-1 becomes UTF-8 by: iconv -f LATIN1 -t UTF-8 OLD > NEW",
                      look.name, defect));
  }
};

std::size_t count_of(double number) { return static_cast<std::size_t>(std::llround(number)); }

// Words and characters of texts.
struct CountedWords {
  TextLengths lengths;
  std::int64_t distinct = 0, repeated = 0;
};

CountedWords count_words(const std::vector<std::string_view>& texts) {
  std::string all;
  std::vector<std::int64_t> words, characters;
  std::size_t counted = 0;
  for (; counted < texts.size() && all.size() < most_counted; ++counted) (all += texts[counted]) += '\n';
  WordTokenizerOptions options;
  options.vocabulary = 1 << 24;
  options.min_count = 1;
  const auto tokenizer = WordTokenizer::from_text(options, all);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(tokenizer.vocabulary_size()));
  for (const auto text : texts | std::views::take(counted)) {
    throw_if_stopped();
    const auto ids = tokenizer.encode(text);
    for (const auto id : ids) ++counts[static_cast<std::size_t>(id)];
    words.push_back(std::ssize(ids));
    characters.push_back(count_characters(text));
  }
  return {.lengths = {.words = measure_lengths(std::move(words)), .characters = measure_lengths(std::move(characters))},
          .distinct = std::ranges::count_if(counts, [](auto count) { return count > 0; }),
          .repeated = std::ranges::count_if(counts, [](auto count) { return count > 1; })};
}

// Whether a validation split of this fraction has texts, and leaves texts and each of its labels for training.
bool splits_well(const std::vector<std::string_view>& keys, const std::vector<std::string_view>& labels,
                 double fraction) {
  constexpr std::size_t enough = 10, fewest_of_enough = 2;
  std::set<std::string_view> held_labels, training_labels;
  std::size_t held = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool is_held = is_held_out(std::string(keys[i]), fraction);
    held += is_held ? 1 : 0;
    if (!labels.empty()) (is_held ? held_labels : training_labels).insert(labels[i]);
  }
  const auto fewest = keys.size() < enough ? 1 : fewest_of_enough;
  const bool has_classes = labels.empty() || training_labels.size() > 1;
  return held >= fewest && held < keys.size() && has_classes && std::ranges::includes(training_labels, held_labels);
}

// data.validation_fraction for these rows: a tenth, less of many rows, and another if a tenth cannot be. Errors (exit
// code 3): there is none.
double choose_fraction(const FirstLook& look, double rows, const std::vector<std::string_view>& keys,
                       const std::vector<std::string_view>& labels) {
  constexpr double usual = 0.1, large = 0.02, many = 200'000;
  if (rows > many) return large;
  if (!look.is_whole) return usual;
  for (const auto fraction : {usual, 0.2, 0.3, 0.4, 0.5, 0.05, 0.02})
    if (splits_well(keys, labels, fraction)) return fraction;
  fail_data("{}: {} rows are too few: none can be held out for validation{}; add more", look.name, keys.size(),
            labels.empty() ? "" : " that leaves each class for training");
}

// Leaves out what is malformed because the content was cut.
void drop_cut_rows(Table& table, bool is_whole) {
  while (!is_whole && !table.malformed.empty() &&
         (table.rows.empty() || table.malformed.back().line > table.rows.back().line))
    table.malformed.pop_back();
}

// Reads the part of a table as the config describes it, and sets its malformed_limit.
template <class Config>
Table read_part(FileStart& start, const fs::path& path, const TableColumns& columns, Config& data) {
  auto table = read_table(std::move(start.content), path, data.format, columns);
  drop_cut_rows(table, start.is_whole);
  check_rows(table, columns, most_malformed);
  const auto fraction = static_cast<double>(table.malformed.size()) / static_cast<double>(table.all_rows());
  if (fraction > 0) data.malformed_limit = limit_for(fraction, start.is_whole);
  return table;
}

std::vector<std::string_view> fields_of(const Table& table, std::size_t column) {
  std::vector<std::string_view> fields;
  for (const auto& row : table.rows) fields.emplace_back(row.fields[column]);
  return fields;
}

// Counts rows by label and texts that occur again.
void count_classes(const Table& table, TableLook& look) {
  std::map<std::string_view, std::int64_t> counts;
  std::unordered_map<std::string_view, std::string_view> seen;
  for (const auto& row : table.rows) {
    ++counts[row.fields[1]];
    const auto [first, is_new] = seen.try_emplace(row.fields[0], row.fields[1]);
    look.copies += is_new ? 0 : 1;
    look.contradictions += first->second == row.fields[1] ? 0 : 1;
  }
  look.classes.assign(counts.begin(), counts.end());
  std::ranges::stable_sort(look.classes, std::greater(), [](const auto& each) { return each.second; });
}

// The labels as numbers, in ascending order; nothing if one is none.
std::optional<std::vector<double>> numbers_of(const TableLook& look) {
  std::vector<double> numbers;
  for (const auto& [label, count] : look.classes) {
    const auto number = as_number<double>(label);
    if (!number || !std::isfinite(*number)) return {};
    numbers.push_back(*number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

// Errors (exit code 3): the labels are no classes.
void require_classes(const TableLook& look, std::size_t rows) {
  constexpr std::size_t fewest_rows = 10, most_numbers = 100, most_fractions = 20;
  const auto& field = look.data.label_field;
  const auto advice =
      "; --label names another column" + (look.columns.empty() ? "" : " of " + quoted_list(look.columns));
  if (look.classes.size() == 1)
    fail_data("{}: every row has the label {} in column {}, and a classifier needs two classes or more{}", look.name,
              in_quotes(look.classes.front().first), in_quotes(field), advice);
  const auto labels = look.classes.size();
  const auto numbers = numbers_of(look);
  const bool has_fractions =
      numbers && std::ranges::any_of(*numbers, [](double number) { return number != std::trunc(number); });
  if (numbers && (labels > most_numbers || (has_fractions && labels > most_fractions)))
    fail_data("{}: column {} has {} distinct numbers, and predicting numbers (regression) is not supported{}",
              look.name, in_quotes(field), labels, advice);
  if (rows >= fewest_rows && 2 * labels > rows)
    fail_data("{}: column {} has {} distinct labels in {} rows, and the labels of classes repeat{}", look.name,
              in_quotes(field), labels, rows, advice);
}

// Two classes of ratings: those below the middle, and those above it.
void find_ratings(TableLook& look) {
  constexpr std::size_t fewest = 3, most = 11;
  const auto numbers = numbers_of(look);
  if (!numbers || numbers->size() < fewest || numbers->size() > most) return;
  const auto middle = (numbers->front() + numbers->back()) / 2;
  RatingConfig rating;
  rating.positive_from = *std::ranges::upper_bound(*numbers, middle);
  rating.negative_to = *std::prev(std::ranges::lower_bound(*numbers, middle));
  look.rating = rating;
  for (const auto* name : {"rating", "star", "score", "overall"})
    look.is_named_rating = look.is_named_rating || look.data.label_field.find(name) != std::string::npos;
  if (look.is_named_rating)
    look.warnings.push_back(fmt::format(
        "the labels in column {} seem to be ratings; data.rating, a comment in the config, makes two classes of them",
        in_quotes(look.data.label_field)));
}

void warn_of_classes(TableLook& look) {
  constexpr std::int64_t few = 10;
  std::vector<std::string> rare;
  for (const auto& [label, count] : look.classes)
    if (count < few) rare.push_back(label);
  if (!rare.empty())
    look.warnings.push_back(fmt::format("{} of {} classes have fewer than {} rows, too few to learn: {}", rare.size(),
                                        look.classes.size(), few, quoted_list(rare)));
  if (look.contradictions > 0)
    look.warnings.push_back(fmt::format("{} texts occur again with another label", look.contradictions));
}

std::vector<TextPair> read_part_of_lines(const FileStart& source, const FileStart& target, const fs::path& path,
                                         const fs::path& target_path) {
  if (source.is_whole && target.is_whole) return read_line_pairs(path, target_path).pairs;
  std::vector<TextPair> pairs;
  std::string_view sources = source.content, targets = target.content;
  while (!sources.empty() && !targets.empty())
    pairs.push_back({std::string(trim(take_line(sources))), std::string(trim(take_line(targets))), "", ""});
  return pairs;
}

// Sets the counts of pairs that were read.
void count_pairs(const std::vector<TextPair>& pairs, double scale, PairsLook& look) {
  std::vector<std::string_view> sources, targets;
  for (const auto& pair : pairs) {
    sources.emplace_back(pair.source);
    targets.emplace_back(pair.target);
    for (const auto& text : {pair.source, pair.target}) look.characters.add(text);
  }
  look.pairs = scale * static_cast<double>(pairs.size());
  look.source = count_words(sources).lengths;
  look.target = count_words(targets).lengths;
  look.copies = std::ssize(sources) - std::ssize(std::set(sources.begin(), sources.end()));
  look.data.validation_fraction = choose_fraction(look, look.pairs, sources, {});
}

std::string counted(double number, bool is_exact) {
  return is_exact ? std::to_string(count_of(number)) : "about " + human_count(number);
}

std::string describe_scripts(const CharacterStatistics& characters) {
  constexpr std::size_t most = 3;
  constexpr double least = 0.005;
  std::string text;
  for (const auto& [script, fraction] : characters.scripts() | std::views::take(most))
    if (fraction >= least) text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", script, 100 * fraction);
  return text.empty() ? "" : "; letters: " + text;
}

std::string describe_part(const FirstLook& look) {
  return look.is_whole ? "" : "; only the beginning was read, and the rest is estimated from the size";
}

std::string describe_lengths(const char* what, const LengthStats& words) {
  return fmt::format("words of a {}: median {}, 95th percentile {}, longest {}", what, words.median,
                     words.percentile_95, words.longest);
}

using Json = nlohmann::ordered_json;

Json to_json(const FirstLook& look) {
  auto scripts = Json::object();
  for (const auto& [script, fraction] : look.characters.scripts()) scripts[script] = fraction;
  return {{"name", look.name},
          {"whole", look.is_whole},
          {"distinct_characters", look.characters.distinct()},
          {"scripts", std::move(scripts)}};
}

Json to_json(const TextLengths& lengths) {
  const auto json_of = [](const LengthStats& stats) {
    return Json{{"median", stats.median}, {"percentile_95", stats.percentile_95}, {"longest", stats.longest}};
  };
  return {{"words", json_of(lengths.words)}, {"characters", json_of(lengths.characters)}};
}

}  // namespace

TextLook look_at_text(const fs::path& path, const std::optional<std::string>& member, std::uintmax_t most_bytes) {
  require_readable_again(path);
  TextLook look;
  look.name = name_of(path);
  auto& data = look.data;
  data.path = absolute_path(path);
  if (has_tokens(data))
    fail_data("{}: {} tokens, not texts; training reads them if data.path of a config names them", path.string(),
              is_token_folder(path) || is_folder(path) ? "holds" : "files of this name hold");
  const auto files = list_text_files({path}, data);
  choose_text_format(path, files, member, data);

  auto reading = data;
  reading.tokenizer = ByteTokenizerOptions{};  // takes text that is not UTF-8
  reading.malformed_limit = most_malformed;
  PieceCounter counter{.look = look};
  const auto summary = read_texts(
      {path}, reading, [&](std::string_view piece, bool) { counter.use(piece); }, most_bytes);
  counter.warn();
  const auto scale = summary.is_whole ? 1
                                      : std::max(1.0, static_cast<double>(estimate_unpacked_bytes(files)) /
                                                          static_cast<double>(summary.unpacked_bytes));
  look.is_whole = summary.is_whole;
  look.is_one_text = summary.is_one_text;
  look.has_json_lines = summary.has_json_lines;
  look.bytes *= scale;
  look.all_characters = scale * static_cast<double>(look.characters.characters());
  look.documents = summary.is_one_text ? 1 : scale * static_cast<double>(summary.documents);
  const auto all = summary.malformed + summary.empty + summary.documents;
  if (summary.malformed > 0)
    data.malformed_limit =
        limit_for(static_cast<double>(summary.malformed) / static_cast<double>(all), summary.is_whole);
  if (auto warning = describe_table_as_text(path, look.name); !warning.empty())
    look.warnings.push_back(std::move(warning));
  return look;
}

TableLook look_at_table(const fs::path& path, const GivenColumns& given, std::uintmax_t most_bytes) {
  require_readable_again(path);
  auto start = read_start(path, most_bytes);
  auto guess = guess_labelled_table(path, start.content, given);
  TableLook look;
  look.name = name_of(path);
  look.is_whole = start.is_whole;
  look.columns = std::move(guess.columns);
  auto& data = look.data;
  data.path = absolute_path(path);
  data.format = guess.format;
  data.header = guess.header;
  data.text_field = guess.first;
  data.label_field = guess.second;

  const auto table = read_part(start, path, columns_of(data), data);
  count_classes(table, look);
  require_classes(look, table.rows.size());
  find_ratings(look);
  warn_of_classes(look);
  const auto texts = fields_of(table, 0);
  for (const auto text : texts) look.characters.add(text);
  const auto counted_words = count_words(texts);
  look.lengths = counted_words.lengths;
  look.words = counted_words.distinct;
  look.repeated_words = counted_words.repeated;
  look.rows = start.scale * static_cast<double>(table.rows.size());
  data.validation_fraction = choose_fraction(look, look.rows, texts, fields_of(table, 1));
  return look;
}

PairsLook look_at_pairs(const fs::path& path, const std::optional<fs::path>& targets, const GivenColumns& given,
                        std::uintmax_t most_bytes) {
  require_readable_again(path);
  auto start = read_start(path, most_bytes);
  PairsLook look;
  look.name = name_of(path);
  auto& data = look.data;
  data.path = absolute_path(path);
  if (targets) {
    if (given.first || given.second) fail_usage("--source and --target name columns, and two files of lines have none");
    require_readable_again(*targets);
    const auto target_start = read_start(*targets, most_bytes);
    data.target_path = absolute_path(*targets);
    look.is_whole = start.is_whole && target_start.is_whole;
    count_pairs(read_part_of_lines(start, target_start, path, *targets), std::max(start.scale, target_start.scale),
                look);
    return look;
  }
  auto guess = guess_pair_table(path, start.content, given);
  look.is_whole = start.is_whole;
  look.columns = std::move(guess.columns);
  data.format = guess.format;
  data.header = guess.header;
  data.source_field = guess.first;
  data.target_field = guess.second;
  auto columns = columns_of(data);
  columns.advice = "; if the targets are the lines of another file, name it after this one";
  auto table = read_part(start, path, columns, data);
  std::vector<TextPair> pairs;
  for (auto& row : table.rows) pairs.push_back({std::move(row.fields[0]), std::move(row.fields[1]), "", ""});
  count_pairs(pairs, start.scale, look);
  return look;
}

std::vector<std::string> describe(const TextLook& look) {
  const auto form = look.has_json_lines ? fmt::format("texts in the member {}", in_quotes(look.data.text_field))
                    : look.is_utf8      ? std::string("plain text")
                                        : std::string("bytes that are not UTF-8");
  std::vector<std::string> lines = {fmt::format("{}: {}, {}{}{}", printable(look.name), form,
                                                look.is_whole ? "" : "about ", human_bytes(count_of(look.bytes)),
                                                describe_part(look))};
  if (!look.is_one_text) lines.push_back(counted(look.documents, look.is_whole) + " documents");
  if (look.is_utf8)
    lines.push_back(fmt::format("{} characters, {} distinct{}", counted(look.all_characters, look.is_whole),
                                look.characters.distinct(), describe_scripts(look.characters)));
  return lines;
}

std::vector<std::string> describe(const TableLook& look) {
  constexpr std::size_t most = 10;
  std::string classes;
  for (const auto& [label, count] : look.classes | std::views::take(most))
    classes += fmt::format("{}{} ({})", classes.empty() ? "" : ", ", printable(label), count);
  if (look.classes.size() > most) classes += ", ...";
  return {
      fmt::format("{}: {}, {} rows{}", printable(look.name), to_string(table_format(*look.data.path, look.data.format)),
                  counted(look.rows, look.is_whole), describe_part(look)),
      fmt::format("{}, texts in column {}, labels in column {}",
                  look.columns.empty() ? "no header" : fmt::format("{} columns", look.columns.size()),
                  in_quotes(look.data.text_field), in_quotes(look.data.label_field)),
      fmt::format("{} classes: {}", look.classes.size(), classes),
      describe_lengths("text", look.lengths.words) +
          fmt::format("; {} distinct words, {} of them occur again", look.words, look.repeated_words),
      fmt::format("{} texts occur earlier in the table{}", look.copies, describe_scripts(look.characters))};
}

std::vector<std::string> describe(const PairsLook& look) {
  const auto form = look.data.target_path
                        ? "lines, with the targets in " + printable(name_of(*look.data.target_path))
                        : fmt::format("{}, sources in column {}, targets in column {}",
                                      to_string(table_format(*look.data.path, look.data.format)),
                                      in_quotes(look.data.source_field), in_quotes(look.data.target_field));
  return {fmt::format("{}: {}, {} pairs{}", printable(look.name), form, counted(look.pairs, look.is_whole),
                      describe_part(look)),
          describe_lengths("source", look.source.words), describe_lengths("target", look.target.words),
          fmt::format("{} sources occur earlier; {} distinct characters{}", look.copies, look.characters.distinct(),
                      describe_scripts(look.characters))};
}

Json to_json(const TextLook& look) {
  auto json = to_json(static_cast<const FirstLook&>(look));
  json.update(Json{{"json_lines", look.has_json_lines},
                   {"utf8", look.is_utf8},
                   {"bytes", count_of(look.bytes)},
                   {"characters", count_of(look.all_characters)},
                   {"documents", count_of(look.documents)}});
  return json;
}

Json to_json(const TableLook& look) {
  auto json = to_json(static_cast<const FirstLook&>(look));
  json.update(Json{{"format", to_string(table_format(*look.data.path, look.data.format))},
                   {"header", !look.columns.empty()},
                   {"columns", look.columns},
                   {"text_field", look.data.text_field},
                   {"label_field", look.data.label_field},
                   {"rows", count_of(look.rows)},
                   {"lengths", to_json(look.lengths)},
                   {"words", look.words},
                   {"repeated_words", look.repeated_words},
                   {"copies", look.copies},
                   {"contradictions", look.contradictions}});
  for (const auto& [label, count] : look.classes) json["classes"][label] = count;
  return json;
}

Json to_json(const PairsLook& look) {
  auto json = to_json(static_cast<const FirstLook&>(look));
  json["pairs"] = count_of(look.pairs);
  if (!look.data.target_path)
    json.update(Json{{"format", to_string(table_format(*look.data.path, look.data.format))},
                     {"header", !look.columns.empty()},
                     {"columns", look.columns},
                     {"source_field", look.data.source_field},
                     {"target_field", look.data.target_field}});
  json.update(Json{
      {"source_lengths", to_json(look.source)}, {"target_lengths", to_json(look.target)}, {"copies", look.copies}});
  return json;
}

}  // namespace metaformer
