#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_lock.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace metaformer {

namespace {

// A process that holds the lock until it is killed.
pid_t start_holder(const std::filesystem::path& file) {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const auto pid = fork();
  if (pid == 0) {
    const FileLock lock(file);
    [[maybe_unused]] const auto written = write(ready[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  return pid;
}

}  // namespace

TEST_CASE("a second holder is refused and told who the first is", "[lock]") {
  const TemporaryFolder folder;
  const auto file = folder / "lock";
  const auto pid = start_holder(file);
  CHECK_THROWS_WITH(FileLock(file), ContainsSubstring("is in use by process " + std::to_string(pid) + " on "));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  CHECK_NOTHROW(FileLock(file));  // the dead hold nothing
}

TEST_CASE("a lock is free again when its holder is done, and leaves no file", "[lock]") {
  const TemporaryFolder folder;
  const auto file = folder / "lock";
  {
    const FileLock lock(file);
    CHECK_THROWS_AS(FileLock(file), Error);
    CHECK(read_text(file).starts_with("process " + std::to_string(getpid())));
  }
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK_NOTHROW(FileLock(file));
  CHECK_THROWS_AS(FileLock(folder / "no/such/folder"), Error);
}

TEST_CASE("a link in the place of a lock is left alone", "[lock]") {
  const TemporaryFolder folder;
  const auto victim = folder.write("victim", "untouched");
  for (const auto* target : {"victim", "absent"}) {
    std::filesystem::create_symlink(target, folder / "lock");
    CHECK_THROWS_WITH(FileLock(folder / "lock"), ContainsSubstring("lock: it is a link"));
    CHECK(std::filesystem::is_symlink(folder / "lock"));
    std::filesystem::remove(folder / "lock");
  }
  CHECK(read_text(victim) == "untouched");
  CHECK_FALSE(std::filesystem::exists(folder / "absent"));
}

}  // namespace metaformer
