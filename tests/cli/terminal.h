#pragma once
// The executable on a pseudo-terminal: what a person at a terminal of some width would see.

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>

#include <chrono>
#include <functional>

#include "cli/program.h"

class Terminal {
 public:
  Terminal(const Program& program, Arguments arguments, unsigned short columns) {
    arguments.insert(arguments.begin(), METAFORMER_PROGRAM);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const auto folder = program.folder().path().string();
    winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = forkpty(&screen_, nullptr, nullptr, &size);
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      if (chdir(folder.c_str()) == 0) execv(METAFORMER_PROGRAM, argv.data());
      _exit(126);
    }
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(screen_);
  }

  void resize(unsigned short columns) const {
    const winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(screen_, TIOCSWINSZ, &size);
  }

  void type(const std::string& keys) const { CHECK(write(screen_, keys.data(), keys.size()) > 0); }

  // Reads until `enough` holds for all output so far, or the program ends, for at most a minute.
  const std::string& read_until(const std::function<bool(const std::string&)>& enough) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!enough(output_) && std::chrono::steady_clock::now() < end) {
      pollfd ready = {.fd = screen_, .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 100) <= 0) continue;
      char bytes[4096];
      const auto count = read(screen_, bytes, sizeof bytes);
      if (count <= 0) break;  // the program has closed its side
      output_.append(bytes, static_cast<std::size_t>(count));
    }
    return output_;
  }

  // The exit code, or minus the signal.
  int wait() {
    read_until([](const std::string&) { return false; });
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  int screen_ = -1;
  pid_t pid_ = 0;
  std::string output_;
};

// The lines that were redrawn in place, in order, without what erases them.
inline std::vector<std::string> redrawn_lines(const std::string& output) {
  const std::string mark = "\r\033[K";
  std::vector<std::string> lines;
  for (auto at = output.find(mark); at != std::string::npos; at = output.find(mark, at + 1)) {
    const auto start = at + mark.size(), end = output.find_first_of("\r\n", start);
    if (end != std::string::npos && output[end] == '\r' && end > start && output.compare(end, 2, "\r\n") != 0)
      lines.push_back(output.substr(start, end - start));
  }
  return lines;
}
