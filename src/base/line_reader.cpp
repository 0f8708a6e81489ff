#include "base/line_reader.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/signals.h"
#include "base/utf8.h"

namespace metaformer {

std::optional<Line> LineReader::next() {
  constexpr int patience = 200;  // milliseconds until a signal just before the wait is noticed
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
    if (wait(patience)) read_more();
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

}  // namespace metaformer
