// Help, and command lines that cannot be understood.

#include <map>

#include "cli/program.h"

TEST_CASE("an unknown word on the command line is named, with what was probably meant", "[cli]") {
  const Program program;
  const auto [arguments, text] = GENERATE(table<Arguments, std::string>({
      {Arguments{}, "a command is missing; expected train, evaluate, "},
      {{"trian", "--config", "small.yaml"},
       "unknown command 'trian'; did you mean 'train'?; the commands are train, evaluate, "},
      {{"trian"}, "(see metaformer --help)"},
      {{"config", "list"},
       "unknown command 'list'; the commands are dump, check, explain, draw, import (see metaformer config --help)"},
      {{"config", "chek", "small.yaml"}, "unknown command 'chek'; did you mean 'check'?"},
      {{"config"},
       "a command is missing; expected dump, check, explain, draw or import (see metaformer config --help)"},
      {{"data", "get", "imdb"}, "unknown command 'get'"},
      {{"help", "tran"}, "unknown command 'tran'; did you mean 'train'?"},
      {{"help", "config", "dum"}, "unknown command 'dum'; did you mean 'dump'?"},
      {{"help", "train", "x"}, "metaformer train has no commands"},
      {{"config", "dump", "small.yaml", "one", "two", "three"},
       "unexpected arguments 'one', 'two', 'three' (see metaformer config dump --help)"},
      {{"train", "--config", "small.yaml", "--stes", "3"}, "unexpected arguments '--stes', '3'"},
      {{"train", "--config", "small.yaml", "--resum"}, "unexpected argument '--resum'; did you mean '--resume'?"},
      {{"train", "--config", "small.yaml", "--lr=3"}, "did you mean '--set train.learning_rate=VALUE'?"},
      {{"train", "--config", "small.yaml", "--max-iters", "3"}, "did you mean '--set train.steps=VALUE'?"},
      {{"train", "--config", "small.yaml", "\x1b[31mred"}, "unexpected argument '\\x1b[31mred'"},
      {{"config", "explain", "lr"}, "no key 'lr'; did you mean 'train.learning_rate'?"},
  }));
  const auto result = program.run(arguments);
  INFO(result.err);
  CHECK(result.code == 2);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, ContainsSubstring(text));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
}

TEST_CASE("help says what --help says", "[cli]") {
  const Program program;
  for (const Arguments& words :
       {Arguments{}, {"train"}, {"config"}, {"config", "dump"}, {"bench", "attention"}, {"help"}}) {
    auto help = words, option = words;
    help.insert(help.begin(), "help");
    option.emplace_back("--help");
    CHECK(program.succeed(help) == program.succeed(option));
  }
}

TEST_CASE("help has no example of another command, no option twice and no unbounded range", "[cli]") {
  const Program program;
  const auto count = [](const std::string& text, const std::string& word) {
    int found = 0;
    for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
    return found;
  };
  CHECK(count(program.succeed({"train", "--help"}), "REQUIRED") == 1);
  CHECK(count(program.succeed({"train", "--help"}), "metaformer train [OPTIONS] CONFIG or --config CONFIG\n") == 1);
  CHECK(count(program.succeed({"config", "dump", "--help"}), "dump [OPTIONS] [CONFIG or --config CONFIG]\n") == 1);
  for (const Arguments& words : std::vector<Arguments>{{"train"},
                                                       {"evaluate"},
                                                       {"sample"},
                                                       {"predict"},
                                                       {"export"},
                                                       {"config"},
                                                       {"config", "dump"},
                                                       {"config", "check"},
                                                       {"config", "explain"},
                                                       {"config", "import"},
                                                       {"data"},
                                                       {"data", "fetch"},
                                                       {"data", "list"},
                                                       {"data", "stats"},
                                                       {"data", "tokenizer"},
                                                       {"bench"},
                                                       {"bench", "step"},
                                                       {"bench", "attention"},
                                                       {"info"}}) {
    std::string command = "  metaformer";
    for (const auto& word : words) command += " " + word;
    auto arguments = words;
    arguments.emplace_back("--help");
    const auto help = program.succeed(arguments);
    INFO(help);
    CHECK(count(help, "\n  metaformer ") == count(help, "\n" + command));
    CHECK(count(help, "1048576") + count(help, "1099511627776") == 0);
  }
}

TEST_CASE("config explain takes the end of a key", "[cli]") {
  const Program program;
  CHECK(program.succeed({"config", "explain", "positions"}) ==
        program.succeed({"config", "explain", "model.positions"}));
  CHECK(program.succeed({"config", "explain", "steps"}) == program.succeed({"config", "explain", "train.steps"}));
  CHECK_THAT(program.succeed({"config", "explain", "mixer.constraint"}), ContainsSubstring("psd"));
}

