// The completion scripts, in a real bash.

#include <set>

#include "cli/program.h"

namespace {

using Words = std::set<std::string>;

// Bash's offers after the words of a line have been typed; "=" is a word of its own, as in bash.
struct Completion : Program {
  Completion() { folder().write("completion.bash", succeed("completion bash")); }

  Words offer(const Arguments& words) const {
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
};

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
    if (const auto option = line.find("--"); !in_commands && line[begin] == '-')
      help.options.insert(line.substr(option, line.find_first_of(" ,", option) - option));
  }
  return help;
}

}  // namespace

TEST_CASE("bash completes every command and every option that help lists", "[cli]") {
  const Completion completion;
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

TEST_CASE("bash completes the values of options", "[cli]") {
  const Completion completion;
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
      {"completion ''", {"bash", "zsh"}},
      {"nonsense x", {}},
  };
  for (const auto& [words, expected] : cases) {
    CAPTURE(words);
    CHECK(completion.offer(words) == expected);
  }
}

TEST_CASE("bash completes the configs of METAFORMER_CONFIG_PATH and of the program", "[cli]") {
  const Completion completion;
  completion.folder().write("more/mine.yaml", "");
  {
    const Variables variables{{"METAFORMER_CONFIG_PATH", completion.at("more")}};
    CHECK(completion.offer("train --config mi") == Words{"mine.yaml"});
  }
  CHECK(completion.offer("train --config mi").empty());
  CHECK(completion.offer("train --config shakespeare_met") ==
        Words{"shakespeare_metric.yaml", "shakespeare_metric_published.yaml"});
}

TEST_CASE("bash completes runs below runs, checkpoints of the run on the line, and paths", "[cli]") {
  const Completion completion;
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
  program.refuse_in_one_line("completion fish", 2, {"completion fish: expected bash or zsh"});
  program.refuse("completion", 2);
  CHECK_THAT(program.succeed("completion --help"), ContainsSubstring("~/.bashrc"));
}
