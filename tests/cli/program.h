#pragma once
// The executable in a temporary folder of its own, with a small text and config.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <initializer_list>
#include <iomanip>
#include <list>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/own_cache.h"

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A list of words, or a line that is split at spaces outside '...'.
struct Arguments : std::vector<std::string> {
  using std::vector<std::string>::vector;
  Arguments(const std::string& line) {
    std::istringstream words(line);
    for (std::string word; words >> std::quoted(word, '\'');) push_back(word);
  }
  Arguments(const char* line) : Arguments(std::string(line)) {}
};

inline Arguments joined(Arguments first, const Arguments& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Puts --set before each change.
inline Arguments set(const Arguments& changes) {
  Arguments words;
  for (const auto& change : changes) words.insert(words.end(), {"--set", change});
  return words;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> values;
  for (const auto& line : lines_of(text)) values.push_back(Json::parse(line));
  return values;
}

inline bool is_one_line(const std::string& text) { return std::count(text.begin(), text.end(), '\n') == 1; }

// Polls for at most a minute.
template <class Condition>
void wait_until(const Condition& condition) {
  for (int i = 0; i < 1200 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  REQUIRE(condition());
}

// Sets environment variables during its lifetime.
class Variables {
 public:
  using Values = std::initializer_list<std::pair<std::string, std::string>>;
  Variables(Values values) {
    for (const auto& [name, value] : values) set_.emplace_back(name, value.c_str());
  }

 private:
  std::list<Variable> set_;
};

// Limits a resource of programs that start during its lifetime.
class Limit {
 public:
  Limit(__rlimit_resource resource, rlim_t most) : resource_(resource) {
    REQUIRE(getrlimit(resource_, &usual_) == 0);
    const rlimit small = {.rlim_cur = most, .rlim_max = usual_.rlim_max};
    REQUIRE(setrlimit(resource_, &small) == 0);
  }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  ~Limit() { setrlimit(resource_, &usual_); }

 private:
  __rlimit_resource resource_;
  rlimit usual_{};
};

struct Result {
  int code = 0;
  std::string out, err;
};

inline std::string small_text() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += std::string("to be, or not to be ") + static_cast<char>('a' + i % 20) + "\n";
  return text;
}

// Replaces this process by the executable, in the folder.
[[noreturn]] inline void become_program(const fs::path& folder, const Arguments& arguments) {
  std::vector<const char*> argv = {METAFORMER_PROGRAM};
  for (const auto& word : arguments) argv.push_back(word.c_str());
  argv.push_back(nullptr);
  if (chdir(folder.c_str()) == 0) execv(METAFORMER_PROGRAM, const_cast<char**>(argv.data()));
  _exit(126);
}

// Texts with and without the word "marker", labelled yes and no. `header`: the first row, or "".
inline std::string labelled_table(int count, const std::string& header = "text,label\n",
                                  const std::string& yes = "yes") {
  std::string table = header;
  for (int i = 0; i < count; ++i)
    table += "\"w" + std::to_string(i * 7 % 31) + ", w" + std::to_string(i * 11 % 23) +
             (i % 2 == 1 ? " marker\"," + yes : " other\",no") + "\n";
  return table;
}

class Program {
 public:
  Program() {
    folder_.write("text.txt", small_text());
    folder_.write(
        "small.yaml",
        "data: {path: text.txt}\n"
        "model: {layers: 1, heads: 2, width: 16, context: 16}\n"
        "train: {steps: 4, batch_size: 2, eval_interval: 2, checkpoint_interval: 2, schedule: {warmup_steps: 0}}\n");
  }

  const TemporaryFolder& folder() const { return folder_; }

  // Starts the executable in the folder; stdin comes from a file, stdout and stderr go to files there. `blocked`:
  // the signals that are blocked at its start.
  pid_t start(const Arguments& arguments, const std::string& input = "/dev/null", const sigset_t& blocked = {}) const {
    constexpr int write = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    const std::array files = {open(input.c_str(), O_RDONLY | O_CLOEXEC), open(at("out").c_str(), write, 0666),
                              open(at("err").c_str(), write, 0666)};
    sigset_t usual;
    sigprocmask(SIG_SETMASK, &blocked, &usual);
    const auto pid = fork();
    if (pid == 0) {
      for (int stream = 0; stream < 3; ++stream) dup2(files[static_cast<std::size_t>(stream)], stream);
      become_program(folder_.path(), arguments);
    }
    sigprocmask(SIG_SETMASK, &usual, nullptr);
    for (const int file : files) close(file);
    REQUIRE(pid > 0);
    return pid;
  }

  Result wait(pid_t pid) const {
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_text(folder_ / "out"),
            read_text(folder_ / "err")};
  }

  Result run(const Arguments& arguments, const Arguments& more = {}) const {
    return wait(start(joined(arguments, more)));
  }

  Result run_with_input(const Arguments& arguments, const std::string& input) const {
    return wait(start(arguments, folder_.write("input", input)));
  }

  // Runs a shell command in the folder; $PROGRAM is the executable, and stderr goes to the file err.
  int shell(const std::string& line) const {
    const auto command = "cd '" + folder_.path().string() + "' && export PROGRAM='" METAFORMER_PROGRAM "' && { " +
                         line + "; } 2> '" + (folder_ / "err").string() + "'";
    return WEXITSTATUS(std::system(command.c_str()));
  }

  // Runs, and requires success.
  std::string succeed(const Arguments& arguments, const Arguments& more = {}) const {
    const auto result = run(arguments, more);
    INFO(result.err);
    REQUIRE(result.code == 0);
    return result.out;
  }

  Json json(const Arguments& arguments, const Arguments& more = {}) const {
    return Json::parse(succeed(joined(arguments, more), {"--json"}));
  }

  // Trains small.yaml with these changes. Returns stderr.
  std::string train(const std::string& out, const Arguments& changes = {}) const {
    succeed({"train", "--config", "small.yaml", "--out", out}, set(changes));
    return read("err");
  }

  // Runs, and expects the exit code and all of `parts` on stderr.
  Result refuse(const Arguments& arguments, int code, const Arguments& parts = {}) const {
    return check_refused(run(arguments), code, parts);
  }

  // Like refuse, and expects one line on stderr and an empty stdout.
  void refuse_in_one_line(const Arguments& arguments, int code, const Arguments& parts = {}) const {
    const auto result = refuse(arguments, code, parts);
    INFO(result.err);
    CHECK(is_one_line(result.err));
    CHECK(result.out.empty());
  }

  // Files of the folder.
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string read(const std::string& name) const { return read_text(folder_ / name); }
  Json read_json(const std::string& name) const { return Json::parse(read(name)); }
  bool has(const std::string& name) const { return fs::exists(folder_ / name); }
  std::string model_of(const std::string& run) const { return read(run + "/checkpoints/last/model.safetensors"); }

  static Result check_refused(const Result& result, int code, const Arguments& parts) {
    INFO(result.err);
    CHECK(result.code == code);
    for (const auto& part : parts) CHECK_THAT(result.err, Mentions(part));
    return result;
  }

 private:
  TemporaryFolder folder_;
};
