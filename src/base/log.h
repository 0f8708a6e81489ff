#pragma once
// Messages for people on stderr and in a run's train.log, and progress lines.

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

namespace metaformer {

// Opens /dev/null for each of file descriptors 0, 1 and 2 that the caller closed, so that no file opened later takes
// its number and receives the output of the stream. It is opened in the wrong direction: reading standard input and
// writing standard output still fail, as on a closed descriptor.
void reserve_standard_streams();

// Decides when the next progress line is due: often on a terminal, where it is redrawn, and rarely elsewhere.
class LineTimer {
 public:
  using Clock = std::chrono::steady_clock;
  bool is_due() const;
  void restart() { start_ = Clock::now(); }
  bool has_run(Clock::duration time) const { return Clock::now() - start_ >= time; }

 private:
  Clock::time_point start_ = Clock::now();
};

// Redraws the progress line on a terminal; elsewhere writes an ordinary line.
void show_progress(const std::string& line);

}  // namespace metaformer

namespace metaformer::log {

void write_info(const std::string& message);
void write_warning(const std::string& message);
void write_error(const std::string& message);

template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write_info(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write_warning(fmt::format(format, std::forward<Args>(args)...));
}

// Shows a line that the next message or progress line overwrites, cut to the width of the terminal. Does nothing
// if stderr is not a terminal.
void progress(std::string_view line);
void clear_progress();  // removes that line
bool stderr_is_terminal();

// Writes a message to the files of add_file, not to stderr.
void record(const std::string& message);

// Appends all further messages to this file too, with times. Errors: those of open_own_file (base/files.h).
void add_file(const std::filesystem::path& path);

// Appends all further errors to this file; the first error creates it.
void add_error_file(const std::filesystem::path& path);

void set_quiet(bool quiet);  // only warnings and errors on stderr
void set_errors_only();      // only errors on stderr

}  // namespace metaformer::log
