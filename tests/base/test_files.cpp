// Whole files, files that are appended to, and locks.

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

#include "base/file_lock.h"
#include "base/files.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer {

TEST_CASE("no file is written through a link that another program has put in its place", "[files]") {
  const TemporaryFolder folder;
  const auto victim = folder.write("victim", "precious");
  const auto temporary = folder / fmt::format(".a.txt.{}.tmp", ::getpid());
  std::filesystem::create_symlink(victim, temporary);
  write_file_atomically(folder / "a.txt", "new");
  CHECK(read_text(folder / "a.txt") == "new");
  CHECK(read_text(victim) == "precious");
  std::filesystem::create_symlink(victim, folder / "b.txt");
  CHECK_THROWS_AS(write_file_synced(folder / "b.txt", "new"), Error);
  CHECK(read_text(victim) == "precious");
}

TEST_CASE("a file is replaced completely or not at all, and a link in one step", "[files]") {
  const TemporaryFolder folder;
  const auto path = folder.write("a.txt", "old");
  write_file_atomically(path, "new");
  CHECK(read_text(path) == "new");
  CHECK_THROWS_WITH(write_file_atomically(folder / "missing/a.txt", "x"), ContainsSubstring("No such file"));
  // Writing to a full device fails and leaves no trace.
  std::filesystem::create_directory_symlink("/dev", folder / "dev");
  CHECK_THROWS_AS(write_file_synced(folder / "dev/full", "x"), Error);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);
  for (const auto* target : {"one", "two"}) {
    replace_symlink(target, folder / "link");
    CHECK(std::filesystem::read_symlink(folder / "link") == target);
  }
}

TEST_CASE("a folder gets its temporary name once, also if another one has that name", "[files]") {
  const TemporaryFolder folder;
  const auto a = folder.write("a/file", "new").parent_path();
  folder.write(fmt::format(".a.{}.tmp/old", ::getpid()), "");
  std::error_code error;
  const auto renamed = rename_to_temporary(a, error);
  CHECK_FALSE(error);
  CHECK(target_of_temporary(renamed.filename().string()) == "a");
  CHECK(read_text(renamed / "file") == "new");
  CHECK_FALSE(std::filesystem::exists(renamed / "old"));
  CHECK(rename_to_temporary(renamed, error) == renamed);
  rename_to_temporary(folder / "absent", error);
  CHECK(error);
}

TEST_CASE("the size of a folder is that of its files at any depth, without those behind links", "[files]") {
  const TemporaryFolder folder, other;
  other.write("large", std::string(1000, 'x'));
  folder.write("a", "12345");
  const auto deep = folder.write("b/c/d", "123");
  std::filesystem::create_symlink(other / "large", folder / "link");
  std::filesystem::create_directory_symlink(other.path(), folder / "b/links");
  std::filesystem::last_write_time(deep, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  const auto size = size_of_folder(folder.path());
  CHECK(size.bytes == 8);
  CHECK(std::difftime(size.changed, std::time(nullptr)) > 3000);
  CHECK(size_of_folder(folder / "absent").bytes == 0);
  CHECK(size_of_folder(folder / "absent").changed == 0);
}

TEST_CASE("an error of reading a file names its cause", "[files]") {
  const TemporaryFolder folder;
  const auto a = folder.write("a", "12345");
  CHECK(read_file(a, 5, ExitCode::data) == "12345");
  for (const auto& [path, why] :
       {std::pair{a, "larger|4 bytes"}, {folder / "b", "no such file"}, {folder.path(), "not a reg"}})
    CHECK_THROWS_WITH(read_file(path, 4, ExitCode::data), Mentions(why));
}

TEST_CASE("a file is appended to only directly, not through a link", "[files]") {
  const TemporaryFolder folder;
  {
    const AppendedFile file(folder / "a");
    file.write("one\n");
    file.write("two\n");
    file.sync();
  }
  AppendedFile(folder / "a").write("three\n");
  CHECK(read_text(folder / "a") == "one\ntwo\nthree\n");
  std::filesystem::create_symlink("a", folder / "link");
  std::filesystem::create_symlink("absent", folder / "dangling");
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  std::filesystem::create_directory(folder / "folder");
  for (const auto& [name, why] : {std::pair{"link", "it is a link"},
                                  {"dangling", "it is a link"},
                                  {"pipe", "no regular file"},
                                  {"folder", "Is a directory"},
                                  {"absent/file", "No such file"}})
    CHECK_THAT(message_of(ExitCode::usage, [&, name = name] { AppendedFile(folder / name).write("x"); }),
               ContainsSubstring((folder / name).string() + ": ") && Mentions(why));
  CHECK_FALSE(std::filesystem::exists(folder / "absent"));
  CHECK(read_text(folder / "a") == "one\ntwo\nthree\n");
}

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

TEST_CASE("a second holder of a lock is refused with the first holder's process, whose death frees the lock",
          "[lock]") {
  const TemporaryFolder folder;
  const auto file = folder / "lock";
  const auto pid = start_holder(file);
  CHECK_THROWS_WITH(FileLock(file), Mentions("in use|" + std::to_string(pid) + " on "));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  {
    const FileLock lock(file);
    CHECK_THROWS_AS(FileLock(file), Error);
    CHECK(read_text(file).starts_with("process " + std::to_string(getpid())));
  }
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK_NOTHROW(FileLock(file));
  CHECK_THROWS_AS(FileLock(folder / "no/such/folder"), Error);
}

TEST_CASE("the holder of a lock is found without taking it, and only while it lives", "[lock]") {
  const TemporaryFolder folder;
  const auto file = folder / "lock";
  CHECK_FALSE(lock_holder(file));
  CHECK_FALSE(std::filesystem::exists(file));
  const auto pid = start_holder(file);
  CHECK_THAT(lock_holder(file).value_or(""), ContainsSubstring("process " + std::to_string(pid) + " on "));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  CHECK_FALSE(lock_holder(file));
  CHECK(read_text(file).starts_with("process " + std::to_string(pid)));  // it is left as it was
  CHECK_NOTHROW(FileLock(file));
}

TEST_CASE("a link in the place of a lock is refused and not changed", "[lock]") {
  const TemporaryFolder folder;
  const auto victim = folder.write("victim", "untouched");
  for (const auto* target : {"victim", "absent"}) {
    std::filesystem::create_symlink(target, folder / "lock");
    CHECK_THROWS_WITH(FileLock(folder / "lock"), Mentions("lock:|link"));
    CHECK(std::filesystem::is_symlink(folder / "lock"));
    std::filesystem::remove(folder / "lock");
  }
  CHECK(read_text(victim) == "untouched");
  CHECK_FALSE(std::filesystem::exists(folder / "absent"));
}

}  // namespace metaformer
