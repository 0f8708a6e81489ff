#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>

#include "base/files.h"
#include "base/random.h"
#include "base/text.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer {

TEST_CASE("the nearest word is suggested only when it is near", "[text]") {
  CHECK(closest_match("learning_rat", {"learning_rate", "steps"}) == "learning_rate");
  CHECK(closest_match("tsep", {"step"}) == "step");
  CHECK(closest_match("zebra", {"learning_rate", "steps"}).empty());
  CHECK(closest_match(std::string(100'000, 'x'), {"steps"}).empty());
  CHECK(closest_match("x", {}).empty());
}

TEST_CASE("values in messages are short and on one line", "[text]") {
  CHECK(in_quotes("a\nb\x01") == "'a\\nb\\x01'");
  CHECK(in_quotes(std::string(1000, 'x')).size() == 65);
  CHECK(human_duration(3661) == "1h01m");
  CHECK(human_duration(61) == "1m01s");
  CHECK(human_bytes(1536) == "1.5 KiB");
}

TEST_CASE("what a terminal would act on is escaped, other text is left as it is", "[text]") {
  CHECK(escaped("a\x1b[31mb\r\n\tc\x7f") == "a\\x1b[31mb\\r\\n\\tc\\u007f");
  CHECK(escaped("\xc2\x9b"
                "2J") == "\\u009b2J");  // CSI as one character
  CHECK(escaped("\xe2\x80\xae"
                "evil") == "\\u202eevil");  // right to left
  CHECK(escaped("\xff\x9b ok \xe2\x80") == "\\xff\\x9b ok \\xe2\\x80");
  CHECK(escaped("caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x99\x82") == "caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x99\x82");
  CHECK(escaped_lines("a\n\tb\x1b\n") == "a\n\tb\\x1b\n");
  std::string e_acute;
  for (int i = 0; i < 40; ++i) e_acute += "\xc3\xa9";
  CHECK(printable("x" + e_acute) == "x" + e_acute.substr(0, 58) + "...");  // no half character
}

TEST_CASE("random numbers are a function of seed, purpose, step and index", "[random]") {
  const Rng rng(1337, RandomPurpose::batches, 5);
  CHECK(rng.bits(7) == Rng(1337, RandomPurpose::batches, 5).bits(7));
  CHECK(rng.bits(7) != Rng(1338, RandomPurpose::batches, 5).bits(7));
  CHECK(rng.bits(7) != Rng(1337, RandomPurpose::dropout, 5).bits(7));
  CHECK(rng.bits(7) != Rng(1337, RandomPurpose::batches, 6).bits(7));
  CHECK(rng.bits(7) != rng.bits(8));
  // Frozen: a change would silently change every experiment.
  CHECK(Rng::mix(0) == 0xe220a8397b1dcdafULL);
  CHECK(hash_name("a") == 0xaf63dc4c8601ec8cULL);
}

TEST_CASE("random numbers are uniform", "[random]") {
  // Chi-square with 63 degrees of freedom: mean 63, standard deviation 11.2.
  for (const std::uint64_t seed : {0ULL, 1ULL, 1337ULL}) {
    const Rng rng(seed, RandomPurpose::batches, 3);
    std::array<int, 64> counts{};
    constexpr int draws = 64'000;
    double sum = 0;
    for (int i = 0; i < draws; ++i) {
      ++counts[rng.below(static_cast<std::uint64_t>(i), 64)];
      sum += rng.uniform(static_cast<std::uint64_t>(i));
    }
    double chi_square = 0;
    for (const int count : counts) chi_square += std::pow(count - 1000.0, 2) / 1000.0;
    CHECK(chi_square > 63 - 4 * 11.2);
    CHECK(chi_square < 63 + 4 * 11.2);
    CHECK(sum / draws == Approx(0.5).margin(0.005));
  }
}

TEST_CASE("no file is written through a link that another has put in its place", "[files]") {
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

TEST_CASE("a file is replaced whole or not at all", "[files]") {
  const TemporaryFolder folder;
  const auto path = folder.write("a.txt", "old");
  write_file_atomically(path, "new");
  CHECK(read_text(path) == "new");
  CHECK_THROWS_WITH(write_file_atomically(folder / "missing/a.txt", "x"), ContainsSubstring("No such file"));
  // Writing to a full device fails and leaves no trace.
  std::filesystem::create_directory_symlink("/dev", folder / "dev");
  CHECK_THROWS_AS(write_file_synced(folder / "dev/full", "x"), Error);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);
}

TEST_CASE("reading says what is wrong with a file", "[files]") {
  const TemporaryFolder folder;
  folder.write("a", "12345");
  CHECK(read_file(folder / "a", 5, ExitCode::data) == "12345");
  CHECK_THROWS_WITH(read_file(folder / "a", 4, ExitCode::data), ContainsSubstring("larger than the 4 bytes allowed"));
  CHECK_THROWS_WITH(read_file(folder / "b", 4, ExitCode::data), ContainsSubstring("no such file"));
  CHECK_THROWS_WITH(read_file(folder.path(), 4, ExitCode::data), ContainsSubstring("not a regular file"));
}

TEST_CASE("a link is replaced in one step", "[files]") {
  const TemporaryFolder folder;
  replace_symlink("one", folder / "link");
  replace_symlink("two", folder / "link");
  CHECK(std::filesystem::read_symlink(folder / "link") == "two");
}

TEST_CASE("a file that grows is opened where it lies, never through a link", "[files]") {
  const TemporaryFolder folder;
  {
    const AppendedFile file(folder / "a");
    file.write("one\n");
    file.write("two\n");
    file.sync();
  }
  AppendedFile(folder / "a").write("three\n");
  CHECK(read_text(folder / "a") == "one\ntwo\nthree\n");
  const auto complaint = [&](const std::string& name) {
    const auto [code, message] = failure([&] { AppendedFile(folder / name).write("x"); });
    CHECK(code == ExitCode::usage);
    CHECK_THAT(message, ContainsSubstring((folder / name).string() + ": "));
    return message;
  };
  std::filesystem::create_symlink("a", folder / "link");
  CHECK_THAT(complaint("link"), ContainsSubstring("it is a link"));
  std::filesystem::create_symlink("absent", folder / "dangling");
  CHECK_THAT(complaint("dangling"), ContainsSubstring("it is a link"));
  CHECK_FALSE(std::filesystem::exists(folder / "absent"));
  CHECK(read_text(folder / "a") == "one\ntwo\nthree\n");
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(complaint("pipe"), ContainsSubstring("it is no regular file"));
  std::filesystem::create_directory(folder / "folder");
  CHECK_THAT(complaint("folder"), ContainsSubstring("Is a directory"));
  CHECK_THAT(complaint("absent/file"), ContainsSubstring("No such file or directory"));
}

}  // namespace metaformer
