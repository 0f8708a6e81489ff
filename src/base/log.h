#pragma once
// Messages to people: on stderr and, during a run, in its train.log. Results go to stdout and not through here.

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>

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

// A line that the next message or progress line overwrites, cut to the terminal's present width. Only on a terminal,
// else nothing.
void progress(std::string_view line);
void clear_progress();  // removes that line
bool stderr_is_terminal();

// A message for the files of add_file only, not for stderr.
void record(const std::string& message);

// From now on messages also go to this file (appended, with times). Throws Error when it cannot be opened.
void add_file(const std::filesystem::path& path);

void set_quiet(bool quiet);  // only warnings and errors on stderr

}  // namespace metaformer::log
