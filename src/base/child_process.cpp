#include "base/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "base/files.h"
#include "base/signals.h"
#include "base/text.h"

namespace metaformer {

// Compares with `parent` and not with 1, because process 1 may be the parent in a container. 0 means that the parent is
// outside of the container.
void end_with_parent(int parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (const auto now = ::getppid(); now != parent && now != 0) ::raise(SIGKILL);
}

namespace {

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw Error(ExitCode::failure, "no pipe to a child process");
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  int reading() const { return ends_[0]; }
  int writing() const { return ends_[1]; }
  void close_end(std::size_t end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }

 private:
  std::array<int, 2> ends_{};
};

// A child sends one of these letters, then the result, or the exit code and message of an error.
constexpr char result_mark = 'r', error_mark = 'e';

std::string answer_of(const std::function<std::string()>& compute) {
  try {
    return result_mark + compute();
  } catch (const Error& error) {
    return error_mark + std::string(1, static_cast<char>(error.code())) + error.what();
  } catch (const std::bad_alloc&) {
    return error_mark + std::string(1, static_cast<char>(ExitCode::out_of_memory)) + "out of memory";
  }
}

[[noreturn]] void run_child(const std::function<std::string()>& compute, const Pipe& answer, const Pipe& messages,
                            pid_t parent) {
  end_with_parent(parent);
  std::atexit([] { ::_exit(EXIT_FAILURE); });  // a library's exit() must not run what the parent registered
  ::dup2(messages.writing(), STDERR_FILENO);
  // Removes the parent's handlers.
  for (const int fatal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(fatal, SIG_DFL);
  try {
    OpenFile("the answer", answer.writing()).write(answer_of(compute));
    ::_exit(EXIT_SUCCESS);
  } catch (...) {  // Interrupted: the parent receives the signal too
    ::_exit(EXIT_FAILURE);
  }
}

// Appends the bytes that can be read now; false at the end.
bool read_some(int file, std::string& text) {
  std::array<char, 1 << 16> piece;
  const auto count = ::read(file, piece.data(), piece.size());
  if (count > 0) text.append(piece.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

struct ChildEnd {
  std::string output, messages;
  int status = 0;
  bool succeeded() const { return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS; }
};

// Reads what the child writes until it has closed both pipes, and waits for its end. Throws Interrupted, and kills the
// child, if a signal asks to stop.
ChildEnd wait_for(pid_t child, Pipe& output, Pipe& messages) {
  constexpr int signal_check_ms = 100;
  output.close_end(1);
  messages.close_end(1);
  ChildEnd end;
  std::array<pollfd, 2> files = {pollfd{.fd = output.reading(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = messages.reading(), .events = POLLIN, .revents = 0}};
  while ((files[0].fd >= 0 || files[1].fd >= 0) && stop_signal() == 0) {
    if (::poll(files.data(), files.size(), signal_check_ms) <= 0) continue;
    if (files[0].revents != 0 && !read_some(output.reading(), end.output)) files[0].fd = -1;
    if (files[1].revents != 0 && !read_some(messages.reading(), end.messages)) files[1].fd = -1;
  }
  if (files[0].fd >= 0 || files[1].fd >= 0) ::kill(child, SIGKILL);
  while (::waitpid(child, &end.status, 0) < 0 && errno == EINTR) continue;
  throw_if_stopped();
  return end;
}

// The last line that a failed process wrote to stderr.
std::string last_message(std::string_view messages) {
  constexpr std::string_view closing = "Program terminated with an unrecoverable error.";
  std::string last;
  while (!messages.empty()) {
    const auto line = take_line(messages);
    if (!line.empty() && line != closing) last = in_quotes(line);
  }
  return last.empty() ? "no reason given" : last;
}

}  // namespace

std::string compute_in_child(const std::function<std::string()>& compute, const std::string& failure) {
  Pipe answer, messages;
  std::fflush(nullptr);
  const auto parent = ::getpid(), child = ::fork();
  if (child < 0) return compute();
  if (child == 0) run_child(compute, answer, messages, parent);
  const auto end = wait_for(child, answer, messages);
  if (WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGKILL)
    throw Error(ExitCode::out_of_memory, failure + ": its process was killed, as happens when memory runs out");
  if (!end.succeeded() || end.output.empty())
    throw Error(ExitCode::data, fmt::format("{}: {}", failure, last_message(end.messages)));
  if (end.output[0] == error_mark) throw Error(static_cast<ExitCode>(end.output[1]), end.output.substr(2));
  return end.output.substr(1);
}

std::optional<std::string> run_program(const std::vector<std::string>& words, const std::string& failure) {
  Pipe output, messages;
  std::vector<char*> arguments;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output.writing(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, messages.writing(), STDERR_FILENO);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return std::nullopt;
  if (error != 0) throw Error(ExitCode::failure, fmt::format("{}: {}", failure, std::strerror(error)));
  auto end = wait_for(child, output, messages);
  if (!end.succeeded()) throw Error(ExitCode::failure, fmt::format("{}: {}", failure, last_message(end.messages)));
  return std::move(end.output);
}

}  // namespace metaformer
