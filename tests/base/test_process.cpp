// Computations in a child process, whose crash this process survives; running time of this process.

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/child_process.h"
#include "base/platform.h"
#include "support/catch.h"
#include "support/failure.h"

namespace metaformer {

TEST_CASE("a child's result arrives completely", "[child_process]") {
  const auto size = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{10} << 20);
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7);
  const auto parent = ::getpid();
  CHECK(compute_in_child([&] { return bytes; }, "failed") == bytes);
  CHECK(compute_in_child([&] { return std::to_string(::getpid() == parent); }, "failed") == "0");
}

TEST_CASE("a child that ends its process gives an error with its last message, and its Error is thrown in the parent",
          "[child_process]") {
  using Outcome = std::pair<ExitCode, std::string>;
  const auto outcome = [](std::string (*work)()) { return failure([&] { compute_in_child(work, "it failed"); }); };
  CHECK(outcome([]() -> std::string {
          std::fputs("trainer.cc(77) [!pieces.empty()]\nProgram terminated with an unrecoverable error.\n", stderr);
          std::exit(255);
        }) == Outcome(ExitCode::data, "it failed: 'trainer.cc(77) [!pieces.empty()]'"));
  CHECK(outcome([]() -> std::string { std::abort(); }) == Outcome(ExitCode::data, "it failed: no reason given"));
  CHECK(outcome([] { return std::to_string(::raise(SIGKILL)); }).first == ExitCode::out_of_memory);
  CHECK(outcome([]() -> std::string { throw Error(ExitCode::usage, "a key is wrong"); }) ==
        Outcome(ExitCode::usage, "a key is wrong"));
}

TEST_CASE("another program runs without a shell, and its output is returned, and a failure is reported",
          "[child_process]") {
  CHECK(run_program({"printf", "%s|", "a b", "$HOME"}, "failed") == "a b|$HOME|");
  CHECK(run_program({"cat"}, "failed") == "");  // its standard input is empty
  CHECK(run_program({"head", "-c", "10000000", "/dev/zero"}, "failed")->size() == 10'000'000);
  CHECK(run_program({"no-such-program-anywhere"}, "failed") == std::nullopt);
  const auto fail = [] { run_program({"sh", "-c", "echo first >&2; echo last >&2; exit 3"}, "it failed"); };
  CHECK(message_of(ExitCode::failure, fail) == "it failed: 'last'");
}

TEST_CASE("the seconds since the start of the program are measured", "[process]") {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const double before = seconds_since_program_start();
  note_program_start();  // too late to have an effect
  while (Clock::now() - start < std::chrono::milliseconds(10)) continue;
  const double after = seconds_since_program_start();
  CHECK(before > 0);
  CHECK(before < 3600);
  CHECK(after >= before);
  CHECK(after - before <= std::chrono::duration<double>(Clock::now() - start).count());
  CHECK(after - before > 0.009);
}

}  // namespace metaformer
