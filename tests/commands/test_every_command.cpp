// Every command on every task with every kind of model: it works, or gives the reason in one line.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <regex>

#include "cli/command_line.h"
#include "config/experiment_config.h"
#include "support/byte_level_bpe.h"
#include "support/temporary_folder.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

// The output of a command, and its exit code.
struct Outcome {
  int code = 0;
  std::string out, err;
};

using Words = std::vector<std::string>;

// Part of the message of a refusal; empty if the command works.
using Answer = std::string;
const Answer works;

Words joined(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Runs the program's commands in this process, so that the libraries start only once, in a working folder with the
// data of all tasks.
class Place {
 public:
  Place() {
    std::filesystem::current_path(folder_.path());
    std::string text, table = "text,label\n", pairs = "source\ttarget\n";
    for (int i = 0; i < 120; ++i) text += std::string("to be, or not to be ") + static_cast<char>('a' + i % 20) + "\n";
    for (int i = 0; i < 60; ++i) {
      const auto words = "to be w" + std::to_string(i % 7) + " or w" + std::to_string(i % 11);
      table += words + (i % 2 == 0 ? " not,no\n" : " so,yes\n");
      pairs += words + "\tbe w" + std::to_string(i % 5) + "\n";
    }
    for (const auto& [name, content] : {std::pair("text.txt", text),
                                        {"table.csv", table},
                                        {"pairs.tsv", pairs},
                                        {"lines.txt", "to be w1\nor not\n"},
                                        {"train.yaml",
                                         "train: {steps: 2, batch_size: 2, eval_interval: 2, checkpoint_interval: 2, "
                                         "schedule: {warmup_steps: 0}}\n"}})
      folder_.write(name, content);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { std::filesystem::current_path(working_folder_); }

  const TemporaryFolder& folder() const { return folder_; }

  Outcome run(Words words) const {
    words.insert(words.begin(), "metaformer");
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int out = redirected(STDOUT_FILENO, folder_ / "stdout"), err = redirected(STDERR_FILENO, folder_ / "stderr");
    const int code = run_command_line(static_cast<int>(words.size()), argv.data());
    std::fflush(nullptr);
    for (const auto& [before, stream] : {std::pair(out, STDOUT_FILENO), {err, STDERR_FILENO}}) {
      ::dup2(before, stream);
      ::close(before);
    }
    return {code, read_text(folder_ / "stdout"), read_text(folder_ / "stderr")};
  }

 private:
  // Redirects the stream to the file. Returns a duplicate of its earlier descriptor.
  static int redirected(int stream, const std::filesystem::path& file) {
    std::fflush(nullptr);
    const int before = ::dup(stream), opened = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    ::dup2(opened, stream);
    ::close(opened);
    return before;
  }

  std::filesystem::path working_folder_ = std::filesystem::current_path();
  TemporaryFolder folder_;
};

// The config of a task, and a prompt for `sample`.
struct TaskRow {
  Words overrides;
  std::string prompt;
};
const std::map<std::string, TaskRow> tasks = {
    {"language_model", {{"data.path=text.txt"}, "to be"}},
    {"masked_language_model", {{"data.path=text.txt"}, "to be"}},
    {"classification", {{"data.path=table.csv", "data.tokenizer.min_count=1"}, "to be"}},
    {"sequence_to_sequence",
     {{"data.path=pairs.tsv", "data.validation_fraction=0.2", "data.tokenizer={kind: word, min_count: 1}"}, "to be"}},
    {"sort", {{"task.length=4", "task.digits=4"}, "3 0 2 1"}},
    {"copy", {{"task.length=4", "task.digits=4"}, "3 1 2 4"}},
    {"recall", {{"task.length=12", "task.vocabulary=32", "task.pairs=2", "task.held_out=4"}, "3 17 5 20 3"}},
    {"induction", {{"task.length=12", "task.held_out=4"}, "3 19 5 1 19"}},
    {"selective_copy", {{"task.length=12", "task.tokens=3", "task.held_out=4"}, "3 14 5 14 2 15"}},
    {"parity", {{"task.length=12", "task.held_out=4"}, "0 1 1 2"}},
    {"majority", {{"task.length=12", "task.held_out=4"}, "0 1 1 2"}},
    {"in_context_recall", {{"task.length=12", "task.held_out=4"}, "3 9 5 12 3"}},
    {"fuzzy_recall", {{"task.length=16", "task.held_out=4"}, "3 9 5 12 3"}},
    {"memorisation", {{"task.length=12", "task.held_out=4"}, "3 255"}},
    {"compression", {{"task.length=12", "task.held_out=4"}, "3 9 15"}},
};

const std::map<std::string, Words> models = {
    {"transformer",
     {"model.layers=1", "model.heads=2", "model.width=16", "model.context=16", "model.mixer=scaled_dot_product",
      "model.bias=true"}},
    {"encoder_decoder", {"model.layers=1", "model.heads=2", "model.width=16", "model.context=16"}},
    {"lstm", {"model.layers=1", "model.width=16", "model.context=16"}},
    {"gru", {"model.layers=1", "model.width=16", "model.context=16"}},
    {"feed_forward", {"model.window=10", "model.width=8", "model.hidden=8", "model.context=16"}},
    {"linear", {"model.buckets=64"}},
};

// The usual answer, and exceptions by kind.
struct Answers {
  Answer usual;
  std::map<std::string, Answer> others;
  const Answer& to(const std::string& kind) const {
    const auto found = others.find(kind);
    return found == others.end() ? usual : found->second;
  }
};

// The answers to training the task with each kind of model.
Answers trained_with(const std::string& task) {
  const Answer whole_text = "sees a whole text", two_sequences = "set it to encoder_decoder",
               pairs_only = "it is for sequence_to_sequence", classes_only = "it is for classification";
  if (task == "sequence_to_sequence") return {two_sequences, {{"encoder_decoder", works}}};
  Answers answers{works, {{"encoder_decoder", pairs_only}}};
  if (task != "classification") answers.others["linear"] = classes_only;
  if (task == "classification" || task == "masked_language_model")
    for (const auto* model : {"lstm", "gru", "feed_forward"}) answers.others[model] = whole_text;
  if (task == "compression")
    for (const auto* model : {"lstm", "gru", "feed_forward"}) answers.others[model] = "set it to transformer";
  return answers;
}

// A command on a run, whose folder replaces the word RUN, and its answers by task and by model.
struct CommandRow {
  Words words;
  Answers by_task, by_model;
};

std::vector<CommandRow> commands_of(const std::string& prompt) {
  const Answer no_text = "cannot continue a text", no_classes = "predict needs a classifier",
               only_language_models = "and must be language_model", no_layers = "only transformers";
  const Answers any, inspected{no_layers, {{"transformer", works}, {"encoder_decoder", works}}};
  return {
      {{"evaluate", "--json", "--run", "RUN"}, any, any},
      {{"predict", "lines.txt", "--run", "RUN"},
       {no_classes, {{"classification", works}, {"sequence_to_sequence", works}}},
       any},
      {{"sample", "--prompt", prompt, "--run", "RUN"},
       {works,
        {{"masked_language_model", no_text}, {"compression", no_text}, {"classification", "use metaformer predict"}}},
       any},
      {{"inspect", "--no-pictures", "--json", "--run", "RUN"}, any, inspected},
      {{"inspect", "--text", prompt, "--no-data", "--out", "inspected", "--run", "RUN"}, any, inspected},
      {{"export", "--format", "huggingface", "--out", "exported", "--run", "RUN"},
       {works,
        {{"masked_language_model", only_language_models},
         {"compression", only_language_models},
         {"classification", only_language_models},
         {"sequence_to_sequence", only_language_models}}},
       any},
      {{"export", "--format", "safetensors", "--out", "exported", "--run", "RUN"}, any, any},
      {{"report", "RUN", "-o", "report.html", "--tokens", "5", "--json"}, any, any},
      {{"compare", "RUN"}, any, any},
      {{"runs", "RUN", "--json"}, any, any},
  };
}

Words sets(const Words& changes) {
  Words words;
  for (const auto& change : changes) words.insert(words.end(), {"--set", change});
  return words;
}

void check(const Outcome& outcome, const Answer& expected) {
  INFO("exit code " << outcome.code << ", stdout: " << outcome.out.substr(0, 200) << ", stderr: " << outcome.err);
  CHECK(outcome.code == (expected.empty() ? 0 : 2));
  if (expected.empty()) {
    CHECK_FALSE(outcome.out.empty());
    return;
  }
  CHECK_THAT(outcome.err, ContainsSubstring(expected));
  CHECK(outcome.out.empty());
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
}

}  // namespace

TEST_CASE("the tables contain every kind of task and model", "[commands]") {
  const auto names_of = [](const auto& table) {
    std::set<std::string> names;
    for (const auto& [name, row] : table) names.insert(name);
    return names;
  };
  const auto known_tasks = kinds_of<TaskConfig>(), known_models = kinds_of<ModelConfig>();
  CHECK(names_of(tasks) == std::set<std::string>(known_tasks.begin(), known_tasks.end()));
  CHECK(names_of(models) == std::set<std::string>(known_models.begin(), known_models.end()));
}

TEST_CASE("every command of the program that works on runs is tested", "[commands]") {
  std::set<std::string> known = {"init", "train",      "config", "data", "bench",
                                 "info", "completion", "man",    "help", "sweep-functions"};
  for (const auto& command : commands_of("")) known.insert(command.words.front());
  const Place place;
  const auto help = place.run({"--help"}).out;
  const std::regex row("\n  ([a-z][a-z-]*)  ");
  std::set<std::string> listed;
  for (std::sregex_iterator match(help.begin(), help.end(), row), end; match != end; ++match)
    listed.insert((*match)[1]);
  CHECK(listed == known);
}

TEST_CASE("every command works on every task with every kind of model, or gives the reason why not", "[commands]") {
  const Place place;
  for (const auto& [task, row] : tasks)
    for (const auto& [model, options] : models) {
      INFO("task " << task << ", model " << model);
      const auto is_trained = trained_with(task).to(model);
      const auto config =
          joined({"train.yaml"}, sets(joined({"task=" + task, "model=" + model}, joined(row.overrides, options))));
      const auto run = "runs/" + task + "_" + model;
      check(place.run(joined({"config", "check"}, config)), is_trained);
      check(place.run(joined({"train", "--json", "--out", run, "--device", "cpu"}, config)), is_trained);
      CHECK(std::filesystem::exists(run) == is_trained.empty());
      if (!is_trained.empty()) continue;
      for (auto command : commands_of(row.prompt)) {
        INFO("command " << command.words.front() << " " << command.words.at(1));
        std::filesystem::remove_all("exported");
        std::replace(command.words.begin(), command.words.end(), std::string("RUN"), run);
        const auto& of_model = command.by_model.to(model);
        const auto outcome = place.run(command.words);
        check(outcome, of_model.empty() ? command.by_task.to(task) : of_model);
        if (command.words.front() == "report")
          CHECK(nlohmann::json::parse(outcome.out).at("problems") == nlohmann::json::array());
      }
    }
}

TEST_CASE("a masked language model with any tokenizer is inspected with its hidden tokens", "[commands]") {
  const Place place;
  const RandomMerges merges(3, 40, "tobernqa ");
  place.folder().write("tokenizer.json", merges.file().dump());
  const std::string kept = ", whitespace: kept, vocabulary: ";
  const std::map<std::string, std::string> tokenizers = {{"character", "character"},
                                                         {"byte", "byte"},
                                                         {"word", "{kind: word, whitespace: kept, min_count: 1}"},
                                                         {"unigram", "{kind: unigram" + kept + "300}"},
                                                         {"bpe", "{kind: bpe" + kept + "300}"},
                                                         {"pretrained", "{kind: pretrained, path: tokenizer.json}"}};
  for (const auto& kind : kinds_of<TokenizerOptions>()) {
    INFO("tokenizer " << kind);
    REQUIRE(tokenizers.contains(kind));
    const Words changes = {"task=masked_language_model", "data.path=text.txt", "task.fraction=0.4",
                           "data.tokenizer=" + tokenizers.at(kind)};
    check(place.run(joined({"train", "--json", "train.yaml", "--out", "runs/" + kind},
                           sets(joined(changes, models.at("transformer"))))),
          works);
    const auto inspected = place.run({"inspect", "--run", "runs/" + kind, "--no-pictures", "--json"});
    check(inspected, works);
    const auto tokens = nlohmann::json::parse(inspected.out).at("tokens").get<Words>();
    CHECK(tokens.size() == 16);
    CHECK(std::count(tokens.begin(), tokens.end(), "[mask]") > 0);
    CHECK(std::count(tokens.begin(), tokens.end(), "\\x00") == 0);
    if (std::filesystem::exists("runs/byte"))
      check(place.run({"inspect", "--run", "runs/" + kind, "--beside", "runs/byte", "--out", "beside"}), works);
  }
}

}  // namespace metaformer
