#include "base/log.h"

#include <fcntl.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/dist_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/files.h"
#include "base/text.h"

namespace metaformer {

void reserve_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    const int opened = ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened < 0 || opened == stream) continue;
    ::dup2(opened, stream);
    ::close(opened);
  }
}

using namespace std::chrono_literals;

bool LineTimer::is_due() const {
  return has_run(log::stderr_is_terminal() ? Clock::duration(100ms) : Clock::duration(5s));
}

void show_progress(const std::string& line) { log::stderr_is_terminal() ? log::progress(line) : log::write_info(line); }

}  // namespace metaformer

namespace metaformer::log {

namespace {

// https://no-color.org: an empty NO_COLOR does not count.
bool use_colour() {
  const char* refusal = std::getenv("NO_COLOR");
  return stderr_is_terminal() && (refusal == nullptr || *refusal == '\0');
}

// Queried at every use, because a window can be resized at any time.
std::size_t terminal_columns() {
  constexpr std::size_t usual = 80;
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usual;
}

// The part that fits into one row. The last column stays free: some terminals start a new row after it.
std::string_view fit_to_terminal(std::string_view line) {
  const auto is_continuation = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; };
  const auto columns = std::max<std::size_t>(terminal_columns(), 2) - 1;
  std::size_t end = 0;
  for (std::size_t shown = 0; end < line.size(); ++end)
    if (!is_continuation(line[end]) && ++shown > columns) break;
  return line.substr(0, end);
}

// stderr, with one transient line at the bottom that messages push away.
class TerminalSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void show_progress(std::string_view line) {
    const std::lock_guard lock(mutex_);
    line = fit_to_terminal(line);
    std::fprintf(stderr, "\r\033[K%.*s", static_cast<int>(line.size()), line.data());
    std::fflush(stderr);
    progress_shown_ = true;
  }
  void clear_progress() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(progress_shown_, false)) std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (std::exchange(progress_shown_, false)) std::fputs("\r\033[K", stderr);
    const auto level = message.level;
    const char* word = level >= spdlog::level::err ? "error: " : level == spdlog::level::warn ? "warning: " : "";
    const char* colour = level >= spdlog::level::err ? "\033[31m" : "\033[33m";
    std::string line = *word && use_colour() ? std::string(colour) + word + "\033[0m" : word;
    line.append(message.payload.data(), message.payload.size()).push_back('\n');
    std::fwrite(line.data(), 1, line.size(), stderr);  // at once: other processes may write there, too
  }
  void flush_() override { std::fflush(stderr); }

 private:
  bool progress_shown_ = false;
};

// A file to which messages are appended.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(std::filesystem::path path) : path_(std::move(path)) { set_pattern("%Y-%m-%d %H:%M:%S %l: %v"); }

  // Opens the file now; otherwise the first message opens it.
  void open() { file_.emplace(path_); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (!file_) open();
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    file_->write({line.data(), line.size()});
  }
  void flush_() override {}

 private:
  std::filesystem::path path_;
  std::optional<AppendedFile> file_;
};

TerminalSink& terminal() {
  static const auto sink = std::make_shared<TerminalSink>();
  return *sink;
}

// The log files. They need a mutex, because files are added while other threads log.
spdlog::sinks::dist_sink_mt& files() {
  static const auto sinks = std::make_shared<spdlog::sinks::dist_sink_mt>();
  return *sinks;
}

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    const auto not_owned = [](auto*) {};
    spdlog::logger made("metaformer",
                        {spdlog::sink_ptr(&terminal(), not_owned), spdlog::sink_ptr(&files(), not_owned)});
    made.set_error_handler([](const std::string&) {});  // other writes report a full disk
    return made;
  }();
  return instance;
}

}  // namespace

bool stderr_is_terminal() {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  return terminal;
}

// File names and values of configs may contain control characters.
void write_info(const std::string& message) { logger().log(spdlog::level::info, escaped(message)); }
void write_warning(const std::string& message) { logger().log(spdlog::level::warn, escaped(message)); }
void write_error(const std::string& message) { logger().log(spdlog::level::err, escaped(message)); }

void progress(std::string_view line) {
  if (stderr_is_terminal() && terminal().should_log(spdlog::level::info)) terminal().show_progress(line);
}

void clear_progress() { terminal().clear_progress(); }

void record(const std::string& message) {
  files().log({"metaformer", spdlog::level::info, message});
  files().flush();
}

static void add_sink(const std::filesystem::path& path, spdlog::level::level_enum level) {
  auto sink = std::make_shared<FileSink>(path);
  if (level < spdlog::level::err) sink->open();
  sink->set_level(level);
  files().add_sink(std::move(sink));
  logger().flush_on(spdlog::level::info);
}

void add_file(const std::filesystem::path& path) { add_sink(path, spdlog::level::trace); }
void add_error_file(const std::filesystem::path& path) { add_sink(path, spdlog::level::err); }

void set_errors_only() { terminal().set_level(spdlog::level::err); }

void set_quiet(bool quiet) { terminal().set_level(quiet ? spdlog::level::warn : spdlog::level::info); }

}  // namespace metaformer::log
