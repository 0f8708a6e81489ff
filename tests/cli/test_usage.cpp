// Help, and mistakes: exit codes, what goes to stdout, and one line on stderr.

#include <map>

#include "cli/program.h"

namespace {

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

const std::vector<std::tuple<Arguments, int, std::string>> mistakes = {
    // Commands and arguments.
    {"", 2, "command is missing|train, evaluate"},
    {"trian --config small.yaml", 2, "'trian'; did you mean 'train'? The commands are init, train"},
    {"config list", 2, "dump|check|explain|draw|import|(see metaformer config "},
    {"config", 2, "dump|check|explain|draw|import|(see metaformer config "},
    {"data get imdb", 2, "'get'"},
    {"help tran", 2, "did you mean 'train'?"},
    {"help config dum", 2, "did you mean 'dump'?"},
    {"help train x", 2, "metaformer train"},
    {"config dump small.yaml one two three", 2, "'one', 'two', 'three'|dump --help"},
    {"train --config small.yaml --resum", 2, "'--resum'; did you mean '--resume'?"},
    {"train --config small.yaml --lr=3", 2, "did you mean '--set train.learning_rate=VALUE'?"},
    {"train --config small.yaml --max-iters 3", 2, "did you mean '--set train.steps=VALUE'?"},
    {"train --config small.yaml --num-epochs 3", 2, "did you mean '--set train.epochs=VALUE'?"},
    {"compare", 2, "missing argument: "},
    {"data fetch", 2, "missing argument: tinyshakespeare|(see metaformer data fetch --help)"},
    {"data prepare text.txt --out", 2, "--out: needs a value, FOLDER"},
    {"train --config small.yaml --config other.yaml", 2, "--config: is given more than once, and takes one value"},
    {"config schema --out nofolder/x", 2, "nofolder/x: there is no folder nofolder"},
    {"train --config small.yaml --output-dir a", 2, "did you mean '--out'?"},
    {"sample --max-new-tokens 3", 2, "did you mean '--tokens'?"},
    {"train --config small.yaml \x1b[31mred", 2, "'\\x1b[31mred'"},
    {"train --config small.yaml --device tpu", 2, "--device tpu:|auto|cuda:N"},
    {"train --config small.yaml --out full", 2, "--out full: already exists"},
    {"train --config small.yaml --out /proc/no/run", 2, "--out /proc/no/run: "},
    {"train --config small.yaml --resume", 2, "--out"},
    {"train --resume", 2, "--resume runs/latest:|no such run"},
    {"train --resume full", 2, "--resume full:|not a run"},
    {"train --resume full --out other", 2, "--resume full and --out other name two runs"},
    {"train --from step-4", 2, "--resume runs/latest:|no such run"},
    {"train --from nowhere/checkpoints/step-4", 2, "--from |/nowhere: no such run"},
    {"evaluate", 2, "--run runs/latest:|no such"},
    {"evaluate --run full", 2, "--run full:|not a run"},
    {"sample --run nowhere", 2, "--run nowhere: "},
    {"predict missing.txt", 3, "'missing.txt': "},
    {"data fetch tinyshakespear", 2, "did you mean 'tinyshakespeare'?"},
    // Configs.
    {"train", 2, "--config"},
    {"train --config nope.yaml", 2, "nope.yaml: no such config"},
    {"train --config smal.yaml", 2, "did you mean 'small.yaml'?"},
    {"train --config unknown.yaml", 2, "unknown.yaml:1:9: train.learning_rat: unknown"},
    {"config explain train.stepz", 2, "did you mean 'train.steps'?"},
    {"config explain train.steps.kind", 2, "'train.steps.kind'"},
    {"train --config small.yaml --set train.steps=x", 2, "--set train.steps=x: train.steps:|integer"},
    {"train --config small.yaml --set 'data.tokenizer={kind: unigram, whitespace: kept, sampling: 0.2}'", 2,
     "data.tokenizer.sampling: 0.2 "},
    {{"train", "--config", "small.yaml", "--set", "data.tokenizer={kind: word, joiners: '-x'}"},
     2,
     "data.tokenizer.joiners: '-x' "},
    {"train --config small.yaml --set task=classification --set data.rating.highest=5", 2, "data.rating.highest: "},
    {"train --config reviews_amazon.yaml --set data.rating.lowest=4", 2, "data.rating.lowest: 4 "},
    {"train --config sorter_metric.yaml --set data.path=text.txt", 2, "data: unknown key; only task: "},
    {"train --config sorter_metric.yaml --set task.length=9", 2, "model.context: 11 "},
    {"train --config small.yaml --device cpu --set 'model.mixer={kind: metric, backend: fused}'", 2, "'fused'"},
    {"train --config small.yaml --set train.init_from=gpt2", 2,
     "gpt2: no run (config.yaml)|Nothing is downloaded|hf download"},
    {"train --config small.yaml --set train.freeze=[heat]", 2, "train.freeze: 'heat'"},
    {"train --config small.yaml --set train.rate_factors=[heat=2]", 2, "train.rate_factors: 'heat'"},
    // Data.
    {"train --config long.yaml", 3, "model.context 4096|4097"},
    {"train --config small.yaml --set data.path=missing.txt", 3, "missing.txt: no such file"},
    {"train --config small.yaml --set data.path=empty.txt", 3, "empty.txt: "},
    {"train --config small.yaml --set data.path=latin1.txt", 3, "UTF-8|0xe9|500"},
    {"train --config small.yaml --set data.test_path=text.txt", 2, "data.test_path: unknown key for task "},
    {"train --config small.yaml --set data.format=csv", 2, "csv"},
    {"train --config small.yaml --set data.separate_documents=true", 2, "text.txt"},
    {"train --config text_classifier.yaml", 2, "data.path is not set"},
    {"train --config text_classifier.yaml --set data.path=text.txt", 3, "text.txt:1: "},
    {"train --config imdb_linear.yaml --set data.path=a.csv", 3, "a.csv: no such file"},
    {"train --config imdb_linear.yaml --set data.path=table.csv", 2,
     "table.csv is a table|data.corpus imdb|--set model=linear"},
    {"train --config text_classifier.yaml --set data.path=text.txt --set data.format=text", 2, "csv, tsv or jsonl"},
};

}  // namespace

