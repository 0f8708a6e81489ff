// init: looks at data, and writes a config that trains at once.

#include "cli/program.h"

namespace {

// The file of the example, the arguments of init behind the kind, and the name of the config.
struct Example {
  std::string kind, file, content, config;
};

std::string pairs_table() {
  std::string table = "question,answer\n";
  for (int i = 0; i < 40; ++i)
    table += "number " + std::to_string(i) + " please,it is w" + std::to_string(i % 7) + " here\n";
  return table;
}

const std::vector<Example> examples = {{"text", "my book.txt", small_text(), "my book.yaml"},
                                       {"table", "reviews.csv", labelled_table(60), "reviews.yaml"},
                                       {"pairs", "answers.csv", pairs_table(), "answers.yaml"}};

// The program, with a cache of its own, and the file of the example.
struct InitProgram : Program {
  explicit InitProgram(const Example& example) { folder().write(example.file, example.content); }
  OwnCache cache;
};

}  // namespace

TEST_CASE("init writes a config that is valid, trains, and answers", "[init]") {
  const auto example = GENERATE(from_range(examples));
  const InitProgram program(example);
  CHECK(program.succeed({"init", example.kind, example.file}) == example.config + "\n");
  CHECK_THAT(program.read("err"), Mentions(example.file + ": |metaformer train --config |metaformer evaluate"));
  CHECK(program.json({"config", "check", example.config}).at("valid") == true);
  CHECK_THAT(program.read(example.config), Mentions("# metaformer train --config |task:|data:|path:|model:|train:"));
  program.succeed({"train", "--config", example.config, "--out", "run"}, set({"train.steps=6"}));
  program.succeed("evaluate --run run");
  if (example.kind == "text")
    CHECK(program.succeed({"sample", "--run", "run", "--prompt", "to", "--tokens", "5"}).starts_with("to"));
  else
    CHECK_FALSE(program.run_with_input("predict --run run", "a new text\n").out.empty());
}

TEST_CASE("a config of init trains in any working folder", "[init]") {
  const InitProgram program(examples[0]);
  program.succeed({"init", "text", "my book.txt", "-o", "book.yaml"});
  fs::create_directory(program.at("elsewhere"));
  CHECK(program.shell("cd elsewhere && \"$PROGRAM\" train ../book.yaml --out run --set train.steps=2") == 0);
}

TEST_CASE("init replaces no file without --force, and never the data", "[init]") {
  const InitProgram program(examples[1]);
  const Arguments init = "init table reviews.csv";
  program.succeed(init);
  const auto config = program.read("reviews.yaml");
  program.folder().write("reviews.yaml", "mine\n");
  program.refuse_in_one_line(init, 2, {"reviews.yaml: exists", "--force", "-o"});
  CHECK(program.read("reviews.yaml") == "mine\n");
  program.succeed(init, "--force");
  CHECK(program.read("reviews.yaml") == config);
  program.refuse_in_one_line(joined(init, "--force -o ./reviews.csv"), 2, {"reviews.csv: holds the data"});
  CHECK(program.read("reviews.csv") == examples[1].content);
  program.refuse_in_one_line(joined(init, "-o no/folder/c.yaml"), 2,
                             {"no/folder/c.yaml: there is no folder no/folder"});
  program.refuse_in_one_line("init table reviews.xlsx", 3, {"reviews.xlsx", "no such file"});
}

TEST_CASE("init prints the config, or what it has found and chosen as JSON", "[init]") {
  const InitProgram program(examples[1]);
  const Arguments init = "init table reviews.csv";
  const auto printed = program.succeed(init, "-o -");
  CHECK_FALSE(program.has("reviews.yaml"));
  program.folder().write("printed.yaml", printed);
  program.succeed("config check printed.yaml");

  const auto json = program.json(init);
  CHECK(json.at("config") == "reviews.yaml");
  CHECK(program.read("reviews.yaml") == printed);
  const auto& found = json.at("found");
  CHECK(found.at("rows") == 60);
  CHECK(found.at("classes") == Json{{"no", 30}, {"yes", 30}});
  CHECK(found.at("text_field") == "text");
  CHECK(found.at("header") == true);
  const auto& chosen = json.at("chosen");
  CHECK(chosen.at("task.kind").at("value") == "classification");
  CHECK(chosen.at("data.path").at("value") == program.at("reviews.csv"));
  CHECK_FALSE(chosen.at("data.path").at("reason").get<std::string>().empty());
  CHECK(json.at("suggested").empty());
  CHECK(json.at("warnings").empty());
  CHECK(json.at("commands").size() == 3);
  CHECK(json.at("seconds") > 0);
  CHECK(json.at("memory_bytes") > 0);
  const auto unwritten = program.json(init, "-o -");
  CHECK(unwritten.at("config").is_null());
  CHECK(unwritten.at("yaml") == printed);
}

