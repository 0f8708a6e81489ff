#include <unistd.h>

#include <future>
#include <thread>

#include "base/rows.h"
#include "support/catch.h"

namespace metaformer {

namespace {

struct Pipe {
  Pipe() { REQUIRE(pipe(ends) == 0); }
  ~Pipe() {
    close(ends[0]);
    finish();
  }
  void write(const std::string& text) const {
    REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  void finish() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }
  int ends[2];
};

std::vector<std::string> all_lines(const std::string& text, std::size_t longest = 100) {
  Pipe pipe;
  pipe.write(text);
  pipe.finish();
  LineReader reader(pipe.ends[0], "the pipe", longest);
  std::vector<std::string> lines;
  while (const auto line = reader.next()) {
    lines.push_back(line->too_long ? "TOO LONG" : line->text);
    CHECK(line->number == static_cast<std::int64_t>(lines.size()));
  }
  CHECK_FALSE(reader.next());
  return lines;
}

// The lines of a text in pieces of so many bytes, and their sizes.
using SizedLines = std::vector<std::pair<std::string, std::size_t>>;
SizedLines split(std::string_view text, std::size_t piece, std::size_t longest = std::string::npos) {
  SizedLines lines;
  LineSplitter splitter([&](std::string_view line, std::size_t size) { lines.emplace_back(line, size); }, longest);
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) splitter.add(text.substr(0, piece));
  splitter.finish();
  return lines;
}

}  // namespace

TEST_CASE("a text in pieces of any size has the same lines, of which only the beginning is kept", "[lines]") {
  for (std::size_t piece = 1; piece <= 20; ++piece) {
    CHECK(split("", piece).empty());
    CHECK(split("a\n\nbcd\r\ne", piece) == SizedLines{{"a", 1}, {"", 0}, {"bcd\r", 4}, {"e", 1}});
    CHECK(split("\n", piece) == SizedLines{{"", 0}});
    CHECK(split("\xEF\xBB\xBFone\n\xEF\xBB\xBFtwo\n", piece) == SizedLines{{"one", 3}, {"\xEF\xBB\xBFtwo", 6}});
    CHECK(split("abcdefgh\nabcd\nabcde", piece, 4) == SizedLines{{"abcd", 8}, {"abcd", 4}, {"abcd", 5}});
  }
}

TEST_CASE(
    "lines are read in order, with any line break, the last also without one, and a line that is too long is skipped",
    "[lines]") {
  using Lines = std::vector<std::string>;
  CHECK(all_lines("").empty());
  CHECK(all_lines("a\nbb\n\nc") == Lines{"a", "bb", "", "c"});
  CHECK(all_lines("a\r\nb\rb\r\n") == Lines{"a", "b\rb"});
  CHECK(all_lines("\n\n") == Lines{"", ""});
  CHECK(all_lines("\xEF\xBB\xBFmarked\n\xEF\xBB\xBFnot") == Lines{"marked", "\xEF\xBB\xBFnot"});
  CHECK(all_lines(std::string("x\0y\nz", 5)) == Lines{std::string("x\0y", 3), "z"});
  for (const std::size_t length : {11u, 5'000u}) {
    const std::string many(length, 'x');
    CHECK(all_lines("a\n" + many + "\nb\n", 10) == Lines{"a", "TOO LONG", "b"});
    CHECK(all_lines(many, 10) == Lines{"TOO LONG"});
  }
  CHECK(all_lines(std::string(10, 'x'), 10) == Lines{std::string(10, 'x')});
}

TEST_CASE("a reader knows whether a line is ready, and waits for an incomplete one", "[lines]") {
  Pipe pipe;
  LineReader reader(pipe.ends[0], "the pipe", 100);
  CHECK_FALSE(reader.is_ready());
  pipe.write("half");
  CHECK_FALSE(reader.is_ready());
  pipe.write(" a line\nand");
  CHECK(reader.is_ready());
  CHECK(reader.next()->text == "half a line");
  CHECK_FALSE(reader.is_ready());
  auto line = std::async(std::launch::async, [&] { return reader.next()->text; });
  CHECK(line.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  pipe.write(" more\n");
  pipe.finish();
  CHECK(line.get() == "and more");
  CHECK(reader.is_ready());
  CHECK_FALSE(reader.next());
}

TEST_CASE("lines larger than a pipe's buffer are read completely", "[lines]") {
  Pipe pipe;
  const std::string large(300'000, 'y');
  std::thread writer([&] {
    for (std::size_t at = 0; at < large.size();) {
      const auto count = ::write(pipe.ends[1], large.data() + at, large.size() - at);
      at += static_cast<std::size_t>(count);
    }
    pipe.write("\nnext\n");
    pipe.finish();
  });
  LineReader reader(pipe.ends[0], "the pipe", 1 << 20);
  CHECK(reader.next()->text == large);
  CHECK(reader.next()->text == "next");
  writer.join();
}

}  // namespace metaformer