TEST_CASE("a mistake ends with one line on stderr and the documented exit code", "[cli]") {
  const Program program;
  const auto& folder = program.folder();
  folder.write("unknown.yaml", "train: {learning_rat: 1}\n");
  folder.write("long.yaml", "base: small.yaml\nmodel: {context: 4096}\n");
  folder.write("empty.txt", "");
  folder.write("latin1.txt", std::string(500, 'x') + "\xe9" + std::string(500, 'y'));
  folder.write("full/file", "");
  folder.write("table.csv", "text,label\na,b\n");
  const auto [arguments, code, text] = GENERATE(from_range(mistakes));
  CAPTURE(arguments);
  program.refuse_in_one_line(arguments, code, {text});
  CHECK_FALSE(program.has("runs"));
}

TEST_CASE("empty values, which usually come from unset shell variables, are mistakes", "[cli]") {
  const Program program;
  // The last word of each line is an option.
  for (const std::string words :
       {"train --config small.yaml --out", "train --config", "train --resume", "train --from",
        "train --config small.yaml --device", "train --config small.yaml --set", "evaluate --run",
        "evaluate --checkpoint", "evaluate --with", "sample --prompt-file", "inspect --beside", "inspect --file",
        "export --out", "compare run --export", "report run --out", "report run --figures",
        "config draw --index 0 --space", "data fetch imdb --to"})
    program.refuse_in_one_line(words + " ''", 2, {words.substr(words.rfind(' ') + 1) + ": is empty"});
  for (const std::string key : {"data.path", "data.validation_path", "train.init_from", "data.corpus"})
    program.refuse_in_one_line("train --config small.yaml --set " + key + "=", 2, {key + ": is empty"});
  for (const auto& [arguments, text] : std::vector<std::pair<Arguments, std::string>>{
           {"train --out= --config small.yaml", "--out: is empty"},
           {"train ''", "--config: is empty"},
           {"predict ''", "file: is empty"},
           {"compare ''", "runs: is empty"},
           {"config import ''", "folder: is empty"},
           {"train --config small.yaml --set 'data={path: , cache: true}'", "data.path: is empty"},
           {{"train", "--config", "small.yaml", "--set", "train.freeze=['']"}, "train.freeze: is empty"},
           {{"train", "--config", "small.yaml", "--set", "data.tokenizer={kind: pretrained, path: ''}"},
            "data.tokenizer.path: is empty"},
           {"train --config small.yaml --set model.kind=", "model"}})
    program.refuse_in_one_line(arguments, 2, {text});
}

