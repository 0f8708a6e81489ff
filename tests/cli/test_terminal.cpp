// The output of a training on a terminal.

#include "cli/terminal.h"

namespace {

// The lines that were redrawn in place, in order, without the codes that erase them.
std::vector<std::string> redrawn_lines(const std::string& output) {
  const std::string mark = "\r\033[K";
  std::vector<std::string> lines;
  for (auto at = output.find(mark); at != std::string::npos; at = output.find(mark, at + 1)) {
    const auto start = at + mark.size(), end = output.find_first_of("\r\n", start);
    if (end != std::string::npos && output[end] == '\r' && end > start && output.compare(end, 2, "\r\n") != 0)
      lines.push_back(output.substr(start, end - start));
  }
  return lines;
}

const Arguments endless =
    "train --config small.yaml --out run --set train.steps=100000000 --set train.eval_interval=100000000";

std::size_t count(const std::vector<std::string>& lines, const std::string& part) {
  return static_cast<std::size_t>(std::count_if(
      lines.begin(), lines.end(), [&](const std::string& line) { return line.find(part) != std::string::npos; }));
}

}  // namespace

TEST_CASE("the progress line stays within the terminal's width, also when the width changes", "[terminal]") {
  const Program program;
  Terminal terminal(program, endless, 40);
  const auto redrawn = [&](std::size_t enough) {
    return redrawn_lines(
        terminal.read_until([&](const std::string& text) { return redrawn_lines(text).size() >= enough; }));
  };
  for (const auto& line : redrawn(5)) {
    CHECK(line.starts_with("step "));
    CHECK(line.size() == 39);
  }
  terminal.resize(20);
  const auto drawn_before = redrawn(6).size();
  const auto narrow = redrawn(drawn_before + 4);
  CHECK(narrow.back().size() == 19);
  terminal.resize(200);
  const auto wide = redrawn(narrow.size() + 4);
  CHECK_THAT(wide.back(), ContainsSubstring("loss ") && ContainsSubstring("tokens/s  ETA "));
  terminal.type("\x03");
  const std::string answer = "\r\033[Kstopping after this step; again to quit\r\n";
  const auto& answered =
      terminal.read_until([&](const std::string& text) { return text.find(answer) != std::string::npos; });
  CHECK_THAT(answered, ContainsSubstring(answer));
  CHECK(terminal.wait() == 130);
}

TEST_CASE("an evaluation shows its progress, and train.log has training losses also on a terminal", "[terminal]") {
  const Program program;
  Terminal terminal(program, "train --config small.yaml --out run --set train.steps=2", 60);
  const auto lines = redrawn_lines(terminal.read_until([](const std::string&) { return false; }));
  CHECK(count(lines, "evaluating the validation split") > 0);
  CHECK(terminal.wait() == 0);
  CHECK_THAT(program.read("run/train.log"), ContainsSubstring("info: step 2/2  loss ") && !ContainsSubstring("\033") &&
                                                !ContainsSubstring("evaluating"));
}

TEST_CASE("an empty NO_COLOR does not disable colour, any other value does", "[terminal]") {
  const auto [value, coloured] = GENERATE(table<std::string, bool>({{"", true}, {"0", false}, {"1", false}}));
  const Program program;
  const Variables variables{{"NO_COLOR", value}};
  Terminal terminal(program, "train --config nope.yaml", 100);
  const auto& text = terminal.read_until([](const std::string&) { return false; });
  CHECK((text.find("\033[31merror: \033[0m") != std::string::npos) == coloured);
  CHECK_THAT(text, ContainsSubstring("nope.yaml"));
}