TEST_CASE("config explain shows the kinds of a section, and which one a key belongs to", "[cli]") {
  const Program program;
  const auto schedule = program.succeed({"config", "explain", "schedule"});
  CHECK_THAT(schedule, ContainsSubstring("linear: a straight line from train.learning_rate to floor"));
  CHECK_THAT(schedule,
             ContainsSubstring("train.schedule.floor  (with model: transformer, encoder_decoder, lstm, gru or "
                               "feed_forward, "
                               "train.schedule: cosine, linear or trapezoid)"));
  const auto fields = nlohmann::json::parse(program.succeed({"config", "explain", "task.head", "--json"}));
  CHECK(fields.at(0).at("kinds").at("first_token") == "the logits of a class token in front of the text");
  CHECK(fields.at(0).at("applies") == "task: classification");
}

TEST_CASE("numbers of options out of range are errors, not other numbers", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  const auto sample = [&](const std::string& option, const std::string& value) {
    return program.run({"sample", "--run", "run", "--prompt", "to", "--tokens", "5", option, value});
  };
  for (const auto* seed : {"-1", "18446744073709551616", "18446744073709551615", "9007199254740992", "1.5", "x", ""}) {
    const auto result = sample("--seed", seed);
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK_THAT(result.err, ContainsSubstring("--seed: "));
  }
  for (const auto& [option, value] : {std::pair("--top-p", "nan"),
                                      {"--top-p", "2"},
                                      {"--temperature", "-1"},
                                      {"--top-k", "-1"},
                                      {"--num-samples", "0"},
                                      {"--window", "third"}}) {
    CHECK(sample(option, value).code == 2);
    CHECK_THAT(sample(option, value).err, ContainsSubstring(option));
  }
  CHECK(sample("--seed", "9007199254740991").code == 0);
  CHECK(sample("--seed", "010").out == sample("--seed", "1e1").out);
}

TEST_CASE("what cannot be written is an error, help too", "[cli]") {
  const Program program;
  for (const std::string command : {"--help", "--help-all", "--version", "help train", "config explain"}) {
    const auto line = std::string(METAFORMER_PROGRAM) + " " + command + " > /dev/full 2> '" +
                      (program.folder() / "err").string() + "'";
    const int status = std::system(line.c_str());
    CHECK(WEXITSTATUS(status) == 1);
    CHECK(read_text(program.folder() / "err") == "error: cannot write to standard output\n");
  }
}

TEST_CASE("a working folder that was deleted is named as the mistake", "[cli]") {
  const Program program;
  const auto gone = program.folder() / "gone";
  const auto err = program.folder() / "err";
  const auto line = "mkdir '" + gone.string() + "' && cd '" + gone.string() + "' && rmdir '" + gone.string() + "' && " +
                    METAFORMER_PROGRAM + " train --config shakespeare_metric.yaml 2> '" + err.string() + "'";
  CHECK(WEXITSTATUS(std::system(line.c_str())) == 2);
  CHECK_THAT(read_text(err), ContainsSubstring("error: the working folder was deleted"));
  const auto message = read_text(err);
  CHECK(std::count(message.begin(), message.end(), '\n') == 1);
}

TEST_CASE("bench step stops at the first signal", "[cli]") {
  const Program program;
  const auto pid =
      program.start({"bench", "step", "--config", "small.yaml", "--steps", "1000000", "--rounds", "1000000"});
  const auto has_begun = [&] { return read_text(program.folder() / "err").find("median of") != std::string::npos; };
  for (int i = 0; i < 600 && !has_begun(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(pid, SIGINT);
  CHECK(program.wait(pid).code == 130);  // else it would go on for hours
}

TEST_CASE("every corpus that can be fetched is one that configs may name", "[cli]") {
  const Program program;
  std::istringstream corpora(program.succeed({"data", "list"}));
  int count = 0;
  for (std::string line; std::getline(corpora, line); ++count) {
    const auto name = line.substr(0, line.find(' '));
    const std::map<std::string, Arguments> tasks = {
        {"tinyshakespeare", {"task=language_model"}},
        {"imdb", {"task=classification"}},
        {"multi30k", {"task=sequence_to_sequence", "model.kind=encoder_decoder"}}};
    Arguments words = {"config", "check", "--set", "data.corpus=" + name};
    words.insert(words.end(), tasks.at(name).begin(), tasks.at(name).end());
    program.succeed(words);
    if (name != "imdb")
      CHECK_THAT(program.run({"config", "check", "--set", "task=classification", "data.corpus=" + name}).err,
                 ContainsSubstring(name == "multi30k" ? "is for task sequence_to_sequence" : ""));
  }
  CHECK(count == 3);
}