TEST_CASE("the error for an empty value in a file has its place, and null and texts that may be empty are valid",
          "[cli]") {
  const Program program;
  const auto dump = [&](const std::string& yaml) {
    program.folder().write("a.yaml", yaml);
    return program.run("config dump a.yaml");
  };
  for (const auto* empty : {"data:\n  path:\n", "data:\n  path: ''\n", "data:\n  path:\n  cache: true\n"})
    Program::check_refused(dump(empty), 2, {"a.yaml:2:", "data.path: is empty"});
  CHECK_THAT(dump("base:\n").err, ContainsSubstring("base: "));
  CHECK_THAT(dump("base: ''\n").err, ContainsSubstring("base: is empty"));
  for (const auto* null : {"null", "~", "Null", "NULL  # none", "null\n  cache: true"})
    CHECK_THAT(dump("data:\n  path: " + std::string(null) + "\n").out, ContainsSubstring("path: null\n"));
  CHECK_THAT(dump("data: {path: null, cache: false}\n").out, ContainsSubstring("path: null\n"));
  CHECK_THAT(dump("data: {tokenizer: {kind: word, joiners: ''}}\n").out, ContainsSubstring("joiners: \"\"\n"));
  CHECK(dump("data:\n  tokenizer:\n    kind: word\n    joiners:\n").code == 2);
  program.succeed("config dump --set data.path=null");
  program.train("run");
  CHECK_THAT(program.run("sample --run run --prompt ''").err, !ContainsSubstring("is empty"));
  CHECK_THAT(program.run("sample --run run --prompt=").err, !ContainsSubstring("is empty"));
}

TEST_CASE("help goes to stdout, with examples of its command only, no option twice and no unbounded range", "[cli]") {
  const Program program;
  for (const auto* words : {"", "train", "sample", "predict", "export", "config", "evaluate", "data"})
    CHECK_THAT(program.succeed(words, {"--help"}), ContainsSubstring("Examples:"));
  for (const auto* words : {"", "train", "config", "config dump", "bench attention", "help"})
    CHECK(program.succeed("help", words) == program.succeed(words, {"--help"}));
  CHECK_THAT(program.succeed("--help-all"), ContainsSubstring("--temperature"));
  CHECK_THAT(program.succeed("--version"), ContainsSubstring("metaformer "));
  const auto train = program.succeed("train --help");
  CHECK(count(train, "metaformer train [OPTIONS] [CONFIG or --config CONFIG]\n") == 1);
  CHECK(count(train, "--resume [RUN] ") == 1);
  CHECK(count(program.succeed("config dump --help"), "dump [OPTIONS] [CONFIG or --config CONFIG]\n") == 1);
  for (const std::string command :
       {"train", "evaluate", "sample", "predict", "export", "config", "config dump", "config check", "config explain",
        "config import", "data", "data fetch", "data list", "data stats", "data tokenizer", "bench", "bench step",
        "bench attention", "info"}) {
    const auto help = program.succeed(command, {"--help"});
    INFO(help);
    CHECK(count(help, "\n  metaformer ") == count(help, "\n  metaformer " + command));
    CHECK(count(help, "1048576") + count(help, "1099511627776") == 0);
  }
}

