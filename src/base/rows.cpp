#include "base/rows.h"

#include <csv.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ranges>

#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

std::optional<Line> LineReader::next() {
  constexpr int signal_check_ms = 200;
  while (true) {
    throw_if_stopped();
    if (const auto found = buffer_.find('\n', searched_); found != std::string::npos) return take_line(found, 1);
    searched_ = buffer_.size();
    if (buffer_.size() > longest_) {
      skipping_ = true;
      buffer_.clear();
      searched_ = 0;
    }
    if (ended_) {
      if (buffer_.empty() && !skipping_) return std::nullopt;
      return take_line(buffer_.size(), 0);
    }
    if (wait(signal_check_ms)) read_more();
  }
}

bool LineReader::is_ready() {
  while (!has_line() && buffer_.size() <= longest_ && wait(0)) read_more();
  return has_line();
}

bool LineReader::wait(int milliseconds) const {
  pollfd request = {.fd = file_, .events = POLLIN, .revents = 0};
  return poll(&request, 1, milliseconds) > 0;
}

void LineReader::read_more() {
  constexpr std::size_t chunk = 1 << 16;
  const auto before = buffer_.size();
  buffer_.resize(before + chunk);
  const auto count = ::read(file_, buffer_.data() + before, chunk);
  buffer_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  if (count == 0) ended_ = true;
  if (count < 0 && errno != EINTR && errno != EAGAIN)
    throw Error(ExitCode::data, fmt::format("{}:{}: cannot be read: {}", name_, number_ + 1, std::strerror(errno)));
}

// Returns `length` bytes as a line and drops `ending` more bytes.
Line LineReader::take_line(std::size_t length, std::size_t ending) {
  Line line{.text = buffer_.substr(0, length), .number = ++number_, .too_long = length > longest_ || skipping_};
  buffer_.erase(0, length + ending);
  searched_ = 0;
  skipping_ = false;
  if (line.too_long) line.text.clear();
  if (line.text.ends_with('\r')) line.text.pop_back();
  if (line.number == 1) drop_byte_order_mark(line.text);
  return line;
}

void LineSplitter::add(std::string_view piece) {
  while (!piece.empty()) {
    const auto before = piece.size();
    const auto part = take_line(piece);
    size_ += part.size();
    line_ += part.substr(0, longest_ - std::min(longest_, line_.size()));
    if (part.size() < before) end_line();
  }
}

void LineSplitter::finish() {
  if (size_ > 0) end_line();
}

void LineSplitter::end_line() {
  const auto text = std::exchange(is_first_, false) ? without_byte_order_mark(line_) : std::string_view(line_);
  use_(text, size_ - (line_.size() - text.size()));
  line_.clear();
  size_ = 0;
}

namespace {

// The line at the start of `text`, with its ending.
std::string_view first_line(std::string_view text) {
  const auto end = text.find_first_of("\r\n");
  if (end == std::string_view::npos) return text;
  return text.substr(0, end + (text.substr(end, 2) == "\r\n" ? 2 : 1));
}

std::string defect_of_length(std::string_view line) {
  return fmt::format("the line has {} bytes; at most {} make sense", line.size(), longest_delimited_line);
}

// Feeds libcsv line by line, because it does not count lines and stops at errors. A line ends at most one row.
class CsvReader {
 public:
  explicit CsvReader(const UseRow& use) : use_(use) { start_parser(); }
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;
  ~CsvReader() { csv_free(&parser_); }

  void read(std::string_view text) {
    struct Place {
      std::string_view rest;
      std::int64_t line;
    } at{text, 1}, second_line = at;  // second_line: of the row, where reading continues if the row is malformed
    while (!at.rest.empty()) {
      const auto line = first_line(at.rest);
      const Place next{at.rest.substr(line.size()), at.line + 1};
      if (row_ended_) {
        row_.line = at.line;
        second_line = next;
      }
      at = next;
      if (auto defect = parse(line, at.rest.empty()); !defect.empty()) {
        refuse_row(std::move(defect));
        at = second_line;
      } else if (row_ended_ && !row_.fields.empty()) {  // an empty line ends a row without fields
        // `use_` is not called in libcsv's callback, because an Error that it throws must not unwind through C.
        use_({.fields = std::exchange(row_.fields, {}), .line = row_.line, .defect = {}});
      }
    }
  }

 private:
  void start_parser() {
    constexpr std::size_t growth = 1 << 16;  // the default of 128 bytes makes long fields slow
    csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI | CSV_REPALL_NL);
    csv_set_space_func(&parser_, [](unsigned char) { return 0; });  // otherwise it trims fields
    csv_set_blk_size(&parser_, growth);
  }

  // Why the row is malformed, or "".
  std::string parse(std::string_view line, bool last) {
    const auto end_field = [](void* bytes, std::size_t size, void* reader) {
      static_cast<CsvReader*>(reader)->row_.fields.emplace_back(static_cast<const char*>(bytes), size);
    };
    const auto end_row = [](int, void* reader) { static_cast<CsvReader*>(reader)->row_ended_ = true; };
    row_ended_ = false;
    if (line.size() > longest_delimited_line) return defect_of_length(line);
    if (csv_parse(&parser_, line.data(), line.size(), end_field, end_row, this) < line.size()) {
      if (csv_error(&parser_) != CSV_EPARSE) throw Error(ExitCode::out_of_memory, "no memory for a field of a table");
      return "a stray quote: quotes enclose a whole field and are doubled inside it";
    }
    if (last && csv_fini(&parser_, end_field, end_row, this) != 0) return "a quote is opened and never closed";
    return "";
  }

  void refuse_row(std::string defect) {
    use_({.fields = {}, .line = row_.line, .defect = std::move(defect)});
    row_.fields.clear();
    row_ended_ = true;
    csv_free(&parser_);
    start_parser();
  }

  const UseRow& use_;
  csv_parser parser_;
  DelimitedRow row_;
  bool row_ended_ = true;
};

}  // namespace

void for_each_csv_row(std::string_view text, const UseRow& use) { CsvReader(use).read(text); }

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

void for_each_tsv_row(std::string_view text, const UseRow& use) {
  for (std::int64_t number = 1; !text.empty(); ++number) {
    auto line = take_line(text);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    DelimitedRow row{.fields = {}, .line = number, .defect = {}};
    if (line.size() > longest_delimited_line)
      row.defect = defect_of_length(line);
    else
      for (const auto& field : line | std::views::split('\t')) row.fields.emplace_back(field.begin(), field.end());
    use(std::move(row));
  }
}

}  // namespace metaformer
