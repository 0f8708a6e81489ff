// The completion scripts, in a real bash and, if there is one, in a real fish.

#include <set>
#include <sstream>

#include "cli/program.h"

namespace {

using Words = std::set<std::string>;

// The offers of a shell after the words of a line have been typed; "=" is a word of its own, as in bash.
struct Completion : Program {
  explicit Completion(const std::string& name = "bash") : shell_name(name) {
    folder().write("completion." + name, succeed({"completion", name}));
  }

  Words offer(const Arguments& words) const {
    return shell_name == "fish" ? offer_of_fish(words) : offer_of_bash(words);
  }

  Words offer_of_bash(const Arguments& words) const {
    std::string line = "COMP_WORDS=(\"$PROGRAM\"";
    for (const auto& word : words) line += " '" + word + "'";
    folder().write("ask.bash", ". ./completion.bash\n" + line + ")\nCOMP_CWORD=" + std::to_string(words.size()) +
                                   "\n_metaformer\nprintf '%s\\n' \"${COMPREPLY[@]}\" > offered\n");
    REQUIRE(shell("bash ask.bash") == 0);
    Words offered;
    for (const auto& word : lines_of(read("offered")))
      if (!word.empty()) offered.insert(word);
    return offered;
  }

  // Fish offers whole words, and also words that only contain what was typed; folders end with "/".
  Words offer_of_fish(const Arguments& words) const {
    std::string line = "$PROGRAM", typed;
    for (const auto& word : words) {
      const bool goes_on = word == "=" || line.ends_with('=');
      typed = goes_on ? typed + word : word;
      line += (goes_on ? "" : " ") + (word.empty() && &word != &words.back() ? "''" : word);
    }
    folder().write("ask.fish", "source completion.fish\ncomplete -C \"" + line + "\" > offered\n");
    REQUIRE(shell("XDG_DATA_HOME=$PWD/.fish XDG_CONFIG_HOME=$PWD/.fish fish --no-config ask.fish") == 0);
    const auto begin = typed.rfind('=') + 1;
    Words offered;
    for (auto word : lines_of(read("offered"))) {
      word = word.substr(0, word.find('\t'));  // without a description
      if (word.ends_with('/')) word.pop_back();
      if (word.starts_with(typed)) offered.insert(word.substr(begin));
    }
    return offered;
  }

  bool can_run() const {
    if (shell("command -v " + shell_name + " > /dev/null") == 0) return true;
    skip("this machine has no " + shell_name);
    return false;
  }

  std::string shell_name;
};

const std::vector<std::string> completed_shells = {"bash", "fish"};

struct Help {
  Words commands, options;
};

Help help_of(const Program& program, const Arguments& words) {
  Help help;
  bool in_commands = false;
  for (const auto& line : lines_of(program.succeed(words, {"--help"}))) {
    if (!line.starts_with(' ')) in_commands = line == "Subcommands:";
    const auto begin = line.find_first_not_of(' ');
    if (begin != 2) continue;
    if (in_commands) help.commands.insert(line.substr(begin, line.find(' ', begin) - begin));
    if (in_commands || line[begin] != '-') continue;
    std::istringstream names(line.substr(begin, line.find(' ', begin) - begin));  // "-h,--help"
    for (std::string name; std::getline(names, name, ',');)
      if (name.starts_with("--")) help.options.insert(name);
  }
  return help;
}

}  // namespace

TEST_CASE("a shell completes every command and every option that help lists", "[cli]") {
  const Completion completion(GENERATE(from_range(completed_shells)));
  if (!completion.can_run()) return;
  std::vector<Arguments> left = {{}};
  std::size_t commands = 0, options = 0;
  while (!left.empty()) {
    const auto words = left.back();
    left.pop_back();
    CAPTURE(words);
    const auto help = help_of(completion, words);
    const bool takes_folder = words == Arguments{"runs"};  // files are offered, too
    if (!help.commands.empty() && !takes_folder) CHECK(completion.offer(joined(words, {""})) == help.commands);
    CHECK(completion.offer(joined(words, {"--"})) == help.options);
    commands += help.commands.size();
    options += help.options.size();
    for (const auto& command : help.commands) left.push_back(joined(words, {command}));
  }
  CHECK(commands >= 19);
  CHECK(options >= 100);
}

