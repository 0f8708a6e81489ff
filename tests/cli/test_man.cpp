// The manual page, also as groff formats it.

#include <regex>
#include <set>

#include "cli/program.h"

namespace {

using Names = std::set<std::string>;

Names matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  Names names;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match)
    names.insert((*match)[1]);
  return names;
}

}  // namespace

TEST_CASE("the manual page has every command and every option of the help", "[cli]") {
  const Program program;
  const auto help = program.succeed("--help-all");
  const auto page = std::regex_replace(program.succeed("man"), std::regex(R"(\\-)"), "-");
  CHECK(page.starts_with(".TH METAFORMER 1 "));
  const auto commands = matches(program.succeed("--help"), "\n  ([a-z][a-z-]*)  ");
  CHECK(commands.size() >= 17);
  CHECK(matches(page, "\n\\.SS metaformer ([a-z-]+) ") == commands);
  CHECK(matches(page, "\n\\.SS metaformer config ([a-z-]+) ") ==
        matches(program.succeed("config --help"), "\n  ([a-z][a-z-]*)  "));
  const auto options = matches(help, "\n +(?:-[a-z],)?(--[a-z][a-z-]*)");
  CHECK(options.size() >= 70);
  const auto described = matches(page, "\n\\\\fB(?:-[a-z],)?(--[a-z][a-z-]*)");
  for (const auto& option : options) {
    CAPTURE(option);
    CHECK(described.contains(option));
  }
}

TEST_CASE("groff formats the manual page without a warning", "[cli]") {
  const Program program;
  if (program.shell("command -v groff > /dev/null") != 0) return skip("groff is not installed");
  program.folder().write("metaformer.1", program.succeed("man"));
  CHECK(program.shell("groff -man -Tutf8 -P-cbou metaformer.1 > formatted") == 0);
  CHECK(program.read("err").empty());
  const auto formatted = program.read("formatted");
  for (const auto* part :
       {"NAME", "metaformer train [OPTIONS]", "--checkpoint CHECKPOINT", "metaformer config explain train",
        "source <(metaformer completion bash)", "EXAMPLES AND EXIT CODES", "128+n"})
    CHECK_THAT(formatted, ContainsSubstring(part));
}
