#pragma once
// The executable on a terminal.

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>

#include <functional>
#include <utility>

#include "cli/program.h"

// The executable on a pseudo-terminal of a given width.
class Terminal {
 public:
  Terminal(const Program& program, const Arguments& arguments, unsigned short columns) {
    winsize size = size_of(columns);
    pid_ = forkpty(&screen_, nullptr, nullptr, &size);
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) become_program(program.folder().path(), arguments);
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
    const winsize size = size_of(columns);
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
  static winsize size_of(unsigned short columns) {
    return {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  }

  int screen_ = -1;
  pid_t pid_ = 0;
  std::string output_;
};
