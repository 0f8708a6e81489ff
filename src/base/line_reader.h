#pragma once
// Lines from a file, a pipe or a terminal as they arrive, in constant memory.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace metaformer {

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
  std::size_t searched_ = 0;  // the first bytes of it that contain no line break
  bool skipping_ = false;     // inside a line that is too long
  bool ended_ = false;
  std::int64_t number_ = 0;
};

}  // namespace metaformer
