#include "data/column_guess.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>
#include <span>

#include "base/json.h"
#include "base/rows.h"
#include "base/text.h"
#include "data/tables.h"

namespace metaformer {

namespace {

constexpr std::size_t most_rows = 1000, most_columns = 1000;  // that are looked at
constexpr std::size_t longest_start = std::size_t{1} << 20;   // that are looked at
constexpr std::size_t longest_name = 40;                      // of a column, in bytes
constexpr std::size_t few_rows = 10;                          // too few to tell classes from other values

// Usual names of columns, the best first, in lower case.
using Names = std::span<const std::string_view>;
constexpr auto text_names = std::to_array<std::string_view>(
    {"text",    "review",   "sentence",   "content",     "body",        "comment",     "message",
     "tweet",   "document", "reviewtext", "review_text", "review_body", "description", "abstract",
     "article", "post",     "utterance",  "headline",    "title",       "question"});
constexpr auto label_names = std::to_array<std::string_view>(
    {"label", "labels", "class", "category", "sentiment", "rating", "stars", "star_rating", "overall", "topic",
     "intent", "emotion", "polarity", "target", "score", "type", "language"});
constexpr auto source_names =
    std::to_array<std::string_view>({"source", "src", "input", "question", "prompt", "document", "article", "original",
                                     "sentence1", "instruction", "query", "text", "body", "description"});
constexpr auto target_names = std::to_array<std::string_view>({"target", "tgt", "trg", "output", "answer", "completion",
                                                               "response", "translation", "summary", "sentence2",
                                                               "correction", "reply", "title", "headline"});
constexpr auto language_names = std::to_array<std::string_view>(
    {"de",      "en",      "fr",         "es",    "it",      "pt",      "nl",      "pl",
     "cs",      "ru",      "zh",         "ja",    "deutsch", "german",  "english", "french",
     "spanish", "italian", "portuguese", "dutch", "russian", "chinese", "japanese"});

struct Column {
  std::string head;                 // its field in the first row, or its name in JSON lines
  std::vector<std::string> values;  // of the following rows, without white space around them
  bool is_text = true;              // every value is a string
  bool is_plain = true;             // no value is null, a list or an object
  std::size_t distinct = 0;
  double mean_length = 0;
  bool are_numbers = true;

  std::string name() const {
    auto name = std::string(trim(head));
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return name;
  }

  void measure() {
    std::set<std::string_view> found(values.begin(), values.end());
    distinct = found.size();
    double bytes = 0;
    for (const auto& value : values) bytes += static_cast<double>(value.size());
    mean_length = bytes / static_cast<double>(std::max<std::size_t>(1, values.size()));
    are_numbers =
        !found.empty() && std::ranges::all_of(found, [](auto value) { return as_number<double>(value).has_value(); });
  }

  bool has(std::string_view value) const { return std::ranges::find(values, value) != values.end(); }

