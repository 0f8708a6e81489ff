// Runs whose data lie elsewhere now: --set data.path=NEW, by the SHA-256 of what is there.

#include "cli/program.h"

namespace fs = std::filesystem;

namespace {

void rewrite(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

std::string table(const std::string& good) {
  std::string rows = "text\tlabel\n";
  for (int i = 0; i < 300; ++i)
    rows += (i % 2 == 0 ? "a fine film number " : "a bad film number ") + std::to_string(i) + "\t" +
            (i % 2 == 0 ? good : "bad") + "\n";
  return rows;
}

const Arguments classifier = {"--set", "task={kind: classification, baselines: false}",
                              "--set", "model={layers: 1, heads: 2, width: 16, context: 16}",
                              "--set", "train={steps: 2, batch_size: 4, schedule: {warmup_steps: 0}}"};

Arguments operator+(Arguments first, const Arguments& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

TEST_CASE("a run whose text has moved is evaluated, inspected and resumed at its new place", "[moved]") {
  const Program program;
  const auto at = [&](const std::string& name) { return (program.folder() / name).string(); };
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  const auto where_it_was = program.run({"evaluate", "--run", "run", "--json"});
  CHECK_THAT(where_it_was.err, !ContainsSubstring("data.path"));
  fs::create_directory(at("new"));
  fs::rename(at("text.txt"), at("new/renamed.txt"));
  for (const Arguments& command :
       {Arguments{"evaluate", "--run", "run"},
        {"inspect", "--run", "run"},
        {"train", "--config", "small.yaml", "--out", "run", "--resume", "--set", "train.steps=6"}}) {
    const auto lost = program.run(command);
    INFO(lost.err);
    CHECK(lost.code == 3);
    CHECK_THAT(lost.err, ContainsSubstring(at("text.txt") + ": no such file") &&
                             ContainsSubstring("if it has moved, name its new place: --set data.path=..."));
    CHECK(std::count(lost.err.begin(), lost.err.end(), '\n') == 1);
  }
  const auto mistyped = program.run({"train", "--config", "small.yaml", "--set", "data.path=nowhere.txt"});
  CHECK(mistyped.code == 3);
  CHECK_THAT(mistyped.err, ContainsSubstring("nowhere.txt: no such file or folder, which data.path names\n"));
  const Arguments moved = {"--set", "data.path=new/renamed.txt"};
  const auto evaluated = program.run(Arguments{"evaluate", "--run", "run", "--json"} + moved);
  CHECK(evaluated.code == 0);
  CHECK(evaluated.out == where_it_was.out);
  CHECK_THAT(evaluated.err, ContainsSubstring("data.path=" + at("new/renamed.txt") +
                                              ": the data that the run was trained on, by their SHA-256\n"));
  CHECK_THAT(evaluated.err, !ContainsSubstring("warning"));
  program.succeed(Arguments{"inspect", "--run", "run", "--no-pictures"} + moved);
  program.succeed(Arguments{"train", "--config", "small.yaml", "--out", "run", "--resume", "--set", "train.steps=6"} +
                  moved);
  CHECK_THAT(read_text(program.folder() / "run/config.yaml"), ContainsSubstring(at("new/renamed.txt")));
  program.succeed({"evaluate", "--run", "run"});

  rewrite(at("other.txt"), "quite other characters: 0123456789 ABCDEF\n" + small_text());
  const auto digest = nlohmann::json::parse(read_text(program.folder() / "run/environment.json"))
                          .at("data")
                          .at("sha256")
                          .get<std::string>();
  for (const Arguments& command :
       {Arguments{"evaluate", "--run", "run"},
        {"inspect", "--run", "run"},
        {"train", "--config", "small.yaml", "--out", "run", "--resume", "--set", "train.steps=8"}}) {
    const auto other = program.run(command + Arguments{"--set", "data.path=other.txt"});
    INFO(other.err);
    CHECK(other.code == 3);
    CHECK_THAT(other.err, ContainsSubstring("other.txt: not the data that run was trained on: sha256 is ") &&
                              ContainsSubstring(" and was " + digest));
    CHECK(std::count(other.err.begin(), other.err.end(), '\n') == 1);
  }
  CHECK_THAT(program.run({"evaluate", "--run", "run", "--set", "data.validation_path=other.txt"}).err,
             ContainsSubstring("validation.sha256 is ") && ContainsSubstring(" and was missing"));
  CHECK(program.run({"evaluate", "--run", "run", "--set", "data.corpus=imdb"}).code == 2);
}

TEST_CASE("a folder that has moved is recognised, and a run without digests gives a warning", "[moved]") {
  const Program program;
  const auto at = [&](const std::string& name) { return (program.folder() / name).string(); };
  program.folder().write("books/a.txt", small_text());
  program.folder().write("books/b.txt", small_text());
  program.succeed({"train", "--config", "small.yaml", "--out", "run", "--set", "data.path=books"});
  fs::rename(at("books"), at("library"));
  program.succeed({"evaluate", "--run", "run", "--set", "data.path=library"});
  rewrite(at("library/b.txt"), small_text() + "more\n");
  const auto changed = program.run({"evaluate", "--run", "run", "--set", "data.path=library"});
  CHECK(changed.code == 3);
  CHECK_THAT(changed.err, ContainsSubstring("sha256 is "));

  auto environment = nlohmann::json::parse(read_text(program.folder() / "run/environment.json"));
  environment.erase("data");
  rewrite(at("run/environment.json"), environment.dump());
  const auto unknown = program.run({"evaluate", "--run", "run", "--set", "data.path=library"});
  CHECK(unknown.code == 0);
  CHECK_THAT(unknown.err, ContainsSubstring("warning: data.path=" + at("library") + ": whether these are the data") &&
                              ContainsSubstring("cannot be checked"));
}

TEST_CASE("tables and pairs that have moved are recognised split by split", "[moved]") {
  const Program program;
  const auto at = [&](const std::string& name) { return (program.folder() / name).string(); };
  rewrite(at("train.tsv"), table("good"));
  rewrite(at("test.tsv"), table("good"));
  program.succeed(Arguments{"train", "--config", "text_classifier.yaml", "--out", "run", "--set", "data.path=train.tsv",
                            "--set", "data.test_path=test.tsv"} +
                  classifier);
  fs::create_directory(at("new"));
  fs::rename(at("train.tsv"), at("new/train.tsv"));
  fs::rename(at("test.tsv"), at("new/test.tsv"));
  const Arguments evaluate = {"evaluate", "--run", "run", "--split", "test"};
  const Arguments train_there = {"--set", "data.path=new/train.tsv"},
                  test_there = {"--set", "data.test_path=new/test.tsv"};
  CHECK_THAT(program.run(evaluate).err, ContainsSubstring("--set data.path=..."));
  CHECK_THAT(program.run(evaluate + train_there).err, ContainsSubstring("--set data.test_path=..."));
  program.succeed(evaluate + train_there + test_there);
  rewrite(at("new/test.tsv"), table("evil"));
  const auto changed = program.run(evaluate + train_there + test_there);
  CHECK(changed.code == 3);
  CHECK_THAT(changed.err, ContainsSubstring("test.sha256 is ") && ContainsSubstring(" and was "));

  std::string german, english;
  for (int i = 0; i < 200; ++i) {
    german += "ein Hund " + std::to_string(i) + "\n";
    english += "a dog " + std::to_string(i) + "\n";
  }
  rewrite(at("a.de"), german);
  rewrite(at("a.en"), english);
  program.folder().write("pairs.yaml",
                         "task: sequence_to_sequence\n"
                         "data: {path: a.de, target_path: a.en, tokenizer: byte}\n"
                         "model: {kind: encoder_decoder, width: 16, heads: 2, layers: 1, context: 32}\n"
                         "train: {steps: 1, batch_size: 8, schedule: {warmup_steps: 0}}\n");
  program.succeed({"train", "--config", "pairs.yaml", "--out", "pairs"});
  fs::rename(at("a.de"), at("b.de"));
  fs::rename(at("a.en"), at("b.en"));
  const auto moved =
      program.run({"evaluate", "--run", "pairs", "--set", "data.path=b.de", "--set", "data.target_path=b.en"});
  INFO(moved.err);
  CHECK(moved.code == 0);
  CHECK_THAT(moved.err, !ContainsSubstring("warning"));
  rewrite(at("b.en"), english + "x\n");
  CHECK_THAT(
      program.run({"evaluate", "--run", "pairs", "--set", "data.path=b.de", "--set", "data.target_path=b.en"}).err,
      ContainsSubstring("target_sha256 is "));
}
