#pragma once
// Lines and rows of fields, read as they arrive.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace metaformer {

// Lines from a file, a pipe or a terminal as they arrive, in constant memory.
struct Line {
  std::string text;         // without line break (LF or CRLF); the first without byte order mark
  std::int64_t number = 0;  // counted from 1
  bool too_long = false;    // longer than the limit; `text` is then empty
};

class LineReader {
 public:
  // Does not close `file`; errors call it `name`. Lines of more than `longest` bytes are skipped and returned
  // as too long.
  LineReader(int file, std::string name, std::size_t longest)
      : file_(file), name_(std::move(name)), longest_(longest) {}

  // Waits for the next line; nothing at the end. The last line may lack a line break. Throws Interrupted once a signal
  // to stop has arrived, and Error (exit code 3) if reading fails.
  std::optional<Line> next();

  // Whether next() would return at once.
  bool is_ready();

 private:
  bool has_line() const { return ended_ || buffer_.find('\n', searched_) != std::string::npos; }
  bool wait(int milliseconds) const;
  void read_more();
  Line take_line(std::size_t length, std::size_t ending);

  int file_;
  std::string name_;
  std::size_t longest_;
  std::string buffer_;        // read, not yet returned
  std::size_t searched_ = 0;  // how many of its first bytes contain no line break
  bool skipping_ = false;     // inside a line that is too long
  bool ended_ = false;
  std::int64_t number_ = 0;
};

// Divides a text that comes in pieces into lines.
class LineSplitter {
 public:
  // `line` is without its line feed, and the first line without byte order mark. It has at most `longest` bytes of the
  // `size` that the line has.
  using UseLine = std::function<void(std::string_view line, std::size_t size)>;

  explicit LineSplitter(UseLine use, std::size_t longest = std::string::npos)
      : use_(std::move(use)), longest_(longest) {}

  void add(std::string_view piece);
  void finish();  // uses the last line if it lacks a line feed

 private:
  void end_line();

  UseLine use_;
  std::size_t longest_;
  std::string line_;  // its beginning
  std::size_t size_ = 0;
  bool is_first_ = true;
};

// Splits comma- or tab-separated text into rows of fields, without interpreting the columns.
struct DelimitedRow {
  std::vector<std::string> fields;
  std::int64_t line = 0;  // where the row starts, counted from 1
  std::string defect;     // why the fields cannot be separated (there are none then), or ""
};

using UseRow = std::function<void(DelimitedRow&&)>;

// A longer line means that the file has no line ends, or is no table. It is a defect of its row.
constexpr std::size_t longest_delimited_line = std::size_t{16} << 20;

// Strict RFC 4180: quotes enclose a whole field and are doubled inside it, and white space belongs to the field. A row
// with a stray or unclosed quote is a defect of the line where it starts; reading continues at the next line, so
// that one quote cannot swallow the rest of a file. Empty lines are no rows. Lines end with LF, CRLF or CR.
void for_each_csv_row(std::string_view text, const UseRow& use);

// Writes a field so that for_each_csv_row reads it back: quoted if it needs quotes.
std::string csv_field(std::string_view text);

// Lines split at every tab; quotes have no meaning (as in GLUE's files). Skips empty lines. Lines end with LF or CRLF.
void for_each_tsv_row(std::string_view text, const UseRow& use);

}  // namespace metaformer