  // Whether values repeat as those of classes do.
  bool repeats() const {
    return distinct > 1 && (2 * distinct <= values.size() || (values.size() < few_rows && distinct < values.size()));
  }
};
using Columns = std::vector<Column>;

Columns measured(Columns columns) {
  std::ranges::for_each(columns, &Column::measure);
  return columns;
}

void add_member(Columns& columns, const std::string& name, const nlohmann::ordered_json& value) {
  auto column = std::ranges::find(columns, name, &Column::head);
  if (column == columns.end()) {
    if (columns.size() == most_columns) return;
    column = columns.insert(columns.end(), Column{.head = name, .values = {}});
  }
  const bool is_string = value.is_string();
  column->is_text = column->is_text && is_string;
  column->is_plain = column->is_plain && (is_string || value.is_number() || value.is_boolean());
  column->values.emplace_back(is_string ? std::string(trim(value.get_ref<const std::string&>())) : json_text(value));
}

Columns json_columns(std::string_view content) {
  Columns columns;
  for (std::size_t rows = 0; !content.empty() && rows < most_rows;) {
    const auto json = parse_json<nlohmann::ordered_json>(trim(take_line(content)));
    if (!json.is_object()) continue;
    ++rows;
    for (const auto& [name, value] : json.items()) add_member(columns, name, value);
  }
  return measured(std::move(columns));
}

Columns delimited_columns(std::string_view content, TableFormat format) {
  Columns columns;
  std::size_t rows = 0;
  const auto use = [&](DelimitedRow&& row) {
    const auto& fields = row.fields;
    if (rows == most_rows || !row.defect.empty() || (fields.size() == 1 && trim(fields[0]).empty())) return;
    if (rows > 0 && fields.size() != columns.size()) return;
    for (std::size_t i = 0; i < fields.size(); ++i)
      rows == 0 ? void(columns.push_back({.head = fields[i], .values = {}}))
                : void(columns[i].values.emplace_back(trim(fields[i])));
    ++rows;
  };
  format == TableFormat::csv ? for_each_csv_row(content, use) : for_each_tsv_row(content, use);
  return measured(std::move(columns));
}

std::string_view first_line(std::string_view content) {
  std::string_view line;
  while (trim(line).empty() && !content.empty()) line = take_line(content);
  return trim(line);
}

// The format of a table by its name and its first line.
TableFormat guess_format(const std::filesystem::path& path, std::string_view content) {
  const auto named = format_by_name(path).value_or(TableFormat::text);
  const auto line = first_line(content);
  const bool has_tabs = line.find('\t') != std::string_view::npos,
             has_commas = line.find(',') != std::string_view::npos;
  if (named == TableFormat::jsonl || (named == TableFormat::text && has_json_lines(content))) return TableFormat::jsonl;
  if (named == TableFormat::csv) return has_tabs && !has_commas ? TableFormat::tsv : TableFormat::csv;
  return has_commas && !has_tabs ? TableFormat::csv : TableFormat::tsv;
}

using Place = std::optional<std::size_t>;

// The first of the names that a column has, among the columns that `fits` accepts.
template <class Fits>
Place find_named(const Columns& columns, Names names, Fits fits) {
  for (const auto& name : names)
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (columns[i].name() == name && fits(i)) return i;
  return {};
}

// The accepted column with the largest value of `measure`; the last one of equals.
template <class Fits, class Measure>
Place find_largest(const Columns& columns, Fits fits, Measure measure) {
  Place found;
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (fits(i) && (!found || measure(columns[i]) >= measure(columns[*found]))) found = i;
  return found;
}

template <class Fits>
Place find_first(const Columns& columns, Fits fits) {
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (fits(i)) return i;
  return {};
}

// A table whose columns get roles.
struct Form {
  const std::filesystem::path& path;
  Columns columns;
  bool is_json = false;
  bool has_header = false;  // known from names; always in JSON lines

  // The column that the user has given; nothing if there is none of this name or number.
  Place given(const std::optional<std::string>& field) const {
    if (!field) return {};
    if (const auto number = as_number<std::size_t>(*field); number && !is_json)
      return *number >= 1 && *number <= columns.size() ? Place(*number - 1) : Place();
    const auto found =
        std::ranges::find(columns, *field, [](const auto& column) { return std::string(trim(column.head)); });
    return found == columns.end() ? Place() : Place(found - columns.begin());
  }

  // Whether a field of the first row is one of the names, and no value of its column.
  bool has_name(Names names) const {
    return std::ranges::any_of(columns, [&](const Column& column) {
      return std::ranges::find(names, column.name()) != names.end() && !column.has(trim(column.head));
    });
  }

  std::string heads() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < columns.size(); ++i)
      names.push_back(has_header ? std::string(trim(columns[i].head)) : std::to_string(i + 1));
    return quoted_list(names);
  }

  // The names, if the first row is a header.
  Names among(Names names) const { return has_header ? names : Names(); }

  // The field of a role: the name of the column if it is unique and no number, else its number.
  std::string field(std::size_t place) const {
    const auto name = std::string(trim(columns[place].head));
    const auto count =
        std::ranges::count(columns, name, [](const auto& column) { return std::string(trim(column.head)); });
    const bool is_usable = has_header && !name.empty() && count == 1 && !as_number<std::size_t>(name);
    return is_json ? columns[place].head : is_usable ? name : std::to_string(place + 1);
  }
};

