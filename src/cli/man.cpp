#include <algorithm>
#include <array>
#include <utility>

#include "base/platform.h"
#include "base/utf8.h"
#include "cli/command_line.h"

namespace metaformer {

namespace {

using Escape = std::pair<char, const char*>;
constexpr std::array<Escape, 7> escapes = {
    {{'\\', "\\e"}, {'-', "\\-"}, {'\'', "\\(aq"}, {'"', "\\(dq"}, {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}}};

// Text for roff: what it would take for a request, an escape or a typographical sign is written as an escape.
std::string roff_text(std::string_view text) {
  std::string escaped_text;
  char before = '\n';
  for_each_code_point(text, [&](std::uint32_t point) {
    const auto c = static_cast<char>(point);
    if (before == '\n' && (point == '.' || point == '\'')) escaped_text += "\\&";
    const auto special = std::ranges::find(escapes, c, &Escape::first);
    if (point >= 0x80)
      escaped_text += fmt::format("\\[u{:04X}]", point);
    else if (special != escapes.end())
      escaped_text += special->second;
    else
      escaped_text += c;
    before = point < 0x80 ? c : ' ';
  });
  return escaped_text;
}

// The manual page, from the same descriptions as the help.
struct ManualPage {
  const CLI::App& program;
  const CLI::Formatter& formatter;
  std::string page;

  void write() {
    page += fmt::format(".TH METAFORMER 1 \"\" \"metaformer {}\" \"User Commands\"\n.na\n", build_info().version);
    page += ".SH NAME\nmetaformer \\- " + roff_text(program.get_description()) + "\n";
    page += ".SH SYNOPSIS\n" + roff_text(usage(program, "metaformer"));
    page += ".SH OPTIONS\n";
    write_options(program, /*with_help=*/true);
    page += ".SH COMMANDS\n";
    for (const auto* command : subcommands_of(program)) write_command(*command, "metaformer ");
    page += ".SH EXAMPLES AND EXIT CODES\n";
    write_lines(program.get_footer());
    page += ".SH SEE ALSO\n" + roff_text("docs/commands.md and docs/configs.md of the documentation.\n");
  }

  // "metaformer runs [OPTIONS] [folder] [SUBCOMMAND]\n".
  std::string usage(const CLI::App& command, const std::string& words) const {
    return formatter.make_usage(&command, words).substr(formatter.get_label("Usage").size() + 2);
  }

  void write_lines(const std::string& text) {
    if (!text.empty()) page += ".PP\n.nf\n" + roff_text(text) + "\n.fi\n";
  }

  // --help and --help-all, which every command has, are described once.
  void write_options(const CLI::App& command, bool with_help) {
    for (const auto* option : command.get_options()) {
      const bool is_help = option == command.get_help_ptr() || option == command.get_help_all_ptr();
      if (is_help && !with_help) continue;
      const bool is_positional = option->get_positional() && !option->nonpositional();
      page += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff_text(formatter.make_option_name(option, is_positional)),
                          roff_text(formatter.make_option_opts(option)), roff_text(formatter.make_option_desc(option)));
    }
  }

  void write_command(const CLI::App& command, const std::string& words_before) {
    const auto words = words_before + command.get_name();
    page += ".SS " + roff_text(usage(command, words)) + roff_text(command.get_description()) + "\n";
    write_options(command, /*with_help=*/false);
    write_lines(command.get_footer());
    for (const auto* next : subcommands_of(command)) write_command(*next, words + " ");
  }
};

}  // namespace

void add_man_command(CLI::App& program) {
  auto& command = *program.add_subcommand("man", "print the manual page: the help of all commands");
  command.footer(
      "cmake --install puts the page where man looks for it.\n"
      "Examples:\n"
      "  metaformer man > metaformer.1; man -l metaformer.1");
  command.callback([&program] {
    ManualPage manual{
        .program = program, .formatter = dynamic_cast<const CLI::Formatter&>(*program.get_formatter()), .page = ""};
    manual.write();
    print(manual.page);
  });
}

}  // namespace metaformer