TEST_CASE("a shell completes the values of options", "[cli]") {
  const Completion completion(GENERATE(from_range(completed_shells)));
  if (!completion.can_run()) return;
  const std::vector<std::pair<Arguments, Words>> cases = {
      {"tr", {"train"}},
      {"train --res", {"--resume"}},
      {"train --resume --ou", {"--out"}},
      {"train --config sm", {"small.yaml"}},
      {"train --config = sm", {"small.yaml"}},
      {"train sm", {"small.yaml"}},
      {"train --config x.yaml --set train.learning", {"train.learning_rate="}},
      {"train --set model.norm.position =", {"pre", "post", "both"}},
      {"train --set model.norm.position = po", {"post"}},
      {"train --set = model.norm.position = po", {"post"}},
      {"train --set train.steps = 1", {}},
      {"sample --window ''", {"half", "slide"}},
      {"sample --tokens ''", {}},
      {"sample --prompt-file te", {"text.txt"}},
      {"sample --prompt '' --win", {"--window"}},
      {"evaluate --split t", {"train", "test"}},
      {"export --format ''", {"huggingface", "safetensors", "peft", "gguf"}},
      {"export --ch", {"--checkpoint"}},
      {"config import te", {"text.txt"}},
      {"predict te", {"text.txt"}},
      {"config explain model.mixer.constr", {"model.mixer.constraint"}},
      {"data fetch i", {"imdb"}},
      {"runs r", {"rm"}},
      {"runs te", {"text.txt"}},
      {"runs rm te", {"text.txt"}},
      {"runs --sort ''", {"age", "name", "loss"}},
      {"help config d", {"draw", "dump"}},
      {"help train ''", {}},
      {"completion ''", {"bash", "zsh", "fish"}},
      {"nonsense x", {}},
  };
  for (const auto& [words, expected] : cases) {
    CAPTURE(words);
    CHECK(completion.offer(words) == expected);
  }
}

TEST_CASE("a shell completes the configs of METAFORMER_CONFIG_PATH and of the program", "[cli]") {
  const Completion completion(GENERATE(from_range(completed_shells)));
  if (!completion.can_run()) return;
  completion.folder().write("more/mine.yaml", "");
  {
    const Variables variables{{"METAFORMER_CONFIG_PATH", completion.at("more")}};
    CHECK(completion.offer("train --config mi") == Words{"mine.yaml"});
  }
  CHECK(completion.offer("train --config mi").empty());
  CHECK(completion.offer("train --config shakespeare_met") ==
        Words{"shakespeare_metric.yaml", "shakespeare_metric_published.yaml"});
}

TEST_CASE("a shell completes runs below runs, checkpoints of the run on the line, and paths", "[cli]") {
  const Completion completion(GENERATE(from_range(completed_shells)));
  if (!completion.can_run()) return;
  for (const std::string run : {"runs/a", "runs/sweep/b", "elsewhere"}) {
    completion.folder().write(run + "/config.yaml", "");
    fs::create_directories(completion.folder() / run / "checkpoints/step-4.replaced");
  }
  for (const std::string checkpoint : {"runs/a/checkpoints/step-2", "runs/a/checkpoints/step-14",
                                       "runs/sweep/b/checkpoints/step-9", "elsewhere/checkpoints/step-7"})
    fs::create_directories(completion.folder() / checkpoint);
  fs::create_symlink("a", completion.folder() / "runs/latest");
  const Words in_runs = {"runs", "runs/a", "runs/latest", "runs/sweep/b"};
  const std::vector<std::pair<Arguments, Words>> cases = {
      {"evaluate --run ru", in_runs},
      {"evaluate --run = ru", in_runs},
      {"evaluate --run runs/sw", {"runs/sweep", "runs/sweep/b"}},
      {"evaluate --run el", {"elsewhere"}},
      {"compare ru", in_runs},
      {"inspect --beside runs/a", {"runs/a"}},
      {"train --resume ru", in_runs},
      {"evaluate --checkpoint ''", {"best", "last", "step-2", "step-14"}},
      {"sample --run runs/sweep/b --checkpoint ''", {"best", "last", "step-9"}},
      {"sample --run = elsewhere --checkpoint = st", {"step-7"}},
      {"sample --checkpoint la --run = elsewhere --checkpoint l", {"last"}},
      {"sample --run nowhere --checkpoint ''", {"best", "last"}},
      {"sample --checkpoint elsewhere/che", {"elsewhere/checkpoints"}},
      {"train --resume runs/sweep/b --from st", {"step-9"}},
      {"train --resume --from st", {"step-2", "step-14"}},
  };
  for (const auto& [words, expected] : cases) {
    CAPTURE(words);
    CHECK(completion.offer(words) == expected);
  }
  const Variables variables{{"HOME", completion.folder().path().string()}};
  CHECK(completion.offer("sample --run ~/elsewhere --checkpoint st") == Words{"step-7"});
}

TEST_CASE("the scripts parse, and an unknown shell is an error that lists the known ones", "[cli]") {
  const Completion program;
  CHECK(program.shell("bash -n completion.bash") == 0);
  const auto zsh = program.succeed("completion zsh");
  CHECK(zsh.starts_with("#compdef metaformer\n"));
  program.folder().write("_metaformer", zsh);
  if (program.shell("command -v zsh > /dev/null") == 0) CHECK(program.shell("zsh -n _metaformer") == 0);
  const auto fish = program.succeed("completion fish");
  CHECK(fish.starts_with("# fish completion of metaformer\n"));
  program.folder().write("completion.fish", fish);
  if (program.shell("command -v fish > /dev/null") == 0) CHECK(program.shell("fish --no-execute completion.fish") == 0);
  program.refuse_in_one_line("completion csh", 2, {"completion csh: expected bash, zsh or fish"});
  program.refuse("completion", 2);
  CHECK_THAT(program.succeed("completion --help"), ContainsSubstring("~/.bashrc"));
}