bool is_name(const std::optional<std::string>& field) { return field && !as_number<std::size_t>(*field); }

Form form_of(const std::filesystem::path& path, std::string_view content, TableFormat format,
             const GivenColumns& given) {
  if (format == TableFormat::jsonl) require_json_lines(path, content);
  const bool is_json = format == TableFormat::jsonl;
  const auto start =
      content.substr(0, content.size() <= longest_start ? content.size() : content.rfind('\n', longest_start));
  return {.path = path,
          .columns = is_json ? json_columns(start) : delimited_columns(start, format),
          .is_json = is_json,
          .has_header = is_json || is_name(given.first) || is_name(given.second)};
}

// Whether the field of the first row looks like the name of a column of texts.
bool looks_like_name(const Column& column) {
  constexpr double much_longer = 2;
  const auto head = trim(column.head);
  return !head.empty() && head.size() <= longest_name && head.find_first_of(" \t\n") == std::string_view::npos &&
         !as_number<double>(head) && column.mean_length > much_longer * static_cast<double>(head.size());
}

// Sets the form of the guess from the two chosen columns. `first` and `second` are fields that the user has given, or
// those of the places.
TableGuess guess_of(const Form& form, TableFormat format, Place first, Place second, const GivenColumns& given) {
  TableGuess guess;
  if (format != table_format(form.path)) guess.format = format;
  guess.first = given.first.value_or(first ? form.field(*first) : "");
  guess.second = given.second.value_or(second ? form.field(*second) : "");
  if (form.has_header)
    for (const auto& column : form.columns) guess.columns.emplace_back(trim(column.head));
  const bool are_numbers = as_number<std::size_t>(guess.first) && as_number<std::size_t>(guess.second);
  if (!form.is_json && !form.has_header) guess.header = TableHeader::absent;
  if (!form.is_json && form.has_header && are_numbers) guess.header = TableHeader::present;
  return guess;
}

// The default fields, for a table that reading refuses.
TableGuess unread_guess(const Form& form, TableFormat format, const GivenColumns& given, const char* first,
                        const char* second) {
  auto guess = guess_of(form, format, {}, {}, given);
  guess.header = TableHeader::automatic;
  if (!given.first) guess.first = first;
  if (!given.second) guess.second = second;
  return guess;
}

// The column of the texts, which is not `other`. Errors (exit code 3): there is none.
Place pick_text(const Form& form, Place other) {
  const auto& columns = form.columns;
  const auto fits = [&](std::size_t i) { return columns[i].is_text && columns[i].mean_length > 0 && other != i; };
  auto found = find_named(columns, form.among(text_names), fits);
  if (!found) found = find_largest(columns, fits, [](const Column& column) { return column.mean_length; });
  if (!found)
    fail_data("{}: no column holds texts; name it by --text: the columns are {}", form.path.string(), form.heads());
  return found;
}

// The column of the labels, which is not `other`. Errors (exit code 3): there is none.
Place pick_label(const Form& form, Place other) {
  const auto& columns = form.columns;
  const auto names = form.among(label_names);
  const auto fits = [&](std::size_t i) { return columns[i].is_plain && other != i; };
  const auto repeats = [&](std::size_t i) { return fits(i) && columns[i].repeats(); };
  const auto fewest = [](const Column& column) { return -static_cast<double>(column.distinct); };
  auto found = find_named(columns, names, repeats);
  if (!found) found = find_named(columns, names, fits);
  if (!found) found = find_largest(columns, repeats, fewest);
  if (!found) found = find_largest(columns, fits, fewest);
  if (!found)
    fail_data("{}: no column holds labels; name it by --label: the columns are {}", form.path.string(), form.heads());
  return found;
}

// Accepts a column of texts other than `other`: neither numbers nor classes.
auto is_text_of_pair(const Form& form, Place other) {
  return [&form, other](std::size_t i) {
    constexpr std::size_t most_repeats = 10;  // of a value, on average
    const auto& column = form.columns[i];
    return column.is_text && !column.are_numbers && column.mean_length > 0 && other != i &&
           most_repeats * column.distinct >= column.values.size();
  };
}