TEST_CASE("config explain takes the last parts of a key, and shows the kinds of a section", "[cli]") {
  const Program program;
  CHECK(program.succeed("config explain positions") == program.succeed("config explain model.positions"));
  CHECK(program.succeed("config explain steps") == program.succeed("config explain train.steps"));
  CHECK_THAT(program.succeed("config explain mixer.constraint"), ContainsSubstring("psd"));
  CHECK_THAT(program.succeed("config explain model.mixer"), ContainsSubstring("model.mixer.constraint"));
  CHECK_THAT(program.succeed("config explain schedule"),
             ContainsSubstring("linear: a straight line from train.learning_rate to floor") &&
                 ContainsSubstring("train.schedule.floor  (with model: transformer, encoder_decoder, lstm, gru or "
                                   "feed_forward, train.schedule: cosine, linear or trapezoid)"));
  const auto kinds = program.json("config explain model.mixer.kind");
  REQUIRE(kinds.size() == 1);
  CHECK(kinds.at(0) == program.json("config explain model.mixer").at(0));
  const auto fields = program.json("config explain task.head");
  CHECK(fields.at(0).at("kinds").contains("first_token"));
  CHECK(fields.at(0).at("applies") == "task: classification");
}

TEST_CASE("numbers out of an option's range are errors, and are not changed to other numbers", "[cli]") {
  const Program program;
  program.train("run");
  const Arguments sample = "sample --run run --prompt to --tokens 5";
  for (const auto* seed : {"-1", "18446744073709551616", "18446744073709551615", "9007199254740992", "1.5", "x", ""})
    program.refuse(joined(sample, {"--seed", seed}), 2, {"--seed: "});
  for (const Arguments more :
       {"--top-p nan", "--top-p 2", "--temperature -1", "--top-k -1", "--num-samples 0", "--window third"})
    program.refuse(joined(sample, more), 2, {more[0]});
  program.succeed(sample, "--seed 9007199254740991");
  CHECK(program.succeed(sample, "--seed 010") == program.succeed(sample, "--seed 1e1"));
}

TEST_CASE("failed output and a deleted working folder are errors of one line", "[cli]") {
  const Program program;
  for (const std::string command : {"--help", "--help-all", "--version", "help train", "config explain"}) {
    CHECK(program.shell("\"$PROGRAM\" " + command + " > /dev/full") == 1);
    CHECK(program.read("err") == "error: cannot write to standard output\n");
  }
  CHECK(program.shell(
            "mkdir gone && cd gone && rmdir ../gone && \"$PROGRAM\" train --config shakespeare_metric.yaml") == 2);
  CHECK_THAT(program.read("err"), Mentions("error:|working folder"));
  CHECK(is_one_line(program.read("err")));
}

TEST_CASE("configs can name every corpus that can be fetched", "[cli]") {
  const Program program;
  const std::map<std::string, Arguments> tasks = {
      {"tinyshakespeare", {"task=language_model"}},
      {"imdb", {"task=classification"}},
      {"multi30k", {"task=sequence_to_sequence", "model.kind=encoder_decoder"}}};
  const auto corpora = lines_of(program.succeed("data list"));
  CHECK(corpora.size() == 3);
  for (const auto& line : corpora) {
    const auto name = line.substr(0, line.find(' '));
    program.succeed("config check", set(joined(tasks.at(name), {"data.corpus=" + name})));
  }
  program.refuse("config check --set task=classification --set data.corpus=multi30k", 2, {"sequence_to_sequence"});
}