TEST_CASE("init chooses for the device that is named, and names it in the next commands", "[init]") {
  const InitProgram program(examples[0]);
  const auto json = program.json({"init", "text", "my book.txt", "--device", "cpu"});
  for (const auto& command : json.at("commands")) CHECK(command.get<std::string>().ends_with(" --device cpu"));
  program.refuse_in_one_line({"init", "text", "my book.txt", "--force", "--device", "gpu"}, 2,
                             {"--device gpu: expected"});
}

TEST_CASE("init takes folders, files of lines, compressed files, and columns by name", "[init]") {
  const Program program;
  program.folder().write("books/a.txt", small_text());
  program.folder().write("books/b.txt", small_text());
  CHECK(program.succeed("init text books/") == "books.yaml\n");
  CHECK(program.json("config check books.yaml").at("valid") == true);
  CHECK(program.shell("gzip < text.txt > text.txt.gz") == 0);
  CHECK(program.succeed("init text text.txt.gz") == "text.yaml\n");

  std::string sources, targets;
  for (int i = 0; i < 30; ++i) {
    sources += "ein Hund " + std::to_string(i) + "\n";
    targets += "a dog " + std::to_string(i) + "\n";
  }
  program.folder().write("train.de", sources);
  program.folder().write("train.en", targets);
  CHECK(program.succeed("init pairs train.de train.en") == "train.yaml\n");
  CHECK_THAT(program.read("train.yaml"), Mentions("path: |train.de|target_path: |train.en"));
  CHECK(program.json("config check train.yaml").at("valid") == true);

  program.folder().write("two.csv", "first,second\n" + labelled_table(40, ""));
  program.succeed("init table two.csv --text first --label second");
  CHECK_THAT(program.read("two.yaml"), Mentions("text_field: first|label_field: second"));
}

TEST_CASE("init refuses data on which nothing can be trained", "[init]") {
  const Program program;
  program.folder().write("short.txt", "too short");
  program.folder().write("empty.txt", "");
  program.folder().write("one.csv", labelled_table(40, "text,label\n", "no"));
  program.refuse_in_one_line("init text short.txt", 3, {"short.txt", "too few"});
  program.refuse_in_one_line("init text empty.txt", 3, {"empty.txt", "empty"});
  program.refuse_in_one_line("init text nowhere.txt", 3, {"nowhere.txt", "no such file"});
  program.refuse_in_one_line("init table one.csv", 3, {"one.csv", "'no'", "--label"});
  program.refuse_in_one_line("init table text.txt", 3, {"text.txt"});
  program.refuse_in_one_line("init text -", 2, {"-", "only once"});
  program.refuse_in_one_line("init text text.txt --text body", 2, {"--text body", "plain text"});
  program.refuse_in_one_line("init", 2, {"command is missing", "text, table or pairs"});
  program.refuse_in_one_line("init text", 2, {"missing argument: FILE"});
  program.refuse_in_one_line("init one.csv", 2, {"text, table or pairs|metaformer init table one.csv"});
  program.refuse_in_one_line("init text.txt", 2, {"text, table or pairs|metaformer init text text.txt"});
  program.refuse_in_one_line("init nowhere.csv", 2, {"unknown command 'nowhere.csv'"});
  program.refuse_in_one_line("init table one.csv --label 9", 3, {"one.csv:1: no column '9'"});
  program.folder().write("random.bin", std::string("\x7f\x00\x01", 3));
  program.refuse_in_one_line("init text random.bin", 3, {"random.bin: files of this name hold tokens"});
  CHECK_FALSE(program.has("short.yaml"));
}