// The column of a side of the pairs, which is not `other`. Errors (exit code 3): there is none.
Place pick_of_pair(const Form& form, Names names, Place other) {
  const auto fits = is_text_of_pair(form, other);
  auto found = find_named(form.columns, form.among(names), fits);
  if (!found) found = find_first(form.columns, fits);
  if (!found)
    fail_data("{}: pairs need two columns of texts; name them by --source and --target: the columns are {}",
              form.path.string(), form.heads());
  return found;
}

}  // namespace

bool has_json_lines(std::string_view content) {
  const auto line = first_line(content);
  return line.starts_with('{') && parse_json(line).is_object();
}

void require_json_lines(const std::filesystem::path& path, std::string_view content) {
  const auto line = first_line(content);
  if (line.empty() || has_json_lines(content)) return;
  const bool is_list = line.starts_with('[');
  fail_data("{}: {}; JSON lines have an object on every line: jq -c '{}' {} > NEW.jsonl", path.string(),
            is_list ? "holds a list of JSON" : "its first line is no object of JSON", is_list ? ".[]" : ".",
            path.string());
}

std::string guess_text_member(const std::filesystem::path& path, std::string_view content) {
  const auto columns = json_columns(content);
  const auto is_text = [&](std::size_t place) { return columns[place].is_text && columns[place].mean_length > 0; };
  constexpr auto usual = std::to_array<std::string_view>({"text"});
  auto found = find_named(columns, usual, is_text);
  if (!found) found = find_largest(columns, is_text, [](const Column& column) { return column.mean_length; });
  if (columns.empty()) return "text";  // reading reports that there are no objects
  if (found) return columns[*found].head;
  std::vector<std::string> members;
  for (const auto& column : columns) members.push_back(column.head);
  fail_data("{}: no member of its objects is a text; they have {}", path.string(), quoted_list(members));
}

TableGuess guess_labelled_table(const std::filesystem::path& path, std::string_view content,
                                const GivenColumns& given) {
  const auto format = guess_format(path, content);
  auto form = form_of(path, content, format, given);
  if (form.columns.size() < 2) return unread_guess(form, format, given, "text", "label");
  form.has_header = form.has_header || form.has_name(text_names) || form.has_name(label_names);
  const auto given_label = form.given(given.second);
  const auto text = given.first ? form.given(given.first) : pick_text(form, given_label);
  const auto label = given.second ? given_label : pick_label(form, text);
  if (!form.has_header && text && label)  // the name of the labels is none of them
    form.has_header =
        looks_like_name(form.columns[*text]) && !form.columns[*label].has(trim(form.columns[*label].head));
  return guess_of(form, format, text, label, given);
}

TableGuess guess_pair_table(const std::filesystem::path& path, std::string_view content, const GivenColumns& given) {
  const auto format = guess_format(path, content);
  auto form = form_of(path, content, format, given);
  const auto& columns = form.columns;
  if (columns.size() < 2) return unread_guess(form, format, given, "source", "target");
  const auto is_language = [](const Column& column) {
    return std::ranges::find(language_names, column.name()) != language_names.end();
  };
  form.has_header = form.has_header || (form.has_name(source_names) && form.has_name(target_names)) ||
                    std::ranges::count_if(columns, is_language) > 1;
  const auto given_target = form.given(given.second);
  // The target's names are better known: those of sources are also names of single texts.
  const auto named_target =
      find_named(columns, form.among(target_names), is_text_of_pair(form, form.given(given.first)));
  const auto source = given.first ? form.given(given.first)
                                  : pick_of_pair(form, source_names, given.second ? given_target : named_target);
  const auto target = given.second ? given_target : pick_of_pair(form, target_names, source);
  if (!form.has_header && source && target)
    form.has_header = looks_like_name(columns[*source]) && looks_like_name(columns[*target]);
  return guess_of(form, format, source, target, given);
}

}  // namespace metaformer
